"""ChemProt in sentence format, one marked pair per line (Krallinger et al., BioCreative VI, 2017).

JSON lines ``{"text": "… << first >> … [[ second ]] …", "label": NAME, "metadata": …}``, made by AllenAI for SciBERT
(Beltagy et al., EMNLP 2019) from the task's release. The marks stand by order in the sentence, not by role: which of
the two is the chemical is not told, so both have the type ``chemical or gene``.
"""

from __future__ import annotations

import functools

from datasets.catalogue import data_set
from datasets.errors import DataError
from datasets.files import PathLike, read_json_lines
from datasets.json_values import Fail, field, require
from datasets.relations.reading import CorpusBuilder, one_of, trimmed, without_marks
from datasets.relations.records import RelationCorpus, Span

GROUPS = {
    "CPR:3": ("UPREGULATOR", "ACTIVATOR", "INDIRECT-UPREGULATOR"),
    "CPR:4": ("DOWNREGULATOR", "INHIBITOR", "INDIRECT-DOWNREGULATOR"),
    "CPR:5": ("AGONIST", "AGONIST-ACTIVATOR", "AGONIST-INHIBITOR"),
    "CPR:6": ("ANTAGONIST",),
    "CPR:9": ("SUBSTRATE", "PRODUCT-OF", "SUBSTRATE_PRODUCT-OF"),
}
"""The five classes that the task evaluates, and FedCMC classifies, with the relations of each."""

GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}

CLASSES = ("groups", "names")

CITATION = "Krallinger et al., Overview of the BioCreative VI chemical-protein interaction Track, 2017"

MENTION_TYPE = "chemical or gene"

_MARKS = (("<< ", " >>"), ("[[ ", " ]]"))


def class_names(classes: str) -> tuple[str, ...]:
    """Return the five groups for ``groups``, or the 13 relations for ``names``."""
    return tuple(GROUPS if classes == "groups" else GROUP_OF)


@data_set(
    "chemprot",
    title="ChemProt, sentences",
    kind="relations",
    task="chemicals and proteins in a sentence: five groups of relations (CPR:3, 4, 5, 6, 9), or 13 names",
    labels=CLASSES,
    files={split: f"chemprot/{split}.jsonl" for split in ("train", "dev", "test")},
    licence="none stated for the data",
    citation=CITATION,
    available_from="allenai/scibert on GitHub, data/text_classification/chemprot (.txt there: JSON lines)",
)
def read(path: PathLike, *, name: str = "chemprot", label: str = "groups", split: str = "train") -> RelationCorpus:
    """Read the pairs of a file in sentence format, compressed or not.

    The head is ``<< >>``, and the tail ``[[ ]]``.

    The form has no document ids. Lines of one sentence (without the marks) share the document
    ``<name>-<split>-<number>``, sentences counted from 1. Every pair has a relation: there is no negative. A sentence
    may itself hold ``[[`` or ``>>`` (formulas; "a >> b"): a mark is the bracket with its blank, it opens once in the
    line, and closes where it first can. Marks may lie one in the other or cross (no published line has such): the
    mentions then overlap, and are counted. Duplicate lines, and pairs with several relations, are kept, as the
    published counts are, and noted. The label choice is one of the five CPR classes of the task (``groups``) or of the
    13 relations (``names``).

    Raises:
      DataError: a line is not an object with strings `text` and `label`, marks are missing, repeated or never closed,
        a mention is empty or has blanks at its ends, or the label is unknown.
    """
    builder = CorpusBuilder(path, name, class_names(label))
    sentences: dict[str, str] = {}
    relations: dict[tuple[str, Span, Span], set[str]] = {}
    for line, value in read_json_lines(path):
        fail = functools.partial(DataError, path=path, line=line)
        require(value, dict, "it", fail)
        text, head, tail = _unmarked(field(value, "text", str, fail), fail)
        relation = one_of(field(value, "label", str, fail), GROUP_OF, '"label"', fail)
        before = relations.setdefault((text, head, tail), set())
        builder.counts["duplicate lines are kept"] += relation in before
        before.add(relation)
        relation = GROUP_OF[relation] if label == "groups" else relation
        document = sentences.setdefault(text, f"{name}-{split}-{len(sentences) + 1:05d}")
        builder.add(builder.next_id(document), document, text, head, tail, MENTION_TYPE, MENTION_TYPE, relation)
    builder.counts["pairs have several relations"] = sum(len(several) > 1 for several in relations.values())
    return builder.build(
        "the marks follow the order in the sentence; the file does not say which mention is the chemical"
    )


def _unmarked(text: str, fail: Fail) -> tuple[str, Span, Span]:
    marks = []
    for opening, closing in _MARKS:
        sign = f"{opening.strip()} {closing.strip()}"
        if text.count(opening) != 1:
            raise fail(f"the mark {sign} opens {text.count(opening)} times", remedy="mark each mention once")
        start = text.index(opening)
        end = text.find(closing, start + len(opening))
        if end < 0:
            raise fail(f"the mark {sign} is never closed", remedy="mark each mention once")
        marks += [(start, start + len(opening)), (end, end + len(closing))]
    plain, places = without_marks(text, marks)
    head, tail = (places[0], places[1]), (places[2], places[3])
    for start, end in (head, tail):
        if start == end or trimmed(plain, (start, end)) != (start, end):
            raise fail("a marked mention is empty or has blanks at its ends", remedy="mark only the mention")
    return plain, head, tail
