"""SemEval-2010 Task 8: relations of pairs of nominals, general English (Hendrickx et al., SemEval 2010).

The task's own text, blocks of four lines: ``number TAB "sentence with <e1> </e1> <e2> </e2>"``, the label, a comment
``Comment: …``, an empty line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from datasets.catalogue import data_set
from datasets.errors import DataError
from datasets.files import PathLike
from datasets.json_values import Fail
from datasets.relations.reading import CorpusBuilder, lines_to_check, one_of, trimmed, without_marks
from datasets.relations.records import UNKNOWN_TYPE, RelationCorpus, Span

NEGATIVE = "Other"

RELATIONS = (
    "Cause-Effect",
    "Instrument-Agency",
    "Product-Producer",
    "Content-Container",
    "Entity-Origin",
    "Entity-Destination",
    "Component-Whole",
    "Member-Collection",
    "Message-Topic",
)

DIRECTED = (NEGATIVE, *(f"{name}({order})" for name in RELATIONS for order in ("e1,e2", "e2,e1")))

_KEY = re.compile(rf"[0-9]{{1,9}}\t({'|'.join((NEGATIVE, *RELATIONS))})(\(e[12],e[12]\))?[ \t]*")
_SENTENCE = re.compile(r'([0-9]{1,9})\t"(.*)"[ \t]*')


@data_set(
    "semeval2010_task8",
    title="SemEval-2010 Task 8",
    kind="relations",
    task="nominals in a general sentence: nine relations, directed or not, or Other",
    labels=("directed", "undirected"),
    files={split: f"semeval2010_task8/{split}.txt" for split in ("train", "test")},
    licence="Creative Commons Attribution 3.0",
    citation="Hendrickx et al., SemEval-2010 Task 8, 2010",
    available_from="the task's TRAIN_FILE.TXT and TEST_FILE_FULL.TXT",
)
def read(
    path: PathLike, *, name: str = "semeval2010_task8", label: str = "directed", split: str = "train"
) -> RelationCorpus:
    """Read the sentences of a file with labels, compressed or not.

    The head is e1, the tail e2, and the negative ``Other``.

    These are the task's ``TRAIN_FILE.TXT`` and ``TEST_FILE_FULL.TXT``. The task has neither documents nor types: a
    sentence, ``<name>-<split>-<number>``, is its own document, a mention's type is ``entity``. The label choice
    ``directed`` has 19 classes, each relation in both directions; ``undirected`` 10, and head and tail stay e1 and e2.

    Raises:
      DataError: a block that is not of the form, a duplicate number, marks that are missing, repeated or never
        closed, an empty mention, an unknown label, or a file with sentences alone or labels alone.
    """
    builder = CorpusBuilder(path, name, DIRECTED if label == "directed" else (NEGATIVE, *RELATIONS), NEGATIVE)
    seen: dict[str, int] = {}
    lines = list(lines_to_check(path))
    while lines and not lines[-1][1]:
        lines.pop()
    _require_both([line for _, line in lines[:2]], path)
    for first in range(0, len(lines), 4):
        at, block = zip(*lines[first : first + 4], strict=True)
        match = _SENTENCE.fullmatch(block[0])
        if match is None:
            raise at[0]('is not number, tab, "sentence"', remedy="a block is sentence, label, comment, empty line")
        if len(block) < 3:
            raise at[-1]("the last block is cut off", remedy="a block is sentence, label, comment, empty line")
        number = match[1]
        if number in seen:
            raise at[0](f"duplicate number {number}, also in line {seen[number]}", remedy="number them anew")
        seen[number] = first + 1
        text, head, tail = _unmarked(match[2], at[0])
        relation = one_of(block[1], DIRECTED, "label", at[1])
        if not block[2].startswith("Comment:"):
            raise at[2]("is not a comment", remedy='write "Comment:"')
        if len(block) == 4 and block[3]:
            raise at[3]("is not empty", remedy="separate the blocks by an empty line")
        relation = relation if label == "directed" else relation.partition("(")[0]
        builder.add(*(f"{name}-{split}-{number}",) * 2, text, head, tail, UNKNOWN_TYPE, UNKNOWN_TYPE, relation)
    return builder.build()


def _require_both(first: Sequence[str], path: PathLike) -> None:
    """Refuse the task's files with only sentences or only labels, which their first two lines show."""
    for pattern, problem in (
        (_SENTENCE, "has sentences and no labels, as the task's TEST_FILE.txt"),
        (_KEY, "has labels and no sentences, as the task's TEST_FILE_KEY.TXT"),
    ):
        if len(first) == 2 and all(map(pattern.fullmatch, first)):
            raise DataError(problem, path=path, remedy="give TEST_FILE_FULL.TXT, which has both")


def _unmarked(text: str, fail: Fail) -> tuple[str, Span, Span]:
    marks = []
    for mark in ("<e1>", "</e1>", "<e2>", "</e2>"):
        if text.count(mark) != 1:
            raise fail(f"the mark {mark} occurs {text.count(mark)} times", remedy="mark each mention once")
        start = text.index(mark)
        marks.append((start, start + len(mark)))
    plain, (head_start, head_end, tail_start, tail_end) = without_marks(text, marks)
    head, tail = trimmed(plain, (head_start, head_end)), trimmed(plain, (tail_start, tail_end))
    for (start, end), what in ((head, "e1"), (tail, "e2")):
        if start >= end:
            raise fail(f"the mention {what} is empty or ends before it starts", remedy="mark each mention once")
    return plain, head, tail
