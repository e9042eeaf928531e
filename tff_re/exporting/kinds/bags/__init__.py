"""Bags of sentences: the relation of two entities, from all sentences of a file that mention both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from datasets.encoding_files import relation_encoding_from_json
from datasets.json_values import Fail, field, require
from tff_re.exporting.kind import Kind, check_strings, checked_encoding
from tff_re.exporting.kinds.bags.predictor import BagPredictor
from tff_re.exporting.layout import ENCODING_FILE, REMEDY
from tff_re.exporting.uses import FileUse, file_uses

_READING = ("misplaced", "head_kind", "tail_kind")

_ARRAYS = """ones = tf.ones([3, {length}], tf.int32)
arrays = dict(input_ids=ones, attention_mask=ones, head_mask=ones, tail_mask=ones)
arrays.update(head_start=tf.constant([1, 1, 1]), tail_start=tf.constant([4, 4, 4]), bag=tf.constant([0, 0, 1]))"""

_EXPLANATION = """\
`input_ids` and `attention_mask`, int32 [n, {length}], are n sentences as the tokenizer cuts them, with
markers around the two mentions; `head_mask` and `tail_mask` have a 1 at the pieces of a mention, `head_start` and
`tail_start`, int32 [n], are the places of its opening marker. `bag`, int32 [n], is the bag of each sentence: 0, 1, …
without a gap. There is a row of probabilities for each bag, the method's pooling ({pooling}) of its sentences; a bag of
one sentence has that sentence's own. `{encoding}` has the tokenizer (`tokenizer` is what the library tokenizers reads)
and all else that makes the arrays. Texts are encoded outside, so that the model needs nothing but TensorFlow."""


class BagKind(Kind):
    names = ("bags",)
    predictor = BagPredictor
    of_mentions = True
    cut = "around the mentions"
    limits = (
        "a bag's scores rank facts; those of its relations need not sum to one",
        "it learnt what a knowledge base says of pairs, which their sentences need not state",
    )

    @property
    def form(self):
        from tff_re.exporting.kinds.bags.form import BagForm

        return BagForm

    def check(self, description: Mapping[str, Any], fail: Fail) -> None:
        check_strings(field(description, "arrays", list, fail), '"arrays"', fail)
        reading = (description.get("details") or {}).get("reading")
        if reading is None:
            return
        for key, value in require(reading, dict, '"details.reading"', fail).items():
            if key not in _READING or not isinstance(value, str):
                raise fail(f'"details.reading" has more than strings at {", ".join(_READING)}', remedy=REMEDY)

    def encoding(self, value: Any, source: Mapping[str, Any], fail: Fail) -> Any:
        return checked_encoding(relation_encoding_from_json, value, source, fail)

    def signature_inputs(self, description: Mapping[str, Any]) -> Iterable[str]:
        return description["arrays"]

    def uses(self, description: Mapping[str, Any]) -> list[str]:
        source = description["input"]
        own = () if source["stock"] else (f"tff_re.models.{description['model']}",)
        use = FileUse(
            file="sentences.jsonl",
            shown="prediction.head_id, prediction.tail_id, prediction.label, prediction.probability",
            answer="for each pair of entities the relation with the highest score, and the scores of all",
            arrays=_ARRAYS.format(length=source["max_length"]),
            shape="bags, relations",
            layers=("tff_re.models.bag_layers", *own),
            explanation=_EXPLANATION.format(
                length=source["max_length"], pooling=source["pooling"], encoding=ENCODING_FILE
            ),
        )
        return file_uses(description, use)

    def details(self, experiment, weights, dev) -> dict[str, Any]:
        """`reading`: options of the task that say how a file of the data set is read."""
        options = experiment.recipe.task.options
        given = {name: getattr(options, name, None) for name in ("head_kind", "tail_kind", "misplaced")}
        given = {name: value for name, value in given.items() if value is not None}
        return {"reading": given} if given else {}

    def tested_on(self, corpus) -> str:
        return f"{len(corpus.pairs)} bags of {len(corpus.sentences)} sentences at the server"
