"""ChemProt, the task's own release (Krallinger et al., BioCreative VI, 2017): documents, entities, relations.

Three TSV files, none with a header: ``*_abstracts.tsv`` (PMID, title, abstract); ``*_entities.tsv`` (PMID, ``T1``,
type, start, end, text; types CHEMICAL and GENE-Y, GENE-N, or GENE in the test set; offsets are characters of title,
one separating character, abstract); ``*_relations.tsv`` (PMID, group, ``Y`` or ``N`` for evaluated or not, relation,
``Arg1:T1``, ``Arg2:T2``) or ``*_gold_standard.tsv`` (PMID, group, ``Arg1:T1``, ``Arg2:T2``).
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from datasets.catalogue import data_set
from datasets.errors import DataError, named
from datasets.files import PathLike, sibling_file
from datasets.json_values import Fail
from datasets.relations.chemprot import CITATION, CLASSES, GROUP_OF, GROUPS, class_names
from datasets.relations.reading import CorpusBuilder, columns, lines_to_check, one_of, span
from datasets.relations.records import NO_RELATION, RelationCorpus, Span
from datasets.relations.sentences import sentences_of_document

ENTITY_TYPES = {"CHEMICAL": "chemical", "GENE-Y": "gene", "GENE-N": "gene", "GENE": "gene"}

ALL_GROUPS = tuple(f"CPR:{number}" for number in range(11))

_RELEASE = re.compile(r"(.+)_(relations|gold_standard|entities|abstracts)(_gs)?\.tsv(\.gz)?")
_ENTITY_ID = re.compile(r"T[0-9]{1,9}")
_ARGUMENTS = (re.compile(r"Arg1:(\S+)"), re.compile(r"Arg2:(\S+)"))

_PARTS = {"train": "training_relations", "dev": "development_relations", "test": "test_relations_gs"}
_WITH_NEGATIVES = "_with_negatives"


@dataclass(frozen=True)
class ReleaseDocument:
    """A title and an abstract with the type (``chemical`` or ``gene``) and span of each mention, by id.

    The text is the title, a tab, and the abstract.
    """

    document_id: str
    text: str
    title_length: int
    mentions: dict[str, tuple[str, Span]] = field(default_factory=dict)


@data_set(
    "chemprot_release",
    title="ChemProt, the task's own files",
    kind="relations",
    task="chemicals and proteins in a sentence of an abstract: as chemprot; with negatives the unrelated pairs too",
    labels=(*CLASSES, *(f"{classes}{_WITH_NEGATIVES}" for classes in CLASSES)),
    files={split: f"chemprot_release/chemprot_{part}.tsv" for split, part in _PARTS.items()},
    restricted=True,
    licence="for the task's participants, after registration",
    citation=CITATION,
    available_from="BioCreative VI, track 5; *_abstracts and *_entities (test: *_gs) belong next to each file "
    "of relations",
)
def read(path: PathLike, *, name: str = "chemprot", label: str = "groups", split: str = "train") -> RelationCorpus:
    """Read the chemical–gene pairs of a file of relations, each in its sentence.

    The split's two other files are next to it.

    Head is the chemical, tail the gene. Sentences are found by `sentences_of_document`; a pair whose mentions lie in
    two sentences is left out and noted, and so is a relation of a group that the task does not evaluate. A pair with
    several relations is a sample for each. Mentions that overlap (a chemical within a gene's name, or the two crossing)
    are pairs as any others, and counted; a duplicate relation is read once, and counted. The ids are
    ``<name>-<split>-<PMID>/<n>``, the documents the PMIDs. The label choices are those of `chemprot`; behind them
    ``_with_negatives`` makes the chemical–gene pairs of a sentence without an evaluated relation samples of
    ``no_relation`` (as in BLUE; FedCMC's data have none).

    Raises:
      DataError: a malformed line, an unknown document, entity, type, group or relation, a mention that is not at its
        offsets, a duplicate document or entity, or a file whose last line has no end.
    """
    classes, negatives = label.removesuffix(_WITH_NEGATIVES), label.endswith(_WITH_NEGATIVES)
    builder = CorpusBuilder(path, name, ((NO_RELATION,) if negatives else ()) + class_names(classes))
    documents = read_documents(release_file(path, "abstracts"), release_file(path, "entities"))
    listed = read_relations(path, documents, classes, builder.counts)
    for document in documents.values():
        pairs: dict[tuple[str, str], list[str]] = {}
        for pair, relation in listed.get(document.document_id, ()):
            builder.counts["relations of groups that are not evaluated left out"] += relation is None
            if relation is not None:
                pairs.setdefault(pair, []).append(relation)
        together = _in_one_sentence(document)
        builder.counts["related pairs in two sentences left out"] += sum(
            len(relations) for pair, relations in pairs.items() if pair not in together
        )
        builder.counts["pairs have several relations"] += sum(len(pairs[p]) > 1 for p in pairs if p in together)
        for pair, (start, end) in together.items():
            types, spans = zip(*(document.mentions[mention] for mention in pair), strict=True)
            spans = [(first - start, last - start) for first, last in spans]
            for relation in pairs.get(pair, [NO_RELATION] if negatives else []):
                mention_id = builder.next_id(f"{name}-{split}-{document.document_id}")
                builder.add(mention_id, document.document_id, document.text[start:end], *spans, *types, relation)
    return builder.build()


def release_file(path: PathLike, *kinds: str) -> Path:
    """Return the release's file of a kind: `path`, if it is one, or one next to it, with or without ``.gz``.

    Raises:
      DataError: a file that is not named as the release names it.
    """
    match = _RELEASE.fullmatch(Path(path).name)
    if match is None:
        raise DataError(
            "is not named as the release names it",
            path=path,
            remedy="use *_relations.tsv, *_relations_gs.tsv or *_gold_standard.tsv (of entities, *_entities.tsv), with "
            "*_abstracts.tsv and *_entities.tsv (or *_gs.tsv) beside it",
        )
    if match[2] in kinds:
        return Path(path)
    # The test split's tables end in _gs, its gold standard does not.
    marks = ("_gs", "") if match[3] else ("", "_gs")
    return sibling_file(path, *(f"{match[1]}_{kind}{mark}.tsv" for kind in kinds for mark in marks))


def read_documents(abstracts: PathLike, entities: PathLike | None) -> dict[str, ReleaseDocument]:
    """Return the documents of the release by PMID, in the file's order, with the mentions of `entities`, if given."""
    documents: dict[str, ReleaseDocument] = {}
    for fail, line in lines_to_check(abstracts, ended=True):
        document_id, title, abstract = columns(line, 3, fail)
        if not document_id.isdecimal():
            raise fail("has no PMID", remedy="start the line with the document's number")
        if document_id in documents:
            raise fail("duplicate document", record=named("document", document_id), remedy="remove one of them")
        documents[document_id] = ReleaseDocument(document_id, f"{title}\t{abstract}", len(title))
    for fail, line in () if entities is None else lines_to_check(entities, ended=True):
        row = columns(line, 6, fail)
        document = _document(row[0], documents, fail)
        if not _ENTITY_ID.fullmatch(row[1]):
            raise fail("column 2 is not an entity's id", remedy="write T and a number")
        fail = functools.partial(fail, record=named("entity", f"{row[0]}/{row[1]}"))
        kind = ENTITY_TYPES[one_of(row[2], ENTITY_TYPES, "type", fail, column=3)]
        where = span(row[3], row[4], "entity", len(document.text), fail)
        if document.text[slice(*where)] != row[5]:
            raise fail("the entity is not at its offsets", remedy="repair the offsets")
        if row[1] in document.mentions:
            raise fail("duplicate entity", remedy="give every entity of a document an id of its own")
        document.mentions[row[1]] = (kind, where)
    return documents


def _document(document_id: str, documents: dict[str, ReleaseDocument], fail: Fail) -> ReleaseDocument:
    if document_id not in documents:
        raise fail("its document is not among the abstracts", remedy="give the three files of one split")
    return documents[document_id]


def read_relations(
    path: PathLike, documents: dict[str, ReleaseDocument], classes: str, counts: Counter
) -> dict[str, list[tuple[tuple[str, str], str | None]]]:
    """Return the pairs (chemical, gene) of each document with their class, None for a group that is not evaluated.

    Args:
      path: The file of relations, or the gold standard.
      documents: Those of `read_documents`, with their mentions.
      classes: ``groups`` or ``names``.
      counts: Gets the number of duplicate relations.

    Raises:
      DataError: a malformed line, or an unknown document, entity, group or relation.
    """
    result: dict[str, list] = {}
    seen = set()
    for fail, line in lines_to_check(path, ended=True):
        row = columns(line, (4, 6), fail)
        document = _document(row[0], documents, fail)
        group = one_of(row[1], ALL_GROUPS, "group", fail, column=2)
        relation = group if group in GROUPS else None
        if len(row) == 6:
            one_of(row[2].strip(), ("Y", "N"), "evaluation mark", fail, column=3)
            if group in GROUPS:
                relation = one_of(row[3].strip(), GROUPS[group], f"relation of {group}", fail, column=4)
        elif classes == "names":
            raise fail(
                "has the group and no relation", remedy='use the classes "groups" with a gold standard of four columns'
            )
        pair = tuple(
            _argument(value, pattern, number, kind, document, fail)
            for number, (value, pattern, kind) in enumerate(
                zip(row[-2:], _ARGUMENTS, ("chemical", "gene"), strict=True), 1
            )
        )
        key = (row[0], group, row[3].strip() if len(row) == 6 else None, pair)
        if key in seen:
            counts["duplicate relations are read once"] += 1
            continue
        seen.add(key)
        if relation is not None and classes == "groups":
            relation = GROUP_OF.get(relation, relation)
        result.setdefault(row[0], []).append((pair, relation))
    return result


def _argument(value: str, pattern: re.Pattern, number: int, kind: str, document: ReleaseDocument, fail: Fail) -> str:
    match = pattern.fullmatch(value.strip())
    if match is None or match[1] not in document.mentions:
        raise fail(f"argument {number} is not in its document", remedy=f"write Arg{number}: and the entity's id")
    if document.mentions[match[1]][0] != kind:
        raise fail(f"argument {number} is not a {kind}", remedy="give the chemical first, then the gene")
    return match[1]


def _in_one_sentence(document: ReleaseDocument) -> dict[tuple[str, str], Span]:
    """Return the chemical–gene pairs that share a sentence, and the sentence."""
    spans = [where for _, where in document.mentions.values()]
    result = {}
    for start, end in sentences_of_document(document.text, document.title_length, spans):
        inside = {i: kind for i, (kind, (a, b)) in document.mentions.items() if start <= a and b <= end}
        for chemical in (i for i, kind in inside.items() if kind == "chemical"):
            for gene in (i for i, kind in inside.items() if kind == "gene"):
                result[chemical, gene] = (start, end)
    return result
