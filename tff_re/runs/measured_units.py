"""What a run measured on each test unit, kept for the intervals of comparisons that include the test sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from datasets.files import replace_file
from tff_re.runs.evaluation import FAILED, arranged
from tff_re.runs.experiment import Experiment
from tff_re.runs.folder import RunFolder
from tff_re.runs.training import Result
from tff_re.tasks.measured_units import MeasuredUnits, summed_by_unit


def write_test_units(
    experiment: Experiment, folder: RunFolder, result: Result, call: Callable[..., Any] | None
) -> None:
    """Writes test_units.npz, if the run has test units.

    Args:
      experiment, folder, result: the run's.
      call: calls a computation on the clients' test examples, of a simulation; None: only examples at the server are
        measured.
    """
    units = _at_server(experiment, result)
    if units is None and call is not None:
        units = _at_clients(experiment, result, call)
    if units is not None:
        replace_file(folder.test_units, units.to_bytes())


def _at_server(experiment: Experiment, result: Result) -> MeasuredUnits | None:
    evaluated = result.server_evaluation
    if evaluated is None:
        return None
    threshold = evaluated.metrics.get("dev/threshold", experiment.model.threshold)
    units = experiment.prepared.held_out.test_units(evaluated.scores, threshold)
    return None if units is None else MeasuredUnits(*units, chosen=result.chosen is not None)


def _at_clients(experiment: Experiment, result: Result, call: Callable[..., Any]) -> MeasuredUnits | None:
    """The counts of the units of the clients' test examples.

    None if the clients are at sites, which give sums over many examples only, or have no test examples, or if the
    evaluation of a client failed; and of pairs in documents, whose tests are at the server.
    """
    prepared, weights = experiment.prepared, result.weights
    ids, examples = arranged(experiment, "test")
    of_pairs = prepared.pair_relations is not None
    if prepared.sites or of_pairs or not ids or result.test is None or result.test.metrics.get(FAILED):
        return None
    if isinstance(weights, Mapping):
        pairs = zip(ids, examples, strict=True)
        counted = [call(experiment.example_statistics, weights[client], [of_client])[0] for client, of_client in pairs]
    else:
        counted = call(experiment.example_statistics, weights, examples[:])
    keys_of = prepared.test_unit_keys()
    keys = [key for client in ids for key in keys_of[client]]
    together = {name: np.concatenate([np.asarray(of_client[name]) for of_client in counted]) for name in counted[0]}
    kind = "entities" if "overlapping_predicted" in together else "classes"
    positive = prepared.measures.positive_labels
    return MeasuredUnits(
        kind,
        summed_by_unit(keys, together),
        None if positive is None else tuple(map(int, positive)),
        chosen=result.chosen is not None,
    )
