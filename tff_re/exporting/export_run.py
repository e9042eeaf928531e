"""A finished run as an export, and what the export says of the run: no text of a corpus, no path of this machine."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from datasets.catalogue import DATA_SETS, find_data_set
from tff_re.errors import UserError
from tff_re.exporting.export_model import export_model, in_float32
from tff_re.exporting.kind import Kind
from tff_re.exporting.kinds import kind_of
from tff_re.exporting.layout import TRAINING_DIGESTS_FILE
from tff_re.exporting.training_digests import TrainingDigests, digests_for_export
from tff_re.recipes.reading import Recipe, tomllib
from tff_re.recipes.structuring import to_table
from tff_re.runs.data_source import data_source
from tff_re.runs.evaluation import Evaluator, ServerEvaluator
from tff_re.runs.experiment import Experiment
from tff_re.runs.features.attack import Attack
from tff_re.runs.features.guarantee import guarantee_of
from tff_re.runs.features.shares import sums_are_masked, sums_are_secure
from tff_re.runs.finished import BuilderOf, may_be_written, open_run
from tff_re.runs.folder import RunFolder, environment, permissions
from tff_re.runs.randomness import FILE
from tff_re.runs.reading import read_history, read_summary
from tff_re.runs.warm_start import stored
from tff_re.tasks.data_paths import DataPaths
from tff_re.tasks.held_out import DEV, TEST

_TESTS = {
    "hold_out": "samples that each client held out from its own data",
    "documents": "documents set apart before the others were divided among clients",
    "official": "the data set's own split for testing",
}


def export_run(
    path: Path,
    out: Path | None,
    overwrite: bool,
    data_paths: DataPaths,
    runtime_name: str,
    *,
    formats: str = "both",
    quantise: str | None = None,
    tflite: bool = False,
    onnx: bool = False,
    huggingface: bool = False,
    last: bool = False,
    training_digests: bool | None = None,
    builder_of: BuilderOf | None = None,
) -> Path:
    """Exports the newest checkpoint of a run and returns the folder.

    The folder is `export` in the run's own by default.

    Where a round was chosen on dev, that round's weights are exported, unless `last`.

    A run's folder that may not be written is read through a copy; `out` has to lie elsewhere then. What is exported
    computes in float32, and is checked on the run's test examples; `formats`, `quantise`, `tflite`,
    `onnx` and `huggingface` are `export_model`'s, `training_digests` is `asked` of `digests_for_export`, `builder_of`
    is `open_run`'s.
    """
    if out is None and not may_be_written(path):
        raise UserError(f"{path}: cannot be written; give --out another folder")
    with open_run(path, data_paths, runtime_name, only_read=True, last=last, builder_of=builder_of) as (run, _):
        recipe, prepared = run.experiment.recipe, run.experiment.prepared
        exported, options = run.experiment, in_float32(recipe.model.options)
        if options is not recipe.model.options:
            exported = run.builder.with_model_options(run.experiment, options)
        history, start = read_history(run.folder), stored(run.folder)
        private = guarantee_of(run.experiment, history, start)  # of all rounds: which is exported may depend on others
        how = {"private": private is not None, "started_from_run": start is not None}
        digests, statement = digests_for_export(run.experiment, training_digests, **how)
        comparisons = _comparisons(run.folder)
        details = _details(run.experiment, history, run.round, run.weights, exported, private, comparisons)
        details["privacy"].append(statement)
        details["chosen"] = "the last round" if run.choice is None else run.choice.statement
        with permissions(run.folder.usual_mask):  # an export is made to be given away
            return export_model(
                out or RunFolder(path).export,
                model_name=recipe.model.name,
                model_options=recipe.model.options,
                inputs=prepared.exported_inputs(run.experiment.algorithm),
                label_names=prepared.output_names,
                weights=run.weights,
                encoding=prepared.encoding,
                details=_without_folders(details),
                probes=prepared.samples("test"),
                files=_files(run.folder) | _digests_file(digests),
                formats=formats,
                quantise=quantise,
                tflite=tflite,
                onnx=onnx,
                huggingface=huggingface,
                overwrite=overwrite,
                trust=data_paths.trust,
            )


def _details(
    experiment: Experiment,
    history: list[dict[str, float]],
    round_num: int,
    weights: Any,
    exported: Experiment,
    private: Mapping[str, Any] | None,
    comparisons: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The `details` of `export_model`.

    Args:
      experiment: the run's.
      history: its rows of metrics.csv.
      round_num: the round whose weights are exported.
      weights: these.
      exported: the experiment in the precision that the exported model computes in; may be the run's own.
      private: what the run guarantees, see `guarantee_of`.
      comparisons: what sites tell of their own models, see summary.json; None: they were not asked.
    """
    recipe, prepared = experiment.recipe, experiment.prepared
    dataset = getattr(recipe.task.options, "dataset", None)
    if dataset not in DATA_SETS:  # made up by the task itself
        dataset = None
    kind = kind_of(prepared.exported_inputs(experiment.algorithm)) or Kind()
    measured = {} if exported is experiment else _by_split(_measured(exported, weights))
    return {
        "run": hashlib.sha256(recipe.to_toml().encode()).hexdigest()[:16],
        "recipe": recipe.name,
        "task": recipe.task.name,
        **({} if dataset is None else {"dataset": dataset, "label": _label(recipe, dataset)}),
        "algorithm": recipe.algorithm.name,
        "seed": recipe.seed,
        "rounds": round_num,
        "clients": len(prepared.examples.clients),
        "metrics": _by_split(next((row for row in history if row["round"] == round_num), {})),
        **({"exported_metrics": measured} if measured else {}),
        **kind.details(exported, weights, measured.get(DEV)),
        "data": _data(experiment, kind),
        "training": _training(experiment),
        "privacy": _privacy(experiment, private),
        **({} if private is None else {"differential_privacy": private}),
        "limits": _limits(experiment, kind, dataset),
        **({} if comparisons is None else {"comparisons": comparisons}),
    }


def _comparisons(folder: RunFolder) -> Mapping[str, Any] | None:
    return read_summary(folder).get("comparisons") if folder.sites.exists() and folder.summary.exists() else None


def _files(folder: RunFolder) -> dict[str, str]:
    """Name -> content of the files next to the model: the recipe without folders, the versions of the training."""
    versions = (
        folder.environment.read_text("utf-8") if folder.environment.exists() else json.dumps(environment(), indent=2)
    )
    table = _without_folders(tomllib.loads(folder.recipe.read_text("utf-8")))
    note = "# As it was run, with the names of files and folders alone.\n"
    return {"recipe.toml": note + tomli_w.dumps(table), "environment.json": versions}


def _digests_file(digests: TrainingDigests | None) -> dict[str, str]:
    return {} if digests is None else {TRAINING_DIGESTS_FILE: digests.to_json()}


def _without_folders(value: Any) -> Any:
    """The value with every path of this machine in it cut to its last part.

    Ids of a model hub stay.
    """
    if isinstance(value, Mapping):
        return {key: _without_folders(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_folders(item) for item in value]
    if not isinstance(value, str) or "/" not in value:
        return value
    if value.startswith(FILE):  # a secret's
        return FILE + Path(value).name
    here = os.path.isabs(value) or value.startswith((".", "~")) or os.path.exists(value)
    return Path(value).name if here else value


def _label(recipe: Recipe, dataset: str) -> str | None:
    choices = find_data_set(dataset).labels
    return getattr(recipe.task.options, "label", None) or (choices[0] if choices else None)


def _by_split(metrics: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """`test/accuracy` and so on by split."""
    by_split: dict[str, dict[str, float]] = {}
    for name, value in metrics.items():
        split, _, metric = name.partition("/")
        if split in ("test", "dev", "train"):
            by_split.setdefault(split, {})[metric] = value
    return by_split


def _measured(experiment: Experiment, weights: Any) -> dict[str, float]:
    """The run's metrics of weights on its test examples, and on dev.

    It runs in the current execution context.
    """
    metrics = {}
    if experiment.prepared.sites:  # the sites hold the examples
        return metrics
    test = Evaluator(experiment, TEST)
    if not test.empty:
        metrics.update({f"{TEST}/{name}": value for name, value in test(weights).metrics.items()})
    if experiment.scoring is not None:
        metrics.update(ServerEvaluator(experiment)(weights).metrics)
    return metrics


def _data(experiment: Experiment, kind: Kind) -> dict[str, Any]:
    recipe, examples = experiment.recipe, experiment.prepared.examples
    held_out = experiment.prepared.held_out
    corpus = None if held_out is None else held_out.corpora[TEST]
    test = _TESTS.get(getattr(recipe.task.options, "test", None)) if corpus is None else kind.tested_on(corpus)
    return {
        **data_source(experiment),
        "clients": f"{len(examples.clients)}, {_of_sites(experiment) or f'by the partitioner {recipe.partition.name}'}",
        "training examples": examples.size("train"),
        "dev examples at the clients": examples.size("dev") or None,
        "test examples": examples.size("test"),
        "tested on": test,
    }


def _of_sites(experiment: Experiment) -> str | None:
    """A phrase that names the sites of the clients, or None in a simulation."""
    prepared = experiment.prepared
    return f"at the sites {', '.join(prepared.sites)}" if prepared.sites else None


def _training(experiment: Experiment) -> dict[str, Any]:
    recipe = experiment.recipe
    options = {**to_table(recipe.algorithm.options), **to_table(recipe.training)}
    sampled = f"{experiment.clients_per_round} of {len(experiment.prepared.examples.clients)}"
    if recipe.training.sampling == "poisson":
        sampled += " expected, each drawn independently (Poisson)"
    described = {
        name: value if isinstance(value, str) else json.dumps(_without_folders(value), ensure_ascii=False)
        for name, value in options.items()
    }
    return {"clients in a round": sampled, **described, **({"notes": "; ".join(recipe.notes)} if recipe.notes else {})}


def _privacy(experiment: Experiment, private: Mapping[str, Any] | None) -> list[str]:
    recipe = experiment.recipe
    lines = [
        "trained in a simulation: all clients' data were on one machine; in a deployment, texts stay at the clients"
    ]
    if (sites := _of_sites(experiment)) is not None:
        lines = [
            f"trained {sites}: texts stayed there, only sums over a site's clients left it (took_part.csv of the run)"
        ]
    secure = "; ".join(recipe.aggregation.notes()) if sums_are_secure(recipe) else "not set in the recipe"
    aggregation = f"{'' if sums_are_masked(recipe) else 'no '}secure aggregation: {secure}"
    if private is None:
        lines.append(f"no differential privacy and {aggregation}")
    else:
        lines += [f"differential privacy: {private['statement']}", f"its noise comes {private['noise']}"]
        lines += [f"covered: {line}" for line in private["covered"]]
        lines += [f"not covered: {line}" for line in private["not_covered"]]
        lines.append(aggregation)
    if getattr(recipe.task.options, "encoding", None) in ("words", "characters"):
        least = recipe.task.options.min_clients
        lines.append(
            f"a word is in the vocabulary only if at least {least} clients hold it; the vocabulary is in the files"
        )
    lines.append("weights can reveal something about the texts that they were trained on")
    return lines


def _limits(experiment: Experiment, kind: Kind, dataset: str | None) -> list[str]:
    options, attack = experiment.recipe.task.options, experiment.feature(Attack)
    lines = [] if attack is None else list(attack.options.notes())
    lines += ["metrics are on texts from the same source; on other texts they will be worse"] if dataset else []
    if kind.of_mentions:
        lines.append("it classifies the relation between two given mentions; it does not find mentions")
    if length := getattr(options, "max_length", None):
        lines.append(f"texts are read up to a length of {length} ({options.encoding}); longer ones are cut {kind.cut}")
    return [*lines, *kind.limits, f"probabilities are the model's {kind.probability}; they were not calibrated"]
