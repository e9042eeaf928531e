"""MIE: Chinese cardiology consultations (Zhang et al., ACL 2020), in the release's windows of five utterances.

The file is a JSON list of dialogues, each a list of windows ``{"utterances": [five strings], "label":
["类:项-状态:值", …]}``. Window i ends at sentence i of the dialogue; what lies before the dialogue is the empty string.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field as data_field

from datasets.catalogue import data_set
from datasets.dialogues import imcs_v2
from datasets.dialogues.records import LabelledText, TextCorpus
from datasets.errors import DataError
from datasets.files import PathLike, read_json
from datasets.json_values import field, require

WINDOW = 5

CATEGORIES = {
    "symptom_mentioned": "症状",
    "test_mentioned": "检查",
    "surgery_mentioned": "手术",
    "general_information_mentioned": "一般信息",
}

LABELS = tuple(CATEGORIES)

STATES = ("阳性", "阴性", "医生阳性", "医生阴性", "未知")

_LABEL = re.compile(rf"({'|'.join(CATEGORIES.values())}):([^:\s]+)-状态:({'|'.join(STATES)})")


@dataclass(frozen=True)
class Window:
    """Five utterances ``speaker:sentence`` of a dialogue (empty before it starts) and their labels.

    The ids are ``mie-<split>-<dialogue>/<window>`` and ``mie-<split>-<dialogue>``; dialogues count from 000, windows
    from 1. `facts` are triples (category, item, state), e.g. (症状, 头晕, 阳性).
    """

    window_id: str
    dialogue_id: str
    utterances: tuple[str, ...] = data_field(repr=False)
    facts: tuple[tuple[str, str, str], ...] = data_field(repr=False)


def read_windows(path: PathLike, *, split: str = "dev") -> tuple[Window, ...]:
    """Read the windows of a file of the MIE release, compressed or not, in the file's order.

    Raises:
      DataError: the file is missing or not JSON, a type is wrong, a dialogue or window is empty, or a label is not of
        the form ``类:项-状态:值`` with one of the release's four categories and five states.
    """
    dialogues = require(read_json(path), list, "the file", functools.partial(DataError, path=path))
    if not dialogues:
        raise DataError("has no dialogues", path=path, remedy="give it at least one dialogue")
    result = []
    for d, windows in enumerate(dialogues):
        dialogue_id = f"mie-{split}-{d:03d}"
        fail = functools.partial(DataError, path=path, record=f"dialogue {dialogue_id}")
        if not require(windows, list, "it", fail):
            raise fail("has no windows", remedy="remove it or give it at least one window")
        for w, window in enumerate(windows, 1):
            result.append(_window(window, f"{dialogue_id}/{w}", dialogue_id, path))
    return tuple(result)


def labelled_windows(windows: Sequence[Window], label: str = "symptom_mentioned", *, name="mie_windows") -> TextCorpus:
    """Return one sample for each window, its non-empty utterances joined by line feeds.

    Its document is the dialogue.

    `label` is one of `CATEGORIES`: 1 if the window has a fact of that category.
    """
    samples = tuple(
        LabelledText(
            window.window_id,
            window.dialogue_id,
            "\n".join(utterance for utterance in window.utterances if utterance),
            int(any(category == CATEGORIES[label] for category, _, _ in window.facts)),
        )
        for window in windows
    )
    notes = ("neighbouring windows share four of five utterances: hold out whole documents",)
    return TextCorpus(name, samples, ("not_mentioned", "mentioned"), notes)


def _window(window, window_id: str, dialogue_id: str, path: PathLike) -> Window:
    fail = functools.partial(DataError, path=path, record=f"window {window_id}")
    require(window, dict, "it", fail)
    utterances = field(window, "utterances", list, fail)
    if len(utterances) != WINDOW:
        raise fail(f"has {len(utterances)} utterances", remedy=f"a window has {WINDOW}")
    for utterance in utterances:
        require(utterance, str, "an utterance", fail)
    if not any(utterance.strip() for utterance in utterances):
        raise fail("all its utterances are empty", remedy="remove it or give it an utterance")
    facts = []
    for number, label in enumerate(field(window, "label", list, fail), 1):
        match = _LABEL.fullmatch(require(label, str, f"label number {number}", fail))
        if match is None:
            raise fail(
                f"label number {number} is not of the form 类:项-状态:值",
                remedy=f"use the categories {'、'.join(CATEGORIES.values())} and the states {'、'.join(STATES)}",
            )
        facts.append(match.groups())
    return Window(window_id, dialogue_id, tuple(utterances), tuple(facts))


_ENTRY = {
    "kind": "texts",
    "language": "Chinese",
    "vocabulary": "mie/symptom_norm.csv",
    "licence": "none stated",
    "citation": "Zhang et al., MIE: A Medical Information Extractor towards Medical Dialogues, ACL 2020",
}
_SOURCE = "released by the authors: nlpir2020/MIE-ACL-2020 on GitHub"


@data_set(
    "mie_windows",
    title="MIE, windows of five utterances",
    task="windows of cardiology consultations: is a category of facts mentioned",
    labels=LABELS,
    files={split: f"mie/{split}.windows.json" for split in ("train", "dev", "test")},
    available_from=_SOURCE,
    **_ENTRY,
)
def read(path: PathLike, *, name: str, label: str, split: str) -> TextCorpus:
    """Read the windows of a file (see `labelled_windows`)."""
    return labelled_windows(read_windows(path, split=split), label, name=name)


@data_set(
    "mie",
    title="MIE in IMCS-V2's shape",
    task="sentences of cardiology consultations: symptoms",
    labels=imcs_v2.LABELS[:2],
    files={split: f"mie/{split}.imcs_v2.json" for split in ("train", "dev", "test")},
    available_from=f"{_SOURCE}; a sentence carries the symptoms that its window adds",
    **_ENTRY,
)
def read_sentences(path: PathLike, *, name: str, label: str, split: str) -> TextCorpus:
    """Read the sentences of a file in IMCS-V2's format (see `imcs_v2.labelled_sentences`)."""
    return imcs_v2.read(path, name=name, label=label, split=split)
