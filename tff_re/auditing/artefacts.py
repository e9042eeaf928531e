"""What the files of a run hold of its training texts: pieces of raw text, rare words, ids. Nothing found is shown."""

from __future__ import annotations

import functools
import gzip
import io
import json
import re
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tff_re.auditing.sections import Finding, Section
from tff_re.runs.finished import FinishedRun

CHINESE_CHARACTERS, OTHER_CHARACTERS = 8, 30
"""So many characters in a row of a training text are a piece of it; a shorter text counts as a whole, from half of it
on."""

LEAST_ID = 5
"""Shorter ids cannot be told from other numbers and words."""

MOST_PIECES = 2_000_000
"""Of more pieces only every second, third … is searched for; longer stretches of text are found by these, too."""

_BEGINNING = CHINESE_CHARACTERS // 2
"""The length of the shortest piece."""

RAREST = 5
"""Words of fewer clients than this are counted in word lists, whatever the run's own limit."""

KINDS = ("raw text", "rare word", "id of an example", "id of a document", "id of a client")

_PRINTABLE = re.compile(
    rb"(?:[\t\n\r\x20-\x7e]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}){4,}"
)
"""Runs of printable characters in a binary file."""

_ESCAPED = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
_CHINESE = re.compile(r"[\u3400-\u9fff]")
_TOKEN = re.compile(r"[^\s\"'`,;()\[\]{}<>|=]+")
_TITLE = "What the run's files contain"


@dataclass(frozen=True)
class Needles:
    """What is searched for.

    Attributes:
      windows: length -> pieces of so many characters of the training texts.
      words: words of fewer clients than the run's limit; tokens, or runs of Chinese characters.
      ids: kind -> ids.
    """

    windows: dict[int, frozenset[str]]
    words: frozenset[str]
    ids: dict[str, frozenset[str]]

    @functools.cached_property
    def beginnings(self) -> frozenset[str]:
        """The first characters of all pieces, looked at before the pieces themselves."""
        return frozenset(piece[:_BEGINNING] for pieces in self.windows.values() for piece in pieces)


def windows_of(texts: Iterable[str], stride: int = 1) -> dict[int, frozenset[str]]:
    """Length -> pieces of the texts, one at every `stride`-th character.

    Blanks are made single. See the constants above.
    """
    pieces_of: dict[int, set[str]] = defaultdict(set)
    for text in texts:
        text = " ".join(text.split())
        length = CHINESE_CHARACTERS if 3 * len(_CHINESE.findall(text)) >= len(text) else OTHER_CHARACTERS
        if len(text) < length:
            if len(text) >= length // 2:
                pieces_of[len(text)].add(text)
            continue
        pieces_of[length].update(text[i : i + length] for i in range(0, len(text) - length + 1, stride))
    return {length: frozenset(pieces) for length, pieces in pieces_of.items()}


def count_in(text: str, needles: Needles) -> tuple[dict[str, int], dict[str, int]]:
    """(kind -> occurrences, kind -> different ones) in a text. Pieces that overlap count as one occurrence."""
    occurrences, different = Counter(), defaultdict(set)
    line = " ".join(text.split())
    ends, beginnings = -1, needles.beginnings
    for i in range(len(line) - _BEGINNING + 1):
        if line[i : i + _BEGINNING] not in beginnings:
            continue
        for length, pieces in needles.windows.items():
            if (piece := line[i : i + length]) in pieces:
                different["raw text"].add(piece)
                occurrences["raw text"] += i > ends
                ends = max(ends, i + length - 1)
    for token in _TOKEN.findall(line):
        bare = token.strip(".:!?。，：！？")
        for kind, ids in needles.ids.items():
            if bare in ids or token in ids:
                occurrences[kind] += 1
                different[kind].add(bare)
    for word in _words_in(line, needles.words):
        occurrences["rare word"] += 1
        different["rare word"].add(word)
    return dict(occurrences), {kind: len(values) for kind, values in different.items()}


def _words_in(line: str, words: frozenset[str]) -> Iterator[str]:
    """The words of a line as whole tokens.

    Chinese words are found anywhere in a token, as nothing separates them.
    """
    for token in re.findall(r"\w+", line):
        if token in words:
            yield token
        elif _CHINESE.search(token):
            for length in range(2, min(len(token), 9)):
                for i in range(len(token) - length + 1):
                    if (piece := token[i : i + length]) in words:
                        yield piece


def texts_in(data: bytes) -> Iterator[str]:
    """The text of a file.

    Zip and gzip files are unpacked, binary files give their printable parts, and JSON's escapes become characters.
    """
    if data[:2] == b"\x1f\x8b":
        try:
            yield from texts_in(gzip.decompress(data))
        except (OSError, EOFError, zlib.error):
            pass  # only the first two bytes of a gzip file; what can be read of it follows
        else:
            return
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                yield name
                yield from texts_in(archive.read(name))
        return
    try:
        parts = [data.decode("utf-8")]
    except UnicodeDecodeError:
        parts = [match.group().decode("utf-8", "ignore") for match in _PRINTABLE.finditer(data)]
    for part in parts:
        yield _ESCAPED.sub(_unescaped, part) if "\\u" in part else part


def _unescaped(match: re.Match) -> str:
    try:
        return json.loads(f'"{match.group()}"')
    except ValueError:
        return match.group()


@dataclass(frozen=True)
class Held:
    """What one file holds."""

    file: str
    kind: str
    occurrences: int
    different: int


def search(folder: Path, needles: Needles, *, leave_out: Path | None = None) -> tuple[list[Held], int, list[str]]:
    """(what was found, the number of files searched, files that could not be read), by path."""
    held, unread, number = [], [], 0
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if leave_out is not None and leave_out in path.parents:
            continue
        name = str(path.relative_to(folder))
        try:
            data = path.read_bytes()
        except OSError:
            unread.append(name)
            continue
        number += 1
        occurrences, different = Counter(), Counter()
        try:
            for text in texts_in(data):
                counts, other = count_in(text, needles)
                occurrences.update(counts)
                different.update(other)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):  # damaged, or encrypted
            unread.append(name)
        held += [Held(name, kind, occurrences[kind], different[kind]) for kind in KINDS if occurrences[kind]]
    return held, number, unread


def needles_of(run: FinishedRun) -> tuple[Needles | None, Counter, int]:
    """(what to search for, word -> clients that hold it, the run's limit of clients for a word).

    None where the run read no texts.
    """
    prepared, options = run.experiment.prepared, run.experiment.recipe.task.options
    corpora = prepared.corpora
    if prepared.partition is None or not corpora:
        return None, Counter(), 0
    sample_of = {sample.sample_id: sample for corpus in corpora for sample in corpus.samples}
    limit = getattr(options, "min_clients", None) or 0
    holders: Counter = Counter()
    texts: list[str] = []
    documents: set[str] = set()
    # Words that a reader of the run knows anyway: of labels, clients' names and the recipe.
    names = [*prepared.label_names, *prepared.output_names, *prepared.partition.clients]
    known = "\n".join([*names, run.folder.recipe.read_text("utf-8")])
    for samples in prepared.partition.clients.values():
        train_samples = [sample_of[i] for i in samples.train]
        of_client = [_text(sample) for sample in train_samples]
        texts += of_client
        documents |= {str(sample.document_id) for sample in train_samples}
        holders.update(set(_pieces(prepared.encoding, of_client)))
    rare = {
        w for w, n in holders.items() if n < limit and w not in known and len(w) >= (2 if _CHINESE.search(w) else 5)
    }
    examples = {str(i) for samples in prepared.partition.clients.values() for i in (*samples.train, *samples.test)}
    ids = {
        "id of an example": frozenset(i for i in examples if len(i) >= LEAST_ID),
        "id of a document": frozenset(i for i in documents - examples if len(i) >= LEAST_ID),
        "id of a client": frozenset(i for i in prepared.partition.clients if len(i) >= LEAST_ID),
    }
    stride = -(-sum(map(len, texts)) // MOST_PIECES)
    return Needles(windows_of(texts, max(stride, 1)), frozenset(rare), ids), holders, limit


def _text(sample) -> str:
    return sample.text if hasattr(sample, "text") else sample.document.text


def _pieces(encoding, texts: list[str]) -> Iterator[str]:
    """The words of texts as the run's vocabulary has them.

    Without a vocabulary these are tokens and runs of Chinese characters.
    """
    if hasattr(encoding, "pieces"):
        for pieces in encoding.pieces(texts):
            yield from pieces
    else:
        for text in texts:
            yield from re.findall(r"\w+", text)


def word_lists(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """(file, words) of the vocabularies that exports below a folder give away."""
    for path in sorted(folder.rglob("encoding.json")):
        try:
            words = json.loads(path.read_text("utf-8")).get("vocabulary")
        except (OSError, ValueError, AttributeError):
            continue
        if isinstance(words, list):
            yield str(path.relative_to(folder)), [str(word) for word in words]


def audit_artefacts(run: FinishedRun, folder: Path, out: Path, say: Callable[[str], None]) -> Section:
    """The part of the report.

    Args:
      folder: of the run, or an export of it.
      out: the audit's own folder, which is left out.
    """
    section = Section(_TITLE)
    say("the run's files")
    needles, holders, limit = needles_of(run)
    if needles is None:
        section.not_applicable = "the run read no texts"
        return section
    held, number, unread = search(folder, needles, leave_out=out)
    pieces = sum(map(len, needles.windows.values()))
    section.tried.append(
        f"All {number} files in the folder (logs, checkpoints, exports, TensorBoard, CSV, JSON, models; zip and gzip "
        f"files unpacked) were searched for {pieces:,} pieces of the training texts ({CHINESE_CHARACTERS} Chinese or "
        f"{OTHER_CHARACTERS} other characters in a row), for {len(needles.words):,} words that fewer than {limit} "
        "clients have, and for the ids of examples, documents and clients. This report gives only file, kind and "
        "number of what was found, not the text."
    )
    rows = [[item.file, item.kind, f"{item.occurrences:,}", f"{item.different:,}"] for item in held]
    if rows:
        section.tables.append(("Found in files", ("file", "kind", "occurrences", "different ones"), rows))
    section.files["artefacts.csv"] = [
        ["file", "kind", "occurrences", "different"],
        *([item.file, item.kind, item.occurrences, item.different] for item in held),
    ]
    covers = {
        "raw text": "it must not contain patients' text: remove the file, and find out what wrote it",
        "rare word": "a higher task.min_clients or task.min_count; do not share the file",
        "id of an example": "keep the file at home; ids that say nothing outside",
        "id of a document": "keep the file at home; ids that say nothing outside",
        "id of a client": "keep the file at home; names of clients that say nothing outside",
    }
    totals = {kind: sum(item.occurrences for item in held if item.kind == kind) for kind in KINDS}
    for kind in KINDS:
        section.findings.append(Finding(f"files: {kind}, occurrences", totals[kind], None, None, covers[kind], False))
    section.numbers = {
        "files": number,
        "unread": unread,
        "min_clients": limit,
        "occurrences": totals,
        "found": [vars(item) for item in held],
    }
    if totals["raw text"]:
        places = len({item.file for item in held if item.kind == "raw text"})
        section.results.append(f"RAW TEXT of training examples is in {places} files.")
        section.means.append("Treat these files as patient data.")
    else:
        section.results.append("No raw text of a training example was found.")
    with_ids = sorted({item.file for item in held if item.kind.startswith("id of")})
    if with_ids:
        listed = ", ".join(with_ids[:5]) + (f" and {len(with_ids) - 5} more" if len(with_ids) > 5 else "")
        section.results.append(f"Ids are in {listed}.")
        section.means.append(
            f"{run.folder.partition.name} lists by id which client has which example; anyone who has the corpus can "
            "join the two. "
            "It is needed to resume and to audit the run. Do not share it."
        )
    _lists(section, folder, holders, limit)
    if unread:
        section.not_tried.append(f"{len(unread)} files could not be read: {', '.join(unread[:5])}.")
    section.not_tried += [
        "Text that is encrypted, is not in UTF-8, or is compressed with anything but zip or gzip.",
        f"Ids of fewer than {LEAST_ID} characters, and rare words of one Chinese character or fewer than five "
        "letters: they cannot be distinguished from other text.",
        "Texts that a model generates: these models classify and write none.",
    ]
    return section


def _lists(section: Section, folder: Path, holders: Counter, limit: int) -> None:
    """The word lists of exports: what they give away, and whether they keep to the run's limit."""
    numbers = []
    for file, words in word_lists(folder):
        below, few = (sum(0 < holders[word] < least for word in words) for least in (limit, max(limit, RAREST)))
        numbers.append({"file": file, "words": len(words), "below_limit": below, f"below_{RAREST}_clients": few})
        section.findings.append(
            Finding(
                f"{file}: words of the vocabulary that fewer than {max(limit, RAREST)} clients hold",
                few,
                None,
                None,
                "a higher task.min_clients",
                False,
            )
        )
        section.results.append(
            f"{file} reveals a list of {len(words):,} words of the clients' texts. {below} of them are in the texts "
            f"of fewer than the run's {limit} clients (task.min_clients), {few} of fewer than {max(limit, RAREST)}."
        )
    section.numbers["word_lists"] = numbers
    if not numbers:
        section.results.append("The folder has no export with a word list.")
