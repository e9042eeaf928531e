"""What exporting, predicting, scoring and the model card have to know of a kind of input."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from datasets.errors import DataError
from datasets.json_values import Fail
from datasets.relations.records import UNKNOWN_TYPE
from tff_re.exporting.layout import DEFAULT_SIGNATURE, DESCRIPTION_FILE, REMEDY

if TYPE_CHECKING:  # TensorFlow takes seconds to import, and a prediction needs nothing of what is written
    from tff_re.exporting.forms import Form
    from tff_re.exporting.predictors import ExportedModel
    from tff_re.runs.experiment import Experiment


_MOST_PAIR_TYPES = 200


class Kind:
    """A kind of input. Each has a subclass, an instance of which is in `tff_re.exporting.kinds.KINDS`.

    Attributes:
      names: what `input.kind` of export.json can be.
      predictor: the class that `load_export` makes.
      form_name: the `Form` in the kind's `form.py`.
      signature: the SavedModel's signature that the predictor calls.
      outputs: what the predictor reads of its outputs. The function that it gets gives these by name; where it is
        `probabilities` only, the array itself.
      of_mentions: whether a model classifies the relation of two mentions that are given.
      cut: where texts that are too long are cut.
      probability: the function that makes a model's probabilities.
      limits: further lines of the card's section on limits.
    """

    names: tuple[str, ...]
    predictor: type[ExportedModel]
    form_name: str
    signature: str = DEFAULT_SIGNATURE
    outputs: tuple[str, ...] = ("probabilities",)
    of_mentions: bool = False
    cut: str = "at the end"
    probability: str = "softmax"
    limits: tuple[str, ...] = ()

    @property
    def form(self) -> type[Form]:
        """What is written of a model. Imported when it is asked for."""
        return getattr(importlib.import_module(f"{type(self).__module__}.form"), self.form_name)

    # Reading an export

    def check(self, description: Mapping[str, Any], fail: Fail) -> None:
        """Raises `fail` where a value of export.json that this kind alone reads is not what it has to be."""

    def check_labels(self, labels: Sequence[str], description: Mapping[str, Any], fail: Fail) -> None:
        """Raises `fail` where labels.json, a list of different strings, does not hold what this kind needs."""

    def encoding(self, value: Any, source: Mapping[str, Any], fail: Fail) -> Any:
        """The encoding that the predictor applies to its inputs.

        None: the graph encodes them, or there is nothing to encode.

        Args:
          value: the JSON value of encoding.json.
          source: `input` of export.json.
          fail: makes the DataError to raise where the value is damaged or does not fit `source`.
        """
        raise NotImplementedError

    def signature_inputs(self, description: Mapping[str, Any]) -> Iterable[str]:
        """The names of the signature's inputs."""
        return (description["input"]["name"],)

    def import_operations(self, source: Mapping[str, Any]) -> None:
        """Imports the packages whose operations the graph has."""

    # Writing one

    def uses(self, description: Mapping[str, Any]) -> list[str]:
        """The card's sections on use, in Markdown, of what export.json holds."""
        raise NotImplementedError

    def details(self, experiment: Experiment, weights: Any, dev: Mapping[str, float] | None) -> dict[str, Any]:
        """What only this kind adds to `details` of export.json.

        Args:
          experiment: the run's, as the exported model computes it.
          weights: of the exported round.
          dev: metrics of the exported model on the dev examples at the server, if they are known already.
        """
        return {}

    def tested_on(self, corpus: Any) -> str:
        """How many test examples the server holds, in words."""
        return f"{len(corpus.samples)} samples at the server"


def checked_encoding(
    read: Callable[[str], Any], value: Any, source: Mapping[str, Any], fail: Fail, fits: Callable[[Any], bool] = bool
) -> Any:
    """The encoding of a JSON value that has to be an encoding of `source`.

    Args:
      read: text of encoding.json -> the encoding. Raises DataError.
      value, source, fail: as in `Kind.encoding`.
      fits: whether a value that could be read is of the kind that export.json says.
    """
    misfit = f"does not fit {DESCRIPTION_FILE}"
    if value is None:
        raise fail(misfit)
    encoding, problem = None, None
    try:
        encoding = read(json.dumps(value, ensure_ascii=False))
    except DataError as error:
        problem = error.reason
    if problem is not None:
        raise fail(problem)
    if not fits(value):
        raise fail(misfit)
    length = source.get("max_length")
    if length is not None and length != getattr(encoding, "max_length", length):
        raise fail(f'{misfit}: "max_length" differs')
    return encoding


def pair_types(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """`pair_types` for `details` of export.json: (head type, tail type) of the pairs trained on, sorted.

    Nothing where a pair has no types, or where there are so many that they are no types.
    """
    different = sorted(set(pairs))
    if not 0 < len(different) <= _MOST_PAIR_TYPES or any(UNKNOWN_TYPE in pair for pair in different):
        return {}
    return {"pair_types": [list(pair) for pair in different]}


def check_pair_types(description: Mapping[str, Any], fail: Fail) -> None:
    """Raises `fail` if `details.pair_types` is present but is not a list of pairs of types."""
    pairs = (description.get("details") or {}).get("pair_types", [])
    what = '"details.pair_types"'
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise fail(f"{what} is not a list of pairs", remedy=REMEDY)
    if not all(isinstance(name, str) and name for pair in pairs for name in pair):
        raise fail(f"{what} has a pair without two types", remedy=REMEDY)


def check_strings(value: Sequence[Any], what: str, fail: Fail, count: int | None = None) -> None:
    """Raises `fail` unless the values are distinct, non-empty strings, `count` of them if it is given."""
    good = all(isinstance(item, str) and item for item in value)
    if not good or not value or len(set(value)) != len(value) or count not in (None, len(value)):
        which = "" if count is None else f"{count} "
        raise fail(f"{what} is not a list of {which}different strings", remedy=REMEDY)
