"""Whole documents: which relations every pair of their entities has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from datasets.documents.scoring import NOTHING
from datasets.encoding_files import document_encoding_from_json
from datasets.json_values import Fail, field
from tff_re.errors import UserError
from tff_re.exporting.kind import Kind, check_strings, checked_encoding
from tff_re.exporting.kinds.documents.predictor import DocumentPredictor
from tff_re.exporting.layout import ENCODING_FILE, REMEDY
from tff_re.exporting.uses import FileUse, file_uses

_ARRAYS = """arrays = dict.fromkeys(("input_ids", "attention_mask"), tf.ones([1, 8], tf.int32))
arrays.update(mention_place=tf.constant([[1, 4, 6]]), mention_entity=tf.constant([[0, 1, 0]]))
arrays.update(pair_head=tf.constant([[0, 1]]), pair_tail=tf.constant([[1, 0]]))"""

_EXPLANATION = """\
All arrays are int32, and all their dimensions are free. `input_ids` and `attention_mask` [D, L] are
D documents as the tokenizer cuts them, with a marker on either side of each mention; `mention_place` [D, M] are the
places of the opening markers, `mention_entity` [D, M] the entity of each mention, from 0 on in each document;
`pair_head` and `pair_tail` [D, P] are the entities of the pairs that are asked for. -1 fills up where a document has
fewer mentions or pairs. `probabilities`, float32 [D, P, R], are of each relation on its own; a relation is predicted
from {threshold}. `{encoding}` has the tokenizer (`tokenizer` is what the
library tokenizers reads) and the marker. Texts are encoded outside, so that the model needs nothing but TensorFlow."""


class DocumentKind(Kind):
    names = ("documents",)
    predictor = DocumentPredictor
    of_mentions = True
    probability = "sigmoid"

    @property
    def form(self):
        from tff_re.exporting.kinds.documents.form import DocumentForm

        return DocumentForm

    def check(self, description: Mapping[str, Any], fail: Fail) -> None:
        check_strings(field(description, "arrays", list, fail), '"arrays"', fail)
        details = description.get("details") or {}
        if "threshold" not in details:
            raise fail('has no "details.threshold"', remedy=REMEDY)
        value = details["threshold"]  # null is infinity, which JSON has not: no relation is predicted
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value)):
            raise fail('"details.threshold" is no number', remedy=REMEDY)

    def encoding(self, value: Any, source: Mapping[str, Any], fail: Fail) -> Any:
        return checked_encoding(document_encoding_from_json, value, source, fail)

    def signature_inputs(self, description: Mapping[str, Any]) -> Iterable[str]:
        return description["arrays"]

    def uses(self, description: Mapping[str, Any]) -> list[str]:
        threshold = threshold_in_words(description["details"].get("threshold"))
        use = FileUse(
            file="documents.pubtator",
            shown="prediction.document_id, prediction.head_id, prediction.tail_id, prediction.labels",
            answer="for each pair of entities of each document the relations whose probability reaches the threshold",
            arrays=_ARRAYS,
            shape="documents, pairs, relations",
            layers=(f"tff_re.models.{description['model']}",),
            explanation=_EXPLANATION.format(threshold=threshold, encoding=ENCODING_FILE),
        )
        return file_uses(description, use)

    def details(self, experiment, weights, dev) -> dict[str, Any]:
        """`threshold`: the probability from which on a relation is predicted, the best on dev.

        It is chosen by the scores of the exported model, not read from metrics.csv: the run's may be another
        precision's, and a run of an earlier version has one of the scores itself as its threshold, which rounding can
        miss.
        """
        from tff_re.tasks.held_out import DEV
        from tff_re.tasks.pair_metrics import DEFAULT_THRESHOLD

        held_out = experiment.prepared.held_out
        if DEV not in held_out.splits:
            return {"threshold": DEFAULT_THRESHOLD}
        if dev is None:
            scores = np.asarray(experiment.scoring(weights, held_out.examples(experiment.model, DEV)))
            dev = {name.removeprefix(f"{DEV}/"): value for name, value in held_out.metrics({DEV: scores}).items()}
        if "threshold" not in dev:
            raise UserError("the model's scores of the dev documents are not finite; training has diverged")
        return {"threshold": dev["threshold"]}

    def tested_on(self, corpus) -> str:
        return f"{len(corpus.samples)} documents at the server"


def threshold_in_words(value: float | None) -> str:
    """From where on a relation is predicted, for the card."""
    if value is None:
        return "a threshold of your choice on"
    if value >= NOTHING:
        return f"{value:g} on, so that none is: the run's dev documents state nothing that the model could find"
    return f"{value:.6g} on, a threshold chosen on the run's dev documents, midway between two of their scores"


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        return False
