"""IMCS-V2: Chinese paediatric consultations (Chen et al., Bioinformatics 2023), and other files in its format.

The file is a JSON object from `example_id` to ``{diagnosis, self_report, dialogue: [{sentence_id, speaker, sentence,
dialogue_act, BIO_label, symptom_norm: […], symptom_type: […], local_implicit_info: {…}}], report, explicit_info,
implicit_info}``. The classes below need `dialogue` with `sentence_id`, `speaker`, `sentence`, `symptom_norm` and
`symptom_type`; the rest may be absent. The test file that is given out (`IMCS-V2_test.json` of CBLUE, `test_input.json`
of imcs21) has sentences without labels, and is refused as such.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from datasets.catalogue import data_set
from datasets.dialogues.records import Dialogue, LabelledText, TextCorpus, Utterance
from datasets.errors import DataError, named
from datasets.files import PathLike, decode, read_bytes, read_json
from datasets.json_values import Fail, field, identifier, optional_string, require

SPEAKERS = ("患者", "医生")

SYMPTOM_TYPES = {"0": "absent", "1": "present", "2": "unclear"}

DIALOGUE_ACTS = (
    "Request-Symptom",
    "Inform-Symptom",
    "Request-Etiology",
    "Inform-Etiology",
    "Request-Basic_Information",
    "Inform-Basic_Information",
    "Request-Existing_Examination_and_Treatment",
    "Inform-Existing_Examination_and_Treatment",
    "Request-Drug_Recommendation",
    "Inform-Drug_Recommendation",
    "Request-Medical_Advice",
    "Inform-Medical_Advice",
    "Request-Precautions",
    "Inform-Precautions",
    "Diagnose",
    "Other",
)

LABELS = ("symptom_presence", "symptom_type", "dialogue_act")

_LABEL_KEYS = ("symptom_norm", "symptom_type", "dialogue_act", "BIO_label")


def read_dialogues(path: PathLike) -> tuple[Dialogue, ...]:
    """Read the dialogues of a file in IMCS-V2's format, compressed or not, in the file's order.

    Raises:
      DataError: the file is missing or not JSON, a key is missing or of the wrong type, a dialogue has no sentences, an
        id is a duplicate, or a speaker, dialogue act or symptom type is not one of the format's.
    """
    content = require(
        read_json(path), dict, "the file", functools.partial(DataError, path=path), remedy="map example_id to dialogue"
    )
    if not content:
        raise DataError("has no dialogues", path=path, remedy="give it at least one dialogue")
    if not any(_labelled(value) for value in content.values()):
        remedy = "use the train or dev file; predict takes its sentences as lines of text"
        raise DataError("has sentences without labels, as the test file that is given out", path=path, remedy=remedy)
    return tuple(_dialogue(key, value, n, path) for n, (key, value) in enumerate(content.items(), 1))


def _labelled(dialogue: Any) -> bool:
    """Return whether a sentence has a key for labels, or the dialogue is malformed, which the reader reports."""
    sentences = dialogue.get("dialogue") if isinstance(dialogue, dict) else None
    if not isinstance(sentences, list) or not sentences or not all(isinstance(item, dict) for item in sentences):
        return True
    return any(key in sentence for sentence in sentences for key in _LABEL_KEYS)


def read_symptom_vocabulary(path: PathLike) -> tuple[str, ...]:
    """Read the normalised symptom names of a `symptom_norm.csv`: the header `norm`, then one name per line.

    A name listed twice counts once.

    Raises:
      DataError: the header is another, or a line is empty or holds a blank or a comma.
    """
    lines = [line.strip() for line in decode(read_bytes(path), path).rstrip().split("\n")]
    if lines[0] != "norm":
        raise DataError('the header is not "norm"', path=path, line=1, remedy='make "norm" the first line')
    for number, word in enumerate(lines[1:], 2):
        if not word or "," in word or len(word.split()) != 1:
            remedy = "write one name a line, without blanks and commas"
            raise DataError("is not one symptom name", path=path, line=number, remedy=remedy)
    return tuple(dict.fromkeys(lines[1:]))


def labelled_sentences(
    dialogues: Sequence[Dialogue], label: str, *, name: str = "imcs_v2", path: PathLike | None = None
) -> TextCorpus:
    """Return one sample for each sentence.

    Its document is the dialogue, and its fields are `diagnosis` (if known) and `speaker`.

    Args:
      dialogues: As read by `read_dialogues`.
      label: One of `LABELS`: `symptom_presence` (0: the sentence states no symptom, 1: it states one), `symptom_type`
        (0 absent, 1 present, 2 unclear; sentences without a symptom or with symptoms of several types are left out, and
        counted in the notes) or `dialogue_act` (the 16 IMCS intents).

    Raises:
      DataError: dialogues without the labels asked for.
    """
    samples, without, mixed = [], 0, 0
    for dialogue in dialogues:
        for utterance in dialogue.utterances:
            types = set(utterance.symptom_type)
            if label == "symptom_presence":
                value = int(bool(types))
            elif label == "dialogue_act":
                value = _act(dialogue, utterance, path)
            elif len(types) == 1:
                value = int(next(iter(types)))
            else:
                without, mixed = without + (not types), mixed + bool(types)
                continue
            fields = {"speaker": utterance.speaker}
            if dialogue.diagnosis is not None:
                fields["diagnosis"] = dialogue.diagnosis
            sample_id = f"{dialogue.example_id}/{utterance.sentence_id}"
            samples.append(LabelledText(sample_id, dialogue.example_id, utterance.text, value, fields))
    if not samples:
        raise DataError(f"has no sentences with the label {label}", path=path, remedy="choose another label")
    notes = []
    if without or mixed:
        notes.append(f"{without} sentences without a symptom left out")
        notes.append(f"{mixed} sentences with symptoms of several types left out")
    if empty := sum(not sample.text.strip() for sample in samples):
        notes.append(f"{empty} sentences hold no text")
    label_names = {
        "symptom_presence": ("no_symptom", "symptom"),
        "symptom_type": tuple(SYMPTOM_TYPES.values()),
        "dialogue_act": DIALOGUE_ACTS,
    }[label]
    return TextCorpus(name, tuple(samples), label_names, tuple(notes))


def _act(dialogue: Dialogue, utterance: Utterance, path: PathLike | None) -> int:
    if utterance.dialogue_act is not None:
        return DIALOGUE_ACTS.index(utterance.dialogue_act)
    raise DataError(
        "has no dialogue act",
        path=path,
        record=named("sentence", f"{dialogue.example_id}/{utterance.sentence_id}"),
        remedy="choose the label symptom_presence or symptom_type, or a file with dialogue acts",
    )


def _dialogue(example_id: str, value: Any, position: int, path: PathLike) -> Dialogue:
    record = named("dialogue", example_id, position)
    fail = functools.partial(DataError, path=path, record=record)
    if not example_id:
        raise fail("its id is empty", remedy="give it an id")
    require(value, dict, "it", fail)
    sentences = field(value, "dialogue", list, fail)
    if not sentences:
        raise fail("has no sentences", remedy="remove it or give it at least one sentence")
    utterances, seen = [], set()
    for number, sentence in enumerate(sentences, 1):
        utterance = _utterance(sentence, functools.partial(fail, record=f"{record}, sentence number {number}"))
        if utterance.sentence_id in seen:
            reason = f"sentence number {number} repeats the id of another"
            raise fail(reason, remedy="give every sentence an id of its own")
        seen.add(utterance.sentence_id)
        utterances.append(utterance)
    return Dialogue(
        example_id,
        optional_string(value, "diagnosis", fail),
        optional_string(value, "self_report", fail),
        tuple(utterances),
    )


def _utterance(sentence: Any, fail: Fail) -> Utterance:
    require(sentence, dict, "it", fail)
    sentence_id = identifier(sentence, "sentence_id", fail)
    speaker = field(sentence, "speaker", str, fail)
    if speaker not in SPEAKERS:
        raise fail("unknown speaker", remedy=f"use {' or '.join(SPEAKERS)}")
    act = optional_string(sentence, "dialogue_act", fail)
    if act is not None and act not in DIALOGUE_ACTS:
        raise fail("its dialogue act is not one of the 16 IMCS intents", remedy="use the names of the release")
    norms = field(sentence, "symptom_norm", list, fail)
    types = field(sentence, "symptom_type", list, fail)
    if len(norms) != len(types):
        reason = f"has {len(norms)} symptom names but {len(types)} symptom types"
        raise fail(reason, remedy="give every symptom one type")
    for norm in norms:
        require(norm, str, "a symptom name", fail)
    text, tags = field(sentence, "sentence", str, fail), optional_string(sentence, "BIO_label", fail)
    return Utterance(sentence_id, speaker, text, act, tuple(norms), tuple(_symptom_type(t, fail) for t in types), tags)


def _symptom_type(value: Any, fail: Fail) -> str:
    if isinstance(value, str | int) and not isinstance(value, bool) and str(value) in SYMPTOM_TYPES:
        return str(value)
    raise fail("unknown symptom type", remedy="use 0 (absent), 1 (present) or 2 (unclear)")


@data_set(
    "imcs_v2",
    title="IMCS-V2",
    kind="texts",
    language="Chinese",
    task="sentences of paediatric consultations: symptoms or dialogue acts",
    labels=LABELS,
    files={split: f"imcs_v2/IMCS-V2_{split}.json" for split in ("train", "dev", "test")},
    vocabulary="imcs_v2/symptom_norm.csv",
    restricted=True,
    licence="for research, by application; no redistribution",
    citation="Chen et al., A benchmark for automatic medical consultation system, Bioinformatics 39(1), 2023",
    available_from="CBLUE benchmark of Tianchi, after registration; described at lemuria-wchen/imcs21-cblue on GitHub",
)
@data_set(
    "shipped",
    title="Consultations written for this project",
    kind="texts",
    language="Chinese",
    task="sentences of made-up paediatric consultations: symptoms or dialogue acts",
    labels=LABELS,
    files={split: f"consultations_{split}.json" for split in ("train", "dev")},
    vocabulary="symptom_norm.csv",
    shipped=True,
    licence="Apache-2.0",
    citation="none: written for this project, no real patients",
    available_from="comes with this package",
)
def read(path: PathLike, *, name: str, label: str, split: str) -> TextCorpus:
    """Read the sentences of a file (see `labelled_sentences`).

    One file holds one split.
    """
    return labelled_sentences(read_dialogues(path), label, name=name, path=path)
