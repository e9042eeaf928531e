"""A warm start: a run whose weights begin where a finished run's ended (`train --from`).

The run keeps what it started from, so that it is resumed and evaluated without the old run: start.json, and the weights
as safetensors. Its vocabulary and classes are the old run's. Nothing else is taken over: the rounds, moments at the
server and clients' states begin anew.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from computations import federated as tff
from computations.registry import Choice
from tff_re.errors import UserError
from tff_re.models.inputs import HiddenInput, pieces_of
from tff_re.recipes.structuring import to_table
from tff_re.runs.experiment import Experiment
from tff_re.runs.folder import STARTS, RunFolder
from tff_re.tasks.base import Prepared

if TYPE_CHECKING:
    from tff_re.runs.finished import FinishedRun

_ENCODING_KEYS = ("encoding", "tokenizer", "max_length", "blind", "symptoms")
"""Keys of a task that decide how texts become numbers, for messages."""


@dataclass(frozen=True)
class WarmStart:
    """What a run starts from.

    Attributes:
      run: the name of the old run's folder.
      round: whose weights they are.
      digest: SHA-256 of the weights.
      form: what the new run must have in common with the old one, see `_requirements`.
      words: the old run's vocabulary; None where a tokenizer is given.
      positive: those of its classes that are relations; None where the task has no others.
      privacy: what the old run guarantees, a line; None: it had no [privacy].
      weights: ModelWeights of arrays.
    """

    run: str
    round: int
    digest: str
    form: Mapping[str, Any]
    words: tuple[str, ...] | None = field(repr=False)
    positive: tuple[str, ...] | None
    privacy: str | None
    weights: Any = field(repr=False, compare=False)

    @classmethod
    def from_run(cls, opened: FinishedRun, summary: Mapping[str, Any]) -> WarmStart:
        """Of a finished run and its summary."""
        experiment, weights = opened.experiment, opened.weights
        prepared = experiment.prepared
        arrays = [[np.asarray(a) for a in part] for part in (weights.trainable, weights.non_trainable)]
        positive = prepared.measures.positive_labels
        return cls(
            run=opened.folder.path.resolve().name,
            round=int(opened.round),
            digest=_digest(arrays),
            form=_requirements(experiment),
            words=_words(prepared, experiment.recipe.task),
            positive=None if positive is None else tuple(prepared.label_names[n] for n in positive),
            privacy=(summary.get("privacy") or {}).get("statement"),
            weights=tff.learning.models.ModelWeights(*arrays),
        )

    @property
    def line(self) -> str:
        """What the run starts from, in a line."""
        return f"starts from the weights of {self.run} after round {self.round} (SHA-256 {self.digest[:12]}…)"

    @property
    def record(self) -> dict[str, Any]:
        """For summary.json."""
        return {"run": self.run, "round": self.round, "digest": self.digest, "privacy": self.privacy}

    def files(self) -> dict[str, bytes]:
        """Name in the run's folder -> content.

        The presence of the last file shows that all are there.
        """
        table = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "weights"}
        groups = (("trainable", self.weights.trainable), ("non_trainable", self.weights.non_trainable))
        arrays = {f"{name}/{n}": np.ascontiguousarray(a) for name, part in groups for n, a in enumerate(part)}
        text = json.dumps(table, indent=2, ensure_ascii=False) + "\n"
        return dict(zip(STARTS, (save(arrays), text.encode("utf-8", "surrogatepass")), strict=True))

    def with_notes(self, experiment: Experiment) -> Experiment:
        """The experiment, whose notes say what it starts from."""
        prepared = experiment.prepared
        return dataclasses.replace(
            experiment, prepared=dataclasses.replace(prepared, notes=(*prepared.notes, self.line))
        )

    def require_fitting(self, experiment: Experiment) -> None:
        """Raises UserError if the experiment cannot start from these weights, and names the difference."""
        source = experiment.recipe.source
        if experiment.algorithm.own_models is not None:
            raise UserError(
                f"{source}: this run has one model per client, and they would not start from {self.run}; leave out "
                "--from, or baseline.kind = 'local' and personalise.local_head"
            )
        difference = _difference(_requirements(experiment), self.form)
        shapes = [list(np.shape(a)) for a in (*self.weights.trainable, *self.weights.non_trainable)]
        wanted = [list(shape) for group in experiment.model.sizes[0] for _, shape in group]
        if difference is None and shapes != wanted:
            difference = f"the weights have shapes {_short(wanted)} here and {_short(shapes)} in that run"
        if difference is not None:
            raise UserError(
                f"{source}: cannot start from {self.run}: {difference}; a warm start needs the same value in both"
            )


def stored(folder: RunFolder) -> WarmStart | None:
    """What the run of a folder started from, or None if it started from the initial weights of its seed.

    Raises:
      UserError: a file of it is damaged.
    """
    if not folder.start.exists():
        return None
    try:
        table = json.loads(folder.start.read_bytes())
        arrays = load(folder.start_weights.read_bytes())
        groups = [_group(arrays, name) for name in ("trainable", "non_trainable")]
        table |= {name: None if table[name] is None else tuple(table[name]) for name in ("words", "positive")}
        start = WarmStart(**table, weights=tff.learning.models.ModelWeights(*groups))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        raise _damaged(folder) from None
    if start.digest != _digest(groups):
        raise _damaged(folder)
    return start


def with_start(private: Mapping[str, Any], start: WarmStart | None) -> dict[str, Any]:
    """What a private run guarantees (`guarantee.description`), and what its starting weights cost before."""
    if start is None:
        return dict(private)
    if start.privacy is None:
        line = f"the starting weights, of the run {start.run}, which was trained without [privacy]"
        return {**private, "not_covered": [line, *private["not_covered"]]}
    added = f"the starting weights, of the run {start.run}, were trained with {start.privacy}; budgets add up"
    return {**private, "statement": f"{private['statement']}; {added}"}


def _damaged(folder: RunFolder) -> UserError:
    return UserError(
        f"{folder.start}: is damaged, or {folder.start_weights.name} next to it; put the originals back, they record "
        "what the run started from"
    )


def _group(arrays: Mapping[str, np.ndarray], name: str) -> list[np.ndarray]:
    return [arrays[f"{name}/{n}"] for n in range(sum(key.startswith(f"{name}/") for key in arrays))]


def _digest(groups: Sequence[Sequence[np.ndarray]]) -> str:
    digest = hashlib.sha256()
    for group in groups:
        for array in group:
            digest.update(repr((array.dtype.str, array.shape)).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _requirements(experiment: Experiment) -> dict[str, Any]:
    """What weights depend on, as plain values for JSON: the task, the model, the classes, how texts become numbers, and
    weights that no client trains."""
    recipe, prepared = experiment.recipe, experiment.prepared
    inputs, options = prepared.inputs, attrs.asdict(recipe.task.options, recurse=False)
    fixed = getattr(pieces_of(inputs), "fixed", None)
    drawn = isinstance(inputs, HiddenInput) and inputs.pieces.new_pieces
    values = {
        "task": recipe.task.name,
        "model": {"name": recipe.model.name, **to_table(recipe.model.options)},
        "classes": list(prepared.label_names),
        "relations": None if prepared.pair_relations is None else list(prepared.pair_relations),
        "types": list(prepared.encoding.types) if getattr(pieces_of(inputs), "typed", False) else None,
        "encoding": _encoding_digest(prepared.encoding),
        "encoding_keys": {key: options[key] for key in _ENCODING_KEYS if key in options},
        "fixed": None if fixed is None else fixed.digest,
        "seed": recipe.seed if drawn else None,
        "fixes": recipe.algorithm.name if getattr(experiment.algorithm.parts, "fixed", None) is not None else None,
    }
    return json.loads(json.dumps(values))


def _encoding_digest(encoding) -> str | None:
    if encoding is None:
        return None
    tokenizer = getattr(encoding, "tokenizer", None)
    content = encoding.to_json() if tokenizer is None else json.loads(tokenizer.backend_tokenizer.to_str())
    if tokenizer is not None:  # how the last text was cut is no part of it
        content = {key: value for key, value in content.items() if key not in ("truncation", "padding")}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def _words(prepared: Prepared, task: Choice) -> tuple[str, ...] | None:
    """The vocabulary as `DataPaths.words` takes it."""
    encoding = prepared.encoding
    if hasattr(encoding, "vocabulary"):
        return tuple(encoding.vocabulary.words)
    if task.get("encoding") != "words":
        return None
    known = encoding.tokenizer.get_vocab()
    return tuple(sorted(known, key=known.get)[2:])  # the first two pad, and stand for unknown words


def _difference(here: Mapping[str, Any], there: Mapping[str, Any]) -> str | None:
    """The first difference of two forms in words, or None if there is none."""
    named = (("classes", "classes"), ("relations", "relations"), ("types", "types of entities"))
    for key, what in (("task", "the task"), ("model", "model"), *named):
        if here.get(key) != there.get(key):
            if key == "task":
                return f"{what} is {here[key]} here and {there[key]} in that run"
            return _different_keys("model", here, there) if key == "model" else _different_names(what, here, there)
    if here["encoding"] != there["encoding"]:
        keys = _different_keys("encoding_keys", here, there)
        return keys or "the vocabulary or tokenizer differs, so the same text would be encoded differently"
    if here["encoding_keys"].get("blind") != there["encoding_keys"].get("blind"):
        return _different_keys("encoding_keys", here, there)
    if here["fixes"] not in (None, there["fixes"]):
        return f"{here['fixes']} keeps its own classifier fixed, and no other method trains with that classifier"
    if here["seed"] != there["seed"]:
        numbers = f"{here['seed']} here and {there['seed']} in that run"
        return f"the seed (--seed), which draws vectors that the frozen layers read, is {numbers}"
    if here["fixed"] != there["fixed"]:
        return "the encoder's fixed weights differ; they come from the encoder's files and the seed"
    return None


def _different_keys(section: str, here: Mapping[str, Any], there: Mapping[str, Any]) -> str | None:
    table = {"encoding_keys": "task"}.get(section, section)
    for key in dict.fromkeys([*here[section], *there[section]]):
        ours, theirs = (side[section].get(key) for side in (here, there))
        if ours != theirs:
            return f"{table}.{key} is {_short(ours)} here and {_short(theirs)} in that run"
    return None


def _different_names(what: str, here: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    ours, theirs = (side[what] or [] for side in (here, there))
    more, fewer = ([name for name in a if name not in b] for a, b in ((ours, theirs), (theirs, ours)))
    parts = [f"{_short(names)} only {where}" for names, where in ((more, "here"), (fewer, "there")) if names]
    return f"the {what} differ: {', '.join(parts) or 'they have another order'}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:119]}…"
