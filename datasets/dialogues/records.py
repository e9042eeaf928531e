"""The records that readers return.

The `repr` of a record has ids and counts, never a patient's text.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from datasets.errors import DataError, named


@dataclass(frozen=True)
class Utterance:
    """One sentence of a dialogue.

    Attributes:
      sentence_id: Unique in its dialogue.
      speaker: 患者 (the patient or parent) or 医生 (the doctor).
      text: The sentence, as it is written in the file.
      dialogue_act: One of the 16 IMCS intents; None where the file has none.
      symptom_norm: The normalised names of the symptoms that the sentence states.
      symptom_type: For each of them "0" (absent), "1" (present) or "2" (unclear).
      bio_label: The tags of its characters, with blanks between them; None where the file has none.
    """

    sentence_id: str
    speaker: str
    text: str = field(repr=False)
    dialogue_act: str | None = None
    symptom_norm: tuple[str, ...] = field(default=(), repr=False)
    symptom_type: tuple[str, ...] = field(default=(), repr=False)
    bio_label: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Dialogue:
    """A consultation with at least one utterance, and the parent's report and the diagnosis if the file has them."""

    example_id: str
    diagnosis: str | None
    self_report: str | None = field(repr=False)
    utterances: tuple[Utterance, ...] = field(repr=False)


@dataclass(frozen=True)
class LabelledText:
    """One sample of a text classification.

    Attributes:
      sample_id: Unique in its corpus, e.g. ``mie-dev-000/3``.
      document_id: The document that the text comes from; several samples may share it.
      text: The text to classify.
      label: Index into the corpus's `label_names`.
      fields: What a partitioner may group by, e.g. ``{"diagnosis": …, "speaker": …}``.
    """

    sample_id: str
    document_id: str
    text: str = field(repr=False)
    label: int
    fields: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class TextCorpus:
    """Samples of one text classification.

    Attributes:
      name: The corpus, e.g. ``mie``.
      samples: At least one, with unique ids.
      label_names: The classes, in the order of the labels.
      notes: What a report has to say about the corpus, such as the number of sentences left out by definition.

    Raises:
      DataError: no samples, an id twice, or a label outside of `label_names`.
    """

    name: str
    samples: tuple[LabelledText, ...] = field(repr=False)
    label_names: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        if not self.samples:
            raise DataError("has no samples", record=f"corpus {self.name}", remedy="give it at least one sample")
        seen, classes = set(), len(self.label_names)
        for position, sample in enumerate(self.samples, 1):
            fail = functools.partial(DataError, record=named("sample", sample.sample_id, position))
            if sample.sample_id in seen:
                raise fail("duplicate id in the corpus", remedy="give every sample an id of its own")
            seen.add(sample.sample_id)
            if not 0 <= sample.label < classes:
                raise fail(
                    f"its label {sample.label} is not one of the {classes} classes", remedy=f"use 0 to {classes - 1}"
                )
