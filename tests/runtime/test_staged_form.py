"""Where a computation is cut, read off its programs; what they compute is tested with the runtime `remote`."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from computations.errors import CompositionError
from computations.evaluation import build_evaluation
from computations.native_form import native_form
from tests.computations.toolbox import linear_model
from tff_re.runtime.remote.staged_form import ARGUMENT, SERVER_RESULT, ClientResult, Stage, kept, merged, staged_form

NUMBERS = tff.FederatedType(np.float32, tff.CLIENTS)


def form(function, *types):
    return staged_form(native_form(tff.federated_computation(function, *types)))


@tff.tensorflow.computation(np.float32, np.float32)
def minus(a, b):
    return a - b


def test_one_sum():
    found = form(lambda values: tff.federated_sum(values), NUMBERS)
    (stage,) = found.stages
    assert stage.work.inputs == (ARGUMENT,) and stage.work.outputs == (Stage.PARTIALS,)
    assert stage.merge(3).inputs == ("partials 0", "partials 1", "partials 2")
    assert found.at_clients is None and found.at_server.inputs == (merged(0),) and found.result == (0,)
    assert not found.groups_need(0)


def test_what_a_later_stage_needs_is_kept_and_not_made_again():
    half = tff.tensorflow.computation(lambda a: a / 2, np.float32)

    def differences(values):
        halves = tff.federated_map(half, values)
        largest = tff.federated_broadcast(tff.federated_max(halves))
        return tff.federated_sum(tff.federated_map(minus, (halves, largest)))

    found = form(differences, NUMBERS)
    assert found.stages[0].work.outputs == (Stage.PARTIALS, kept(0))
    assert found.stages[1].work.inputs == (kept(0), merged(0))  # not the argument: nothing is halved twice
    assert found.groups_need(0) and not found.groups_need(1)


def test_what_is_left_at_clients_after_the_last_aggregation():
    def shifted(values):
        least = tff.federated_min(values)
        return tff.federated_map(minus, (values, tff.federated_broadcast(least))), least

    found = form(shifted, NUMBERS)
    assert found.at_clients.inputs == (ARGUMENT, merged(0)) and found.at_clients.outputs == (kept(1),)
    assert found.result == (ClientResult(kept(1), 0), 0) and found.groups_need(0)
    assert found.at_server.outputs == (SERVER_RESULT,)


def test_a_computation_without_an_aggregation():
    found = staged_form(native_form(build_evaluation(linear_model(3, 3))))
    assert not found.stages and found.at_server is None
    assert found.at_clients.inputs == (ARGUMENT,) and found.result == (ClientResult(kept(0), 0),)


def test_what_needs_all_clients_in_one_place():
    with pytest.raises(CompositionError, match="federated_secure_sum_bitwidth needs all clients"):
        form(lambda values: tff.federated_secure_sum_bitwidth(values, 8), tff.FederatedType(np.int32, tff.CLIENTS))


def test_no_arguments():
    with pytest.raises(CompositionError, match="with arguments"):
        staged_form(native_form(tff.tensorflow.computation(lambda: tf.constant(1))))
