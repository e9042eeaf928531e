"""What an export's card says of the run that it comes from; no text of a corpus, and no path of this machine."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from datasets.catalogue import DATA_SETS, find_data_set
from tff_re.exporting.export_model import in_float32
from tff_re.exporting.kind import Kind
from tff_re.exporting.kinds import kind_of
from tff_re.models.inputs import BagInput
from tff_re.recipes.reading import Recipe, tomllib
from tff_re.runs.evaluation import Evaluator, ServerEvaluator
from tff_re.runs.experiment import Experiment
from tff_re.runs.folder import RunFolder, environment
from tff_re.settings import to_table
from tff_re.tasks.held_out import DEV, TEST

RECIPE_FILE, ENVIRONMENT_FILE = "recipe.toml", "environment.json"


def inputs_of(experiment: Experiment) -> Any:
    """What the exported model of an experiment is fed with: of bags whole bags, not their sentences."""
    inputs = experiment.prepared.inputs
    return inputs if experiment.prepared.bags is None else BagInput(inputs, experiment.algorithm.bag_pooling)


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
    kind = kind_of(inputs_of(experiment)) or Kind()
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
        **kind.details(exported, weights, measured.get(DEV)),
        "data": _data(experiment, kind, dataset),
        "training": _training(experiment),
        "privacy": _privacy(recipe),
        "limits": _limits(experiment, kind, dataset),
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


def _data(experiment: Experiment, kind: Kind, dataset: str | None) -> dict[str, Any]:
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
        "tested on": _tested_on(experiment, kind),
    }


def _tested_on(experiment: Experiment, kind: Kind) -> str | None:
    corpus = experiment.prepared.held_out_corpora.get(TEST)
    if corpus is not None:
        return kind.tested_on(corpus)
    return _TESTS.get(getattr(experiment.recipe.task.options, "test", None))


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
    lines.append("no differential privacy and no secure aggregation: the recipe sets neither")
    if getattr(recipe.task.options, "encoding", None) in ("words", "characters"):
        least = recipe.task.options.min_clients
        lines.append(
            f"a word is in the vocabulary only if at least {least} clients hold it; the vocabulary is in the files"
        )
    lines.append("weights can reveal something of the texts that they were trained on")
    return lines


def _limits(experiment: Experiment, kind: Kind, dataset: str | None) -> list[str]:
    options = experiment.recipe.task.options
    lines = ["metrics are on texts of the same source; on others they will be worse"] if dataset else []
    if kind.of_mentions:
        lines.append("it classifies the relation of two mentions that are given; it does not find mentions")
    if length := getattr(options, "max_length", None):
        lines.append(f"texts are read up to a length of {length} ({options.encoding}); longer ones are cut {kind.cut}")
    return [*lines, *kind.limits, f"a probability is the model's {kind.probability}; it was not calibrated"]
