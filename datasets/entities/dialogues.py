"""Entities of IMCS-V2's sentences, from the tag of each character in `BIO_label`.

`datasets.dialogues.imcs_v2` reads the dialogues. The sentences of the training split are also read without their
dialogues, from JSON lines ``{"sentence": …, "BIO_label": …}``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from datasets.catalogue import data_set
from datasets.dialogues.imcs_v2 import read_dialogues
from datasets.entities.records import EntityCorpus, EntitySample, EntitySpan, label_of
from datasets.entities.tags import spans_of, tag_names
from datasets.errors import DataError, named, nearest
from datasets.files import PathLike, read_json_lines
from datasets.json_values import Fail, field, require

ENTITY_TYPES = ("Symptom", "Medical_Examination", "Drug", "Drug_Category", "Operation")

_TAG = {name: tag for tag, name in enumerate(tag_names(ENTITY_TYPES))}


def labelled_spans(text: str, bio_label: str | None, fail: Fail) -> tuple[EntitySpan, ...]:
    """Return the entities of a sentence with a tag for each character.

    Raises:
      DataError: there are no tags, another number of them than of characters, or one that is none of BIO's for
        `ENTITY_TYPES`; `fail` makes it.
    """
    if bio_label is None and text:
        raise fail('has no "BIO_label"', remedy="use a file with the tags of named entities")
    names = (bio_label or "").split()
    if len(names) != len(text):
        reason = f'"BIO_label" has {len(names)} tags, the sentence {len(text)} characters'
        raise fail(reason, remedy="give every character of the sentence a tag")
    for number, name in enumerate(names, 1):
        if name not in _TAG:
            types = ", ".join(ENTITY_TYPES)
            raise fail(f'tag number {number} of "BIO_label" is unknown', remedy=f"use O, B- or I- and one of {types}")
    cells = [(index, index + 1) for index in range(len(text))]
    return spans_of([_TAG[name] for name in names], cells, ENTITY_TYPES)


_ENTRY = {
    "kind": "entities",
    "language": "Chinese",
    "task": "sentences of paediatric consultations: symptoms, examinations, drugs, drug categories, operations",
    "labels": ("types",),
}
_IMCS = {
    "restricted": True,
    "licence": "for research, by application; no redistribution",
    "citation": "Chen et al., A benchmark for automatic medical consultation system, Bioinformatics 39(1), 2023",
    "available_from": "CBLUE benchmark of Tianchi, after registration; see lemuria-wchen/imcs21-cblue on GitHub",
}


@data_set(
    "imcs_v2_entities",
    title="IMCS-V2, entities",
    files={split: f"imcs_v2/IMCS-V2_{split}.json" for split in ("train", "dev", "test")},
    **_ENTRY,
    **_IMCS,
)
@data_set(
    "shipped_entities",
    title="Consultations written for this project, entities",
    files={split: f"consultations_{split}.json" for split in ("train", "dev")},
    shipped=True,
    licence="Apache-2.0",
    citation="none: written for this project, no real patients",
    available_from="comes with this package",
    **_ENTRY,
)
def read(path: PathLike, *, name: str, split: str, entity_types: Sequence[str] | None = None) -> EntityCorpus:
    """Read one sample for each sentence.

    Its document is the dialogue.

    Its fields are `speaker`, and where the file has them `diagnosis` and `dialogue_act`.

    Args:
      path, name, split: Of the file; one file holds one split.
      entity_types: Keeps these types only, in this order.

    Raises:
      DataError: what `read_dialogues` and `labelled_spans` refuse, or an unknown type.
    """
    types = _chosen(entity_types)
    samples = []
    for dialogue in read_dialogues(path):
        for utterance in dialogue.utterances:
            sample_id = f"{dialogue.example_id}/{utterance.sentence_id}"
            fail = functools.partial(DataError, path=path, record=named("sentence", sample_id))
            spans = labelled_spans(utterance.text, utterance.bio_label, fail)
            more = {
                "speaker": utterance.speaker,
                "diagnosis": dialogue.diagnosis,
                "dialogue_act": utterance.dialogue_act,
            }
            fields = {key: value for key, value in more.items() if value is not None}
            samples.append(_sample(sample_id, dialogue.example_id, utterance.text, spans, types, fields))
    return EntityCorpus(name, tuple(samples), types)


@data_set(
    "imcs_v2_sentences",
    title="IMCS-V2, entities of sentences without their dialogues",
    files={"train": "imcs_v2/IMCS-V2_train.sentences.jsonl"},
    **_ENTRY,
    **_IMCS,
)
def read_sentences(path: PathLike, *, name: str, split: str, entity_types: Sequence[str] | None = None) -> EntityCorpus:
    """Read one sample for each line, with the id ``<name>-<split>-<line>``.

    It is a document of its own, because nothing tells where a dialogue ends. The arguments are those of `read`.

    Raises:
      DataError: a line is not an object with the strings `sentence` and `BIO_label`, what `labelled_spans` refuses, an
        unknown type, or no lines.
    """
    types, samples = _chosen(entity_types), []
    for line, value in read_json_lines(path):
        fail = functools.partial(DataError, path=path, line=line)
        require(value, dict, "it", fail)
        text, sample_id = field(value, "sentence", str, fail), f"{name}-{split}-{line}"
        spans = labelled_spans(text, field(value, "BIO_label", str, fail), fail)
        samples.append(_sample(sample_id, sample_id, text, spans, types, {}))
    if not samples:
        raise DataError("has no sentences", path=path, remedy="give it at least one")
    return EntityCorpus(name, tuple(samples), types)


def _sample(
    sample_id: str,
    document_id: str,
    text: str,
    spans: Sequence[EntitySpan],
    types: tuple[str, ...],
    more: dict[str, Any],
) -> EntitySample:
    chosen = tuple(span for span in spans if span.type in types)
    return EntitySample(sample_id, document_id, text, chosen, label_of(chosen, types), more)


def _chosen(entity_types: Sequence[str] | None) -> tuple[str, ...]:
    """Return the types to keep.

    Raises DataError for one that does not exist.
    """
    for name in entity_types or ():
        if name not in ENTITY_TYPES:
            raise DataError("there is no such type", record=named("type", name), remedy=nearest(name, ENTITY_TYPES))
    return ENTITY_TYPES if entity_types is None else tuple(entity_types)
