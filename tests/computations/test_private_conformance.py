"""What every registered algorithm has to do under [privacy]: nothing leaves a client but its update, in the accounted
mechanism, and its public weight. A new algorithm is tested here as soon as it is registered.
"""

from __future__ import annotations

import contextlib
import functools
import os

import numpy as np
import pytest
import tensorflow as tf

from computations import algorithms
from computations.aggregators import with_noise_seed
from computations.algorithms.arranged import privatised, require_only_updates
from computations.errors import CompositionError
from computations.privacy.example_gradients import ExamplePrivacy
from computations.privacy.options import PrivacyOptions
from computations.traffic import uploads
from tests.computations import toolbox
from tests.computations.built import STATEFUL, begin, build, clients_of_round, model_of, options_of, play
from tests.computations.cases import case
from tests.computations.test_conformance import privacy_table
from tff_re.runtime import open_runtime
from tff_re.runtime.in_process import one_call
from tff_re.runtime.in_process.stages import ClientPass

pytestmark = pytest.mark.xdist_group("algorithms")

CLIP, Z = 1e-12, 1e16
"""A bound so small beside the noise, of the standard deviation 10⁴, that float32 sums of both have the noise's bits."""

OF_CLIENTS = [name for names, of_clients, _ in privacy_table() if of_clients for name in names]
OF_EXAMPLES = [name for names, _, of_examples in privacy_table() if of_examples for name in names]
IN_BAGS = [name for name in OF_EXAMPLES if name.startswith("mil_") and name != "mil_none"]
QUICK = {"fedavg", "fedpap", "feded"}


def but_slow(names):
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in names]


def unit_of(name):
    return "group" if name in IN_BAGS else "example"


@functools.cache
def protecting(name, **privacy):
    """The algorithm whose local training hides examples or groups."""
    example_privacy = ExamplePrivacy(**{"clip": CLIP, "noise_multiplier": Z, "unit": unit_of(name), **privacy})
    options = options_of(name, **{**STATEFUL, "num_clients": 2, "noise_scale": 0.0}).protecting(example_privacy)
    return algorithms.find(name).build(model_of(case(name).bags), options)


@functools.cache
def hiding_clients(name, **privacy):
    options = PrivacyOptions(**{"clip": CLIP, "noise_multiplier": Z, **privacy})
    return privatised(build(name), options, expected_clients=2, noise_multiplier=options.noise_multiplier)


def sent_by_aggregator(algorithm):
    """The types that leave a client through the aggregator, whose only values of clients are the update and its
    weight."""
    work = algorithm.client_work
    weight = work.next.type_signature.result.weight.member
    return uploads(algorithm.parts.aggregator.create(work.update_type, weight).next)


def texts(types):
    return sorted(map(str, types))


def other(clients, in_bags=False):
    """Clients with as many examples of other values: huge, not finite, and other labels."""
    changed = []
    for number, value in enumerate(clients):
        x, y = (np.array(value["examples"][name]) for name in ("x", "y"))
        x[:: 2 + number] = [1e38, -3e38, np.nan]
        changed.append(toolbox.client(-x, y if in_bags else (y + 1) % 3, value["seed"]))
    return changed


# Examples and groups


@pytest.mark.parametrize("row", privacy_table(), ids=lambda row: row[0][0])
def test_the_page_says_whose_examples_can_be_hidden(row):
    names, _, of_examples = row
    refused = pytest.raises(CompositionError, match=r"cannot hide|copies clients' sentences")
    for name in names[:1] if of_examples else names:
        with contextlib.nullcontext() if of_examples else refused:
            assert protecting(name).client_work.example_privacy.unit == unit_of(name)
    for name in set(names) & set(IN_BAGS):
        with pytest.raises(CompositionError, match="protect whole bags"):
            protecting(name, unit="example")


@pytest.mark.parametrize("name", but_slow(OF_EXAMPLES))
def test_noised_updates_and_weights_are_all_that_leaves(name):
    algorithm = protecting(name)
    assert uploads(algorithm.client_work.next) == [] and not algorithm.client_work.has_metrics
    assert texts(uploads(algorithm.next)) == texts(sent_by_aggregator(algorithm))


@pytest.fixture
def brought(monkeypatch):
    """(algorithm, clients) -> all arrays that the clients bring to the sums of a round, a list for each."""
    arrays, usual = [], ClientPass._one_client

    def one_client(self, number, scope):
        usual(self, number, scope)
        arrays.append([np.array(value) for value in tf.nest.flatten(self._brought[number])])

    monkeypatch.setattr(ClientPass, "_one_client", one_client)
    monkeypatch.setattr(one_call, "MAX_BYTES", -1)

    def brought_by(algorithm, clients):
        arrays.clear()
        with open_runtime("in-process", log_path=os.devnull, threads=1):
            play(algorithm, begin(algorithm), [0], lambda r: clients)
        return list(arrays)

    return brought_by


@pytest.mark.parametrize("name", but_slow(OF_EXAMPLES))
def test_nothing_that_leaves_depends_on_the_examples(name, brought):
    """The noise hides every bit of a clipped gradient, so that all that leaves has the same bits whatever the examples
    are; with losses that are huge or not finite, too."""
    clients = clients_of_round(0)
    first, another = (brought(protecting(name), values) for values in (clients, other(clients, case(name).bags)))
    assert any(array.size > 1 for array in first[0]) and toolbox.bits(first) == toolbox.bits(another)


def test_training_metrics_are_said_to_leave():
    algorithm = protecting("fedavg", training_metrics=True)
    assert algorithm.client_work.has_metrics and len(uploads(algorithm.client_work.next)) == 1
    require_only_updates(algorithm, PrivacyOptions(unit="example", training_metrics=True))
    with pytest.raises(CompositionError, match="statistics of the training would be sent without noise"):
        require_only_updates(algorithm, PrivacyOptions(unit="example"))


# Clients


@pytest.mark.parametrize("name", but_slow(OF_CLIENTS))
def test_clipped_updates_are_all_that_leaves(name):
    algorithm = hiding_clients(name)
    assert uploads(algorithm.client_work.next) == [] and not algorithm.client_work.has_metrics
    assert texts(uploads(algorithm.next)) == texts(sent_by_aggregator(algorithm))


@pytest.mark.parametrize("name", but_slow(OF_CLIENTS))
def test_nothing_that_the_server_keeps_depends_on_the_clients(name):
    algorithm = hiding_clients(name)
    results = []
    for clients in (clients_of_round(0), other(clients_of_round(0), case(name).bags)):
        state, _, metrics = play(algorithm, with_noise_seed(begin(algorithm), [3, 4]), [0], lambda r, c=clients: c)
        results.append((state, metrics))
    assert toolbox.bits(results[0]) == toolbox.bits(results[1])
