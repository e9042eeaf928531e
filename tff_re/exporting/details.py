"""What an export's card says of the run that it comes from; no text of a corpus, and no path of this machine."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from datasets.catalogue import DATA_SETS, find_data_set
from tff_re.errors import UserError
from tff_re.exporting.export_model import in_float32
from tff_re.models.inputs import DocumentInput
from tff_re.recipes.reading import Recipe, tomllib
from tff_re.runs.evaluation import Evaluator, ServerEvaluator
from tff_re.runs.experiment import Experiment
from tff_re.runs.folder import RunFolder, environment
from tff_re.settings import to_table
from tff_re.tasks.held_out import DEV, TEST
from tff_re.tasks.pair_metrics import DEFAULT_THRESHOLD

RECIPE_FILE, ENVIRONMENT_FILE = "recipe.toml", "environment.json"


def details_of(
    experiment: Experiment, history: list[dict[str, float]], round_num: int, weights: Any, exported: Experiment
) -> dict[str, Any]:
    """The `details` of `export_model`.

    Args:
      experiment: the run's.
      history: its rows of metrics.csv.
      round_num: the round whose weights are exported.
      weights: these.
      exported: the experiment as the exported model computes it: the run's own, or that of
        `exported_recipe`.
    """
    recipe, prepared = experiment.recipe, experiment.prepared
    dataset = getattr(recipe.task.options, "dataset", None)
    if dataset not in DATA_SETS:  # made up by the task itself
        dataset = None
    measured = {} if exported is experiment else _split(_measured(exported, weights))
    return {
        "run": hashlib.sha256(recipe.to_toml().encode()).hexdigest()[:16],
        "recipe": recipe.name,
        "task": recipe.task.name,
        **({} if dataset is None else {"dataset": dataset, "label": _label(recipe, dataset)}),
        "algorithm": recipe.algorithm.name,
        "seed": recipe.seed,
        "rounds": round_num,
        "clients": len(prepared.examples.clients),
        "metrics": _metrics(history, round_num),
        **({"exported_metrics": measured} if measured else {}),
        **_threshold(exported, weights, measured.get(DEV)),
        **_reading(recipe),
        "data": _data(experiment, dataset),
        "training": _training(experiment),
        "privacy": _privacy(recipe),
        "limits": _limits(experiment, dataset),
    }


def files_of(recipe: Recipe, folder: RunFolder) -> dict[str, str]:
    """Name -> content of what is laid beside the model: the recipe without folders, the versions of the training."""
    kept = folder.environment.read_text("utf-8") if folder.environment.exists() else json.dumps(environment(), indent=2)
    table = without_folders(tomllib.loads(recipe.to_toml()))
    note = "# As it was run, with the names of files and folders alone.\n"
    return {RECIPE_FILE: note + tomli_w.dumps(table), ENVIRONMENT_FILE: kept}


def without_folders(value: Any) -> Any:
    """The value with every path of this machine in it cut to its last part; ids of a model hub stay."""
    if isinstance(value, Mapping):
        return {key: without_folders(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(item) for item in value]
    if not isinstance(value, str) or "/" not in value:
        return value
    here = os.path.isabs(value) or value.startswith((".", "~")) or os.path.exists(value)
    return Path(value).name if here else value


def _label(recipe: Recipe, dataset: str) -> str | None:
    choices = find_data_set(dataset).labels
    return getattr(recipe.task.options, "label", None) or (choices[0] if choices else None)


def _metrics(history: list[dict[str, float]], round_num: int) -> dict[str, dict[str, float]]:
    """Split -> metric -> value after that round."""
    rows = [row for row in history if row["round"] == round_num]
    return _split(rows[0] if rows else {})


def _split(metrics: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """`test/accuracy` and so on by split."""
    found: dict[str, dict[str, float]] = {}
    for name, value in metrics.items():
        split, _, metric = name.partition("/")
        if split in ("test", "dev", "train"):
            found.setdefault(split, {})[metric] = value
    return found


def exported_recipe(recipe: Recipe) -> Recipe:
    """The recipe with its model in the precision that exported models compute in; the same one where it has that."""
    options = in_float32(recipe.model.options)
    if options is recipe.model.options:
        return recipe
    return dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, options=options))


def _measured(experiment: Experiment, weights: Any) -> dict[str, float]:
    """The run's metrics of weights on its test examples, and on dev; runs in the current execution context."""
    found = {}
    test = Evaluator(experiment, TEST)
    if not test.empty:
        found.update({f"{TEST}/{name}": value for name, value in test(weights).metrics.items()})
    if experiment.scoring is not None:
        found.update(ServerEvaluator(experiment)(weights).metrics)
    return found


def _threshold(experiment: Experiment, weights: Any, dev: Mapping[str, float] | None) -> dict[str, float]:
    """Of documents `threshold`, the probability from which on a relation is predicted: the best on dev.

    It is chosen by the scores of the exported model, not read from metrics.csv: the run's may be another precision's,
    and a run of an earlier version has one of the scores itself as its threshold, which rounding can miss.
    """
    held_out = experiment.prepared.held_out
    if not isinstance(experiment.prepared.inputs, DocumentInput):
        return {}
    if DEV not in held_out.splits:
        return {"threshold": DEFAULT_THRESHOLD}
    if dev is None:
        scores = np.asarray(experiment.scoring(weights, held_out.examples(experiment.model, DEV)))
        dev = _split(held_out.metrics({DEV: scores}))[DEV]
    if "threshold" not in dev:
        raise UserError("the model's scores of the dev documents are not finite; training has diverged")
    return {"threshold": dev["threshold"]}


def _reading(recipe: Recipe) -> dict[str, Any]:
    """`reading`: options of the task that say how a file of the data set is read."""
    names = ("head_kind", "tail_kind", "misplaced")
    given = {name: getattr(recipe.task.options, name, None) for name in names}
    given = {name: value for name, value in given.items() if value is not None}
    return {"reading": given} if given else {}


def _data(experiment: Experiment, dataset: str | None) -> dict[str, Any]:
    recipe, examples = experiment.recipe, experiment.prepared.examples
    known = {"data set": recipe.task.name}
    if dataset is not None:
        about = find_data_set(dataset)
        known = {
            "data set": f"{about.title}: {about.task}",
            "language": about.language,
            "licence of the data": about.licence,
            "source": about.citation,
        }
    return {
        **known,
        "clients": f"{len(examples.clients)}, by the partitioner {recipe.partition.name}",
        "training examples": examples.size("train"),
        "test examples": examples.size("test"),
        "tested on": _tested_on(experiment),
    }


def _tested_on(experiment: Experiment) -> str | None:
    prepared, options = experiment.prepared, experiment.recipe.task.options
    corpus = prepared.held_out_corpora.get(TEST)
    if corpus is None:
        return _TESTS.get(getattr(options, "test", None))
    if prepared.bags is not None:
        return f"{len(corpus.pairs)} bags of {len(corpus.sentences)} sentences at the server"
    return f"{len(corpus.samples)} documents at the server"


_TESTS = {
    "hold_out": "samples that each client held out of its own",
    "documents": "documents set apart before there were clients",
    "official": "the data set's own split for testing",
}


def _training(experiment: Experiment) -> dict[str, Any]:
    recipe = experiment.recipe
    options = {**to_table(recipe.algorithm.options), **to_table(recipe.training)}
    sampled = f"{experiment.clients_per_round} of {len(experiment.prepared.examples.clients)}"
    return {"clients in a round": sampled, **{name: _shown(value) for name, value in options.items()}}


def _shown(value: Any) -> str:
    return json.dumps(without_folders(value), ensure_ascii=False) if not isinstance(value, str) else value


def _privacy(recipe: Recipe) -> list[str]:
    lines = ["trained by simulation: all clients' data were on one machine; in a deployment, texts stay at the clients"]
    settings = getattr(recipe, "privacy", None)
    if settings is None:
        lines.append("no differential privacy and no secure aggregation: the recipe sets neither")
    else:
        lines += [f"{name}: {_shown(value)}" for name, value in to_table(settings).items()]
    if getattr(recipe.task.options, "encoding", None) in ("words", "characters"):
        least = recipe.task.options.min_clients
        lines.append(
            f"a word is in the vocabulary only if at least {least} clients hold it; the vocabulary is in the files"
        )
    lines.append("weights can reveal something of the texts that they were trained on")
    return lines


def _limits(experiment: Experiment, dataset: str | None) -> list[str]:
    options = experiment.recipe.task.options
    lines = ["metrics are on texts of the same source; on others they will be worse"] if dataset else []
    prepared = experiment.prepared
    if prepared.positive_labels is not None or prepared.held_out is not None:
        lines.append("it classifies the relation of two mentions that are given; it does not find mentions")
    if length := getattr(options, "max_length", None):
        how = "around the mentions" if prepared.positive_labels is not None else "at the end"
        lines.append(f"texts are read up to a length of {length} ({options.encoding}); longer ones are cut {how}")
    if prepared.bags is not None:
        lines.append("a bag's scores rank facts; those of its relations need not sum to one")
        lines.append("it learnt what a knowledge base says of pairs, which their sentences need not state")
    what = "sigmoid" if isinstance(prepared.inputs, DocumentInput) else "softmax"
    lines.append(f"a probability is the model's {what}; it was not calibrated")
    return lines
