"""What is written of models of bags: encoded sentences and their bags in, probabilities of relations per bag out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from computations.inference import forward
from datasets.bags.records import BagSentence
from datasets.encoding_files import relation_encoding_from_json, relation_encoding_to_json
from datasets.text.relation_encoding import RelationEncoding
from tff_re.exporting.forms import HALF_TOLERANCE, Core, Form, Probes, require_same, traced_once
from tff_re.exporting.layout import DEFAULT_SIGNATURE
from tff_re.exporting.places import MISFIT, NEEDED, ExportError
from tff_re.exporting.quantised import HalfCore
from tff_re.models.bag_layers import BagPooling
from tff_re.models.inputs import BagInput, pieces_of
from tff_re.models.text_layers import forget_initial_values, is_stock

BAG = "bag"

MOST_PROBES = 128
"""Sentences whose bags are compared."""
MOST_MEASURED = 5000
"""Sentences whose bags a quantised form is measured on: a test split has hundreds of thousands."""


class BagForm(Form):
    """A model of bags: `serving_default` takes the arrays of a RelationInput for n sentences and `bag`, int32 [n], the
    bag of each, from 0 on, none left out. It gives `probabilities`, float32 [B, C], the method's pooling of each bag.
    """

    inputs = (BagInput,)
    for_onnx = for_tflite = False
    unit, sample_unit = "bags", "sentences"
    at_once = None

    def __init__(self, trained, plain, inputs, encoding, probes):
        relation = pieces_of(inputs.sentences)
        if relation is not inputs.sentences:
            self.tolerance = HALF_TOLERANCE
        self._encoding, self._pooling = encoding, inputs.pooling
        self._probes = _whole_bags(probes) or _made_up()
        self.source = {
            "name": "sentences",
            "kind": "bags",
            "max_length": encoding.max_length,
            "vocabulary": relation.vocabulary_size,
            "blind": encoding.blind,
            "pooling": inputs.pooling,
            "stock": is_stock(plain),
        }
        self.encoding_json = relation_encoding_to_json(encoding)
        self.core_specs = {**relation.specs, BAG: tf.TensorSpec([None], tf.int32)}
        forget_initial_values(plain)
        arrays = {n: tf.keras.Input(s.shape[1:], dtype=s.dtype, name=n) for n, s in self.core_specs.items()}
        logits = plain({name: array for name, array in arrays.items() if name != BAG})["logits"]
        probabilities = BagPooling(inputs.pooling, name="probabilities")({"logits": logits, BAG: arrays[BAG]})
        self.keras_model = tf.keras.Model(arrays, {"probabilities": probabilities}, name=f"{plain.name}_of_bags")
        served = plain if relation.fixed is not None else trained  # an adapter is merged into its encoder
        self._logits, as_trained = (
            traced_once(lambda arrays, model=model: model(arrays, training=False)["logits"])
            for model in (served, trained)
        )
        self._classes = plain.output["logits"].shape[-1]
        self.core = self.small_core = self._core_of(self._logits)
        self._expected = self._core_of(as_trained)
        self.resources = [served]

    @staticmethod
    def check(inputs: BagInput, encoding) -> None:
        if not isinstance(encoding, RelationEncoding):
            raise ExportError(NEEDED.format("bags"))
        relation = pieces_of(inputs.sentences)
        if relation.max_length != encoding.max_length or relation.vocabulary_size < len(encoding.tokenizer):
            raise ExportError(MISFIT)

    @staticmethod
    def model_inputs(inputs: BagInput):
        return inputs.sentences

    def _core_of(self, logits: Core) -> Core:
        pooling = BagPooling(self._pooling)

        def model(arrays, training):
            return {"logits": logits(arrays)}

        def core(arrays: Mapping[str, tf.Tensor]) -> tf.Tensor:
            # A batch of sentences at a time: a bag can have thousands.
            sentences = {name: array for name, array in arrays.items() if name != BAG}
            return pooling({"logits": forward(model, sentences, "logits", self._classes), BAG: arrays[BAG]})

        return traced_once(core)

    def halved(self) -> tuple[Core, tf.Module]:
        # Weights are taken out of a sentence's logits: out of a loop they cannot be.
        specs = {name: spec for name, spec in self.core_specs.items() if name != BAG}
        half = HalfCore(self._logits, specs)
        return self._core_of(half), half

    def endpoints(self, core: Core) -> dict[str, Callable]:
        def without_gaps(arrays):
            missing = tf.squeeze(tf.where(tf.equal(tf.math.bincount(arrays[BAG]), 0)), -1)
            problem = ["bags without a sentence, by number:", missing]
            with tf.control_dependencies([tf.debugging.Assert(tf.equal(tf.size(missing), 0), problem)]):
                return core({name: tf.identity(array) for name, array in arrays.items()})

        return super().endpoints(without_gaps)

    def probes(self) -> Probes:
        arrays = self.arrays(self._probes)
        tensors = {name: tf.constant(value) for name, value in arrays.items()}
        return Probes(arrays, arrays, {DEFAULT_SIGNATURE: arrays}, self._expected(tensors).numpy())

    def check_ids(self, keras_model, signatures) -> None:
        stored = relation_encoding_from_json(self.encoding_json).encode(self._probes).arrays
        require_same(stored, self._encoding.encode(self._probes).arrays, "the stored tokenizer")

    def arrays(self, samples: Sequence[BagSentence]) -> dict[str, np.ndarray]:
        arrays = self._encoding.encode(samples).arrays
        pairs = {pair: number for number, pair in enumerate(dict.fromkeys(sample.pair for sample in samples))}
        bag = np.array([pairs[sample.pair] for sample in samples], np.int32)
        return {name: bag if name == BAG else arrays[name] for name in self.core_specs}

    def measured(self, samples: Sequence[BagSentence]) -> Sequence[BagSentence]:
        return _whole_bags(samples, MOST_MEASURED)

    def graded(self, probabilities, samples, labels, threshold) -> tuple[float, int]:
        """A bag counts as right where its most likely relation is one of its own."""
        relations_of = {sample.pair: sample.relations for sample in samples}
        right = [
            labels[best] in names for best, names in zip(probabilities.argmax(-1), relations_of.values(), strict=True)
        ]
        return float(np.mean(right)), len(right)


def _whole_bags(sentences: Sequence[BagSentence], count: int = MOST_PROBES) -> list[BagSentence]:
    """The sentences of the first pairs, `count` or a few more."""
    of_pair: dict = {}
    for sentence in sentences:
        of_pair.setdefault(sentence.pair, []).append(sentence)
    chosen: list[BagSentence] = []
    for bag in of_pair.values():
        chosen += bag[:count]
        if len(chosen) >= count:
            break
    return chosen


def _made_up() -> list[BagSentence]:
    """Three bags, of one, two and three sentences."""
    sentences = []
    for bag in range(3):
        for number in range(bag + 1):
            text = f"a {'b ' * (bag + number)}c d {'e ' * number}."
            last = len(text) - 1
            spans = ((0, 1), (last, last + 1)) if number % 2 else ((last, last + 1), (0, 1))
            sentence_id = f"probe-{bag}-{number}"
            ids = (f"head {bag}", f"tail {bag}")
            sentences.append(BagSentence(sentence_id, "probe", text, *spans, "drug", "gene", *ids, ("NA",), 0))
    return sentences
