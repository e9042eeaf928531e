"""A site's own models, trained alone or fine-tuned, and how they are compared with the federated one at the site.

The models stay in the site's folder of the run:

    state/runs/RUN/alone/                    the site's own training as a run: metrics.csv, checkpoints, model.keras
    state/runs/RUN/tuned.keras               the federated model after fine-tuning at the site
    state/runs/RUN/compared-alone.json       both models on the site's test examples, and what left the site of it
    state/runs/RUN/compared-tuned.json
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from computations import federated as tff
from computations.algorithms.fine_tuning import build_fine_tuned
from computations.local_model import LABEL
from datasets.federated import ClientExamples, FederatedExamples
from tff_re.recipes.reading import Recipe
from tff_re.runs.checkpoints import latest_round
from tff_re.runs.experiment import Experiment, ExperimentBuilder
from tff_re.runs.features.personalise import fine_tuning_settings
from tff_re.runs.folder import RunFolder
from tff_re.runs.randomness import client_seed
from tff_re.runs.results import write_keras
from tff_re.runs.run import run_in
from tff_re.runs.setup import Setup
from tff_re.runs.training import RoundReport, final_weights
from tff_re.runtime import open_runtime
from tff_re.runtime.events import MODELS_COMPARED
from tff_re.sites.comparison_messages import NUMBERS, Alone, AloneAnswer, Compare, CompareAnswer
from tff_re.sites.comparisons import compared_models
from tff_re.sites.decisions import Decisions
from tff_re.sites.messages import Lost, Refused
from tff_re.sites.policy import Site
from tff_re.sites.prepared import Held, SitesPrepared
from tff_re.sites.program import value_of
from tff_re.tasks.measured_units import MeasuredUnits, summed_by_unit
from tff_re.tasks.resampling import difference_interval, metrics_of_draws

_log = logging.getLogger("tff_re.sites")

STEP_SECONDS = 60.0
"""After this time a site answers how far it is, at the end of a round, and is asked again."""

LEAST_UNITS = 8
"""With fewer test documents (or examples, where these are single) a comparison is open."""

_F1 = "test/f1"
"""Of `resampling`, for counts of correct, predicted and true ones."""

_LOCK = threading.Lock()
"""Keras draws initial weights from seeds of the process, which may hold several sites in tests."""


class OwnModels:
    """Trains a site's own models, and compares them."""

    def __init__(self, site: Site, decisions: Decisions):
        self._site, self._decisions = site, decisions

    def alone(self, run: Any, question: Alone) -> AloneAnswer:
        """Train alone for about `STEP_SECONDS`.

        Raises:
          Refused: the recipe does not ask for it.
          UserError: the training diverged.
        """
        if "alone" not in compared_models(run.recipe):
            raise Refused("the recipe has no [baseline]")
        with _LOCK:
            experiment, folder = self._experiment(run), _folder(run)
            began = time.monotonic()

            def after_round(report: RoundReport) -> None:
                if time.monotonic() - began > STEP_SECONDS and report.round < report.rounds:
                    raise _Paused

            with contextlib.suppress(_Paused):
                if not folder.summary.exists():
                    ways = {"resume": folder.recipe.exists(), "on_round": after_round, "details": False}
                    run_in(_AtSite(experiment), experiment.recipe, folder.path, **ways)
                if not folder.model.exists():  # not reached where the training pauses
                    write_keras(experiment, self._alone_weights(experiment, folder), folder.model)
            finished = folder.summary.exists()
            return AloneAnswer(site=self._site.options.name, rounds=latest_round(folder), finished=finished)

    def compare(self, run: Any, question: Compare) -> CompareAnswer:
        """Compare both models on the site's test examples, once in a run.

        Raises:
          Refused: the recipe does not ask for it, or it was asked for with other weights before.
          Lost: the site has not trained alone yet.
          TypeError: the weights are not those of the model.
        """
        if question.what not in compared_models(run.recipe):
            raise Refused("the recipe does not ask for this comparison")
        name, request = f"compared-{question.what}.json", _digest(question.arrays)
        stored = run.store.read(name)
        if stored is None:
            record = {"request": request, "disclosed": self._decisions.comparison(run.recipe)}
            with _LOCK:
                record |= self._compared(run, question)
            run.store.write(name, json.dumps(record, indent=2).encode())
            said = {name: record[name] for name in ("measure", "low", "high", "verdict", "disclosed")}
            first, second = (record[name] for name in NUMBERS[:2])
            MODELS_COMPARED.log(_log, run=question.run[:8], what=question.what, before=first, after=second, **said)
        else:
            record = json.loads(stored)
        if record["request"] != request:
            raise Refused("the comparison was asked for with other weights before; it is made once in a run")
        disclosed = record["disclosed"]
        numbers = np.array([record[key] for key in NUMBERS]) if disclosed == "interval" else None
        verdict = None if disclosed == "nothing" else record["verdict"]
        return CompareAnswer(site=self._site.options.name, disclosed=disclosed, verdict=verdict, numbers=numbers)

    def _compared(self, run: Any, question: Compare) -> dict[str, Any]:
        experiment, data = run.experiment, pooled(run.experiment.prepared, self._site.options.name)
        model, (client,) = experiment.model, data.examples.clients
        if not len(client.test[LABEL]):
            raise Refused("it has no test examples to compare models on")
        values = iter(question.arrays)
        trainable, others = value_of(tff.types.to_type(model.weights_type), values)
        if next(values, None) is not None:
            raise TypeError("there are more arrays than weights")
        federated = tff.learning.models.ModelWeights(list(trainable), list(others))
        if question.what == "alone" and not _folder(run).summary.exists():
            raise Lost("it has not trained alone yet")
        with open_runtime("in-process", log_path=run.store.folder / "compared.log", clients=1):
            if question.what == "alone":
                models = self._alone_weights(self._experiment(run), _folder(run)), federated
            else:
                models = federated, self._tuned(run, client, federated)
            examples = [model.arrange(client.test)]
            before, after = (_counts(*experiment.example_statistics(weights, examples)) for weights in models)
        documents = [document for c in _here(experiment.prepared) for document in run.data.test_documents(c.client_id)]
        measured = compared(before, after, documents)
        return {"what": question.what, "measure": data.measures.quality, "examples": len(before), **measured}

    def _tuned(self, run: Any, client: ClientExamples, federated: Any) -> Any:
        """Fine-tune the federated weights, and store the model."""
        experiment, model, name = run.experiment, run.experiment.model, self._site.options.name
        fine_tuned = build_fine_tuned(model, **fine_tuning_settings(run.recipe, model))
        seed = client_seed(run.recipe.seed, 0, name)
        (weights,) = fine_tuned(federated, [OrderedDict(examples=model.arrange(client.train), seed=seed)])
        write_keras(experiment, weights, run.store.folder / "tuned.keras")
        return weights

    def _experiment(self, run: Any) -> Experiment:
        if run.alone is None:
            data = pooled(run.prepared, self._site.options.name)
            run.alone = _Builder(data).build(alone_recipe(run.recipe))
        return run.alone

    def _alone_weights(self, experiment: Experiment, folder: RunFolder) -> Any:
        weights, _, _ = final_weights(experiment, folder)
        return weights[self._site.options.name]


class _Paused(Exception):
    """The time of a step is over."""


class _AtSite(Setup):
    """A run of this site only."""

    def __init__(self, experiment: Experiment):
        self._experiment = experiment

    def build(self, recipe, folder, data_paths, start, *, resume):
        """See `Setup`."""
        return self._experiment

    def open(self, folder, stack):
        """See `Setup`."""
        return stack.enter_context(open_runtime("in-process", log_path=folder.log, clients=1))


class _Builder(ExperimentBuilder):
    """Builds an experiment on these data."""

    def __init__(self, data: SitesPrepared):
        super().__init__()
        self._data = data

    def prepare(self, recipe: Recipe) -> SitesPrepared:
        """Return the data."""
        return self._data


def alone_recipe(recipe: Recipe) -> Recipe:
    """Return the recipe by which a site trains alone: as with [baseline] in a simulation, with one client."""
    one_client = {"clients_per_round": 1, "client_fraction": None, "sampling": "fixed", "over_sampling": 1.0}
    training = attrs.evolve(recipe.training, **one_client, min_clients=0, attempts=None, tolerated_failures=None)
    of_federation = ("privacy", "aggregation", "failures", "server_optimizer", "personalise", "attack", "track")
    return dataclasses.replace(recipe, training=training, **dict.fromkeys(of_federation))


def pooled(prepared: SitesPrepared, site: str) -> SitesPrepared:
    """Return these data with all examples of the site's clients at one client, which is called as the site."""

    def together(split: str) -> dict[str, np.ndarray] | None:
        parts = [getattr(client, split) for client in _here(prepared)]
        if any(part is None for part in parts):
            return None
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    client = ClientExamples(site, *(together(split) for split in ("train", "test", "dev")))
    examples = FederatedExamples((client,), prepared.examples.label_names, None)
    return dataclasses.replace(prepared, examples=examples, sites=(site,))


def compared(before: np.ndarray, after: np.ndarray, documents: list[str]) -> dict[str, Any]:
    """Return the measure of two models, their difference, its interval and the verdict.

    The test units that are drawn for the interval are documents, or examples if it is not known of which documents they
    are. Both models are measured on the same units.

    Args:
      before, after: see `_counts`.
      documents: of each example.
    """
    known = len(documents) == len(before)
    keys = documents if known else [f"{number:09}" for number in range(len(before))]
    first, second = (MeasuredUnits("pairs", summed_by_unit(keys, {"counts": counts})) for counts in (before, after))
    low, high = difference_interval({0: second}, {0: first}, _F1)
    values = [float(metrics_of_draws(units, np.ones([1, len(units)]))[_F1][0]) for units in (first, second)]
    verdict = "open" if len(first) < LEAST_UNITS else "gain" if low > 0 else "loss" if high < 0 else "open"
    numbers = dict(zip(NUMBERS, (*values, values[1] - values[0], low, high), strict=True))
    return {**numbers, "verdict": verdict, "units": len(first), "unit": "document" if known else "example"}


def _counts(statistics: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the correct, predicted and true classes, or entities, of each example, float [n, 3].

    A classifier of whole examples predicts one class of each, so that F1 of these counts is its accuracy.
    """
    names = ("true_positives", "predicted", "actual")
    return np.stack([np.asarray(statistics[name], np.float64).sum(axis=1) for name in names], axis=1)


def _here(prepared: SitesPrepared) -> list[ClientExamples]:
    return [client for client in prepared.examples.clients if not isinstance(client.train, Held)]


def _folder(run: Any) -> RunFolder:
    return RunFolder(Path(run.store.folder) / "alone")


def _digest(arrays: tuple[np.ndarray, ...]) -> str:
    content = hashlib.sha256()
    for array in arrays:
        content.update(f"{array.dtype.str} {array.shape} ".encode())
        content.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return content.hexdigest()
