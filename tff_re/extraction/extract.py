"""An extraction from its first document to its files."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets.errors import DataError, counted
from datasets.files import write_atomically
from tff_re.extraction.forms import check_pubtator_id, fact_line, mentions_line, page_line, pubtator_block
from tff_re.extraction.graph import GRAPHML, Graph
from tff_re.extraction.journal import Journal
from tff_re.extraction.pipeline import Pipeline, Unit
from tff_re.extraction.records import Annotated, Fact
from tff_re.extraction.relations import chunks
from tff_re.extraction.sources import Source

DOCUMENTS_AT_ONCE = 16

FACTS, PUBTATOR, PAGE = "facts", "pubtator", "page"

MOST_DOCUMENTS_ON_A_PAGE, MOST_CHARACTERS_ON_A_PAGE = 50, 200_000


@dataclass(frozen=True)
class Outputs:
    """The files to write.

    Attributes:
      facts: JSON lines of facts, or of each document's mentions where no relation is predicted.
      pubtator: All texts with their mentions and facts.
      graph: A file .graphml, or a folder for GraphML and CSV.
      page: An HTML page of the first documents.
      show_text: Whether files may hold words of the texts.

    Raises:
      DataError: A file that holds the texts is asked for without `show_text`, or a file is named twice.
    """

    facts: Path
    pubtator: Path | None = None
    graph: Path | None = None
    page: Path | None = None
    show_text: bool = False

    def __post_init__(self):
        if not self.show_text:
            for option, path in (("--pubtator", self.pubtator), ("--html", self.page)):
                if path is not None:
                    raise DataError(f"{option} writes the texts", path=path, remedy="give --show-text too")
        named = [path for path in (self.facts, self.pubtator, self.graph, self.page) if path is not None]
        if len(set(named)) < len(named):
            raise DataError("is named twice", path=max(named, key=named.count), remedy="give every file a name")

    def in_journal(self) -> dict[str, Path]:
        """The files that grow document by document.

        The file of the HTML page holds the data that the page is made of.
        """
        files = {FACTS: self.facts, PUBTATOR: self.pubtator, PAGE: self.page}
        return {name: path for name, path in files.items() if path is not None}


@dataclass(frozen=True)
class Extraction:
    """The result of an extraction.

    Attributes:
      documents, mentions, facts: How many there are; no facts without a model of relations.
      files: What was written.
      notes: What a reader of the facts should know.
    """

    documents: int
    mentions: int
    facts: int | None
    files: tuple[Path, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Progress:
    """How far an extraction is: documents of `total`, and mentions and facts so far."""

    documents: int
    total: int
    mentions: int
    facts: int


PageOf = Callable[[Path, Extraction], str]
"""Makes the HTML page of a file of `page_line`s."""


def extract_to(
    outputs: Outputs,
    source: Source,
    pipeline_of: Callable[[bytes], Pipeline],
    *,
    settings: Mapping[str, Any],
    exports: Mapping[str, str | None],
    notes: Sequence[str] = (),
    page_of: PageOf | None = None,
    resume: bool = False,
    overwrite: bool = False,
    on_batch: Callable[[Progress], None] = lambda progress: None,
) -> Extraction:
    """Extracts the facts of all documents, or without a model of relations their mentions, into files.

    Memory does not grow with the number of documents.

    All files of the source are read once before the models are used, so that a damaged one is refused at the start.

    Args:
      outputs: The files to write.
      source: The documents.
      pipeline_of: From the key of unlinked mentions' numbers to the steps.
      settings: What has to be the same when the extraction continues.
      exports: What every fact has about the models, see `fact_line`.
      notes: What a reader should know of the models and the terminology.
      page_of: Makes the HTML page; needed if `outputs` has one.
      resume: Continue an interrupted extraction.
      overwrite: Replace an older one.
      on_batch: Called after each batch.

    Raises:
      DataError: The source is empty or malformed, the files cannot be written or are there, or another extraction was
        interrupted.
    """
    _check_graph(outputs.graph, resume or overwrite)
    total, written = _survey(source, outputs), {"files": sorted(outputs.in_journal()), "show_text": outputs.show_text}
    settings = {"input": source.digest(), "lines": source.lines, **settings, **written}
    with Journal(outputs.in_journal(), settings, resume=resume, overwrite=overwrite) as journal:
        pipeline = pipeline_of(journal.key)
        on_batch(_progress(journal, total))
        waiting = itertools.islice(source.documents(), journal.documents, None)
        for batch in chunks(waiting, DOCUMENTS_AT_ONCE):
            annotated = pipeline.annotate(batch)
            facts = pipeline.facts(annotated)
            counts = _counts(annotated, facts) + Counter({SKIPPED: len(pipeline.skipped())})
            texts, page_counts = _texts(annotated, facts, outputs, exports, journal.counts)
            if pipeline.relations is None:
                texts[FACTS] = "".join(mentions_line(d, exports, outputs.show_text) for d in annotated)
            journal.append(len(batch), texts, counts + page_counts)
            on_batch(_progress(journal, total))
        return _finish(journal, outputs, notes, page_of, pipeline)


SKIPPED = "longer than the relation model reads"
CUT = "that the recogniser did not read to the end"
_REMEDY_OF_CUT = " (--unit sentences gives it one sentence at a time)"
_WITHOUT_TEXT = "without text"
_MENTIONS, _ON_PAGE, _CHARACTERS_ON_PAGE = "mentions", "documents on the page", "characters on the page"


def _progress(journal: Journal, total: int) -> Progress:
    return Progress(journal.documents, total, journal.counts[_MENTIONS], journal.counts[FACTS])


def _check_graph(target: Path | None, replace: bool) -> None:
    """Raises DataError where the graph is there and must not be replaced."""
    path = target if target is None or target.suffix == ".graphml" else target / GRAPHML
    if path is not None and path.exists() and not replace:
        raise DataError("already exists", path=path, remedy="choose another name, or use --overwrite")


def _survey(source: Source, outputs: Outputs) -> int:
    """Reads all documents and returns their number.

    Raises DataError.
    """
    total = 0
    for document in source.documents():
        total += 1
        if outputs.pubtator is not None:
            check_pubtator_id(document)
    return total


def _counts(annotated: Sequence[Annotated], facts: Sequence[Sequence[Fact]]) -> Counter[str]:
    counts = Counter({FACTS: sum(map(len, facts))})
    for document in annotated:
        counts[_MENTIONS] += len(document.mentions)
        counts[CUT] += document.cut
        counts[_WITHOUT_TEXT] += not document.document.text.strip()
        counts.update(f"linked: {mention.linked}" for mention in document.mentions)
    return counts


def _texts(
    annotated: Sequence[Annotated],
    facts: Sequence[Sequence[Fact]],
    outputs: Outputs,
    exports: Mapping[str, str | None],
    before: Mapping[str, int],
) -> tuple[dict[str, str], Counter[str]]:
    """What a batch adds to each file, and how much of it stands on the page."""
    texts, on_page = dict.fromkeys(outputs.in_journal(), ""), Counter()
    for document, its_facts in zip(annotated, facts, strict=True):
        texts[FACTS] += "".join(fact_line(document.document, f, exports, outputs.show_text) for f in its_facts)
        if outputs.pubtator is not None:
            texts[PUBTATOR] += pubtator_block(document, its_facts)
        length = len(document.document.text)
        documents, characters = ((before.get(name, 0) + on_page[name]) for name in (_ON_PAGE, _CHARACTERS_ON_PAGE))
        fits = documents < MOST_DOCUMENTS_ON_A_PAGE and characters + length <= MOST_CHARACTERS_ON_A_PAGE
        if outputs.page is not None and fits:
            texts[PAGE] += page_line(document, its_facts)
            on_page.update({_ON_PAGE: 1, _CHARACTERS_ON_PAGE: length})
    return texts, on_page


def _finish(
    journal: Journal, outputs: Outputs, notes: Sequence[str], page_of: PageOf | None, pipeline: Pipeline
) -> Extraction:
    """Writes what is made of all facts, and gives the files their names."""
    files: list[Path] = []
    counts = journal.counts
    facts = None if pipeline.relations is None else counts[FACTS]
    notes = (*_notes(counts, pipeline.unit), *notes)
    result = Extraction(journal.documents, counts[_MENTIONS], facts, (), notes)
    if outputs.graph is not None:
        files += Graph.read(journal.part(FACTS)).write(outputs.graph)
    if outputs.page is not None:
        text = page_of(journal.part(PAGE), result)
        write_atomically(outputs.page, text.encode())
        files.append(outputs.page)
    files = [*journal.finish(PAGE), *files]
    return Extraction(result.documents, result.mentions, result.facts, tuple(files), result.notes)


def notes_of_documents(counts: Mapping[str, int], unit: Unit) -> list[str]:
    """Notes from counts of documents that were `SKIPPED`, `CUT` or without text, for a pipeline with this unit."""
    remedies = {CUT: _REMEDY_OF_CUT if unit == "documents" else ""}
    return [
        counted(counts[what], "document", f" {what}{remedies.get(what, '')}")
        for what in (_WITHOUT_TEXT, CUT, SKIPPED)
        if counts.get(what)
    ]


def _notes(counts: Mapping[str, int], unit: Unit) -> tuple[str, ...]:
    linked = {name.removeprefix("linked: "): count for name, count in counts.items() if name.startswith("linked: ")}
    notes = notes_of_documents(counts, unit)
    if linked:
        notes.append("mentions linked: " + ", ".join(f"{name} {count}" for name, count in sorted(linked.items())))
    return tuple(notes)
