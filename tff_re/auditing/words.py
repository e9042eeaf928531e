"""Which words and labels of a client its update tells.

A row of a matrix of word vectors gets a gradient only where its word stands in a text, so that the rows that changed
are the client's words. The bias of a softmax classifier changes by the sum of (probability - one-hot label), so that it
rises for the labels that a client has most of (Zhao et al. 2020, "iDLG", for one example).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from computations.local_model import LABEL
from datasets.text.vocabulary import OUT_OF_VOCABULARY_ID
from tff_re.models.inputs import DenseInput, HiddenInput, TaggedTokenInput, TokenInput
from tff_re.runs.experiment import Experiment


@dataclass(frozen=True)
class WordRows:
    """The trained matrix that has a row for each word.

    Attributes:
      index: its index among the trainable weights.
      name: of the weight.
      first: the word id of its first row.
      size: word ids lie in [0, size).
      why: how the recipe comes to train it, with the key that says so.
    """

    index: int
    name: str
    first: int
    size: int
    why: str


def find_word_rows(experiment: Experiment) -> WordRows | str:
    """The matrix, or why the run trains none."""
    model, inputs, options = experiment.model, experiment.prepared.inputs, experiment.recipe.model.options
    if isinstance(inputs, DenseInput):
        return "the examples are vectors of numbers, not words"
    if isinstance(inputs, HiddenInput):
        return "the embeddings are below the frozen layers (model.frozen_layers) and are not trained"
    if getattr(inputs, "fixed", None) is not None:
        return "an adapter is trained, and the word embeddings are not"
    size = inputs.vocabulary_size
    for index, (name, kind) in enumerate(zip(model.weight_names, model.weights_type.trainable, strict=True)):
        rows = kind.shape[0] if len(kind.shape) == 2 else 0
        if getattr(options, "features", None) == "word_presence" and rows == size - 1:
            return WordRows(
                index, name, 1, size, "the classifier has a weight for each word (model.features = word_presence)"
            )
        # The embeddings of positions have few rows; an encoder's matrix of words may be padded to a round number.
        if "embedding" in name and "position" not in name and size <= rows <= 1.2 * size + 128:
            return WordRows(index, name, 0, size, _why(inputs, options))
    return "its word vectors are pretrained and not trained further"


def _why(inputs, options) -> str:
    if hasattr(options, "frozen_layers"):
        return "the whole encoder is trained, with its matrix of word pieces (model.frozen_layers = 0, no adapter)"
    if getattr(inputs, "vectors", None) is None:
        return "the model learns its own word vectors (no pretrained vectors)"
    return "pretrained word vectors are trained further (model.train_vectors)"


def has_known_words(inputs) -> bool:
    """Whether the vocabulary is the run's own words or characters, with an id for all others."""
    return isinstance(inputs, TokenInput | TaggedTokenInput)


def words_of(inputs, examples) -> np.ndarray:
    """[n, size] of bool would be large: the word ids of each example, int [n, l], padding as 0."""
    if has_known_words(inputs):
        return np.asarray(examples["tokens"])
    return np.asarray(examples["input_ids"]) * np.asarray(examples["attention_mask"])


def everywhere(ids: np.ndarray, size: int, known_words: bool) -> np.ndarray:
    """The ids that tell nothing, as bool [size]: padding, and ids in every example (markers, [CLS]).

    With `known_words` the id of unknown words is one of them too.

    Args:
      ids: int [n, l] of all examples.
    """
    holders = np.zeros(size, np.int64)
    for row in ids:
        holders[np.unique(row)] += 1
    left_out = holders == len(ids)
    left_out[0] = True
    left_out[OUT_OF_VOCABULARY_ID] |= known_words
    return left_out


def presence(ids: np.ndarray, size: int) -> np.ndarray:
    """bool [size]: which ids stand in the examples."""
    present = np.zeros(size, bool)
    present[np.unique(ids)] = True
    return present


@dataclass(frozen=True)
class RevealedWords:
    """What the rows of an update tell of a set of words.

    Attributes:
      words: how many words there are.
      changed: rows that changed.
      right: rows that changed and are of these words.
      ranking: area under the ROC curve where rows are ranked by the size of their change: 0.5 tells nothing, also where
        noise changes all rows. NaN where all or no words are present.
    """

    words: int
    changed: int
    right: int
    ranking: float

    @property
    def precision(self) -> float:
        return self.right / self.changed if self.changed else 0.0

    @property
    def recall(self) -> float:
        return self.right / self.words if self.words else 0.0


def revealed_words(change: np.ndarray, present: np.ndarray, left_out: np.ndarray, first: int = 0) -> RevealedWords:
    """Takes every row that changed for a word of the client.

    Args:
      change: float [rows, d], of the matrix with a row for each word.
      present: bool [size], the words that are there.
      left_out: bool [size], ids that do not count.
      first: word id of the first row.
    """
    size = len(present)
    sizes = np.zeros(size)
    sizes[first:] = np.linalg.norm(change[: size - first].astype(np.float64), axis=1)
    counts = ~left_out
    changed, present, sizes = (sizes > 0)[counts], present[counts], sizes[counts]
    ranking = float(roc_auc_score(present, sizes)) if 0 < present.sum() < len(present) else float("nan")
    return RevealedWords(int(present.sum()), int(changed.sum()), int((changed & present).sum()), ranking)


@dataclass(frozen=True)
class RevealedLabels:
    """What the change of a classifier's bias tells of a client's labels.

    Attributes:
      correlation: Spearman's, of the rise of a label's bias with the client's number of examples of that label, over
        labels; NaN where the client has the same number of all.
      hit: whether the bias rose most for a label that the client has most of.
    """

    correlation: float
    hit: bool


def revealed_labels(bias_change: np.ndarray, counts: np.ndarray) -> RevealedLabels:
    """Args:
    bias_change: float [C], global minus local, as an update has it.
    counts: int [C], the client's examples of each label.
    """
    rise = -bias_change
    constant = np.ptp(counts) == 0 or np.ptp(rise) == 0
    return RevealedLabels(
        correlation=float("nan") if constant else float(spearmanr(rise, counts)[0]),
        hit=bool(counts[np.argmax(rise)] == counts.max()),
    )


def label_counts(examples, num_classes: int) -> np.ndarray:
    """int [C]."""
    return np.bincount(np.asarray(examples[LABEL]), minlength=num_classes)
