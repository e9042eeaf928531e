"""Private aggregators and whole rounds with them, on the worker and in this process."""

import math

import numpy as np
import pytest

from computations import federated as tff
from computations.aggregators import (
    AttentionFactory,
    Noise,
    PrivateAttentionFactory,
    PrivateMeanFactory,
    has_noise,
    mean,
    with_noise_seed,
)
from computations.algorithms.arranged import privatised
from computations.errors import CompositionError
from computations.federated_algorithm import recompose
from computations.privacy.options import PrivacyOptions
from computations.traffic import intrinsic_calls, round_traffic
from tests.computations import toolbox
from tests.computations.built import begin, build, clients_of_round, play
from tests.stacks import computing_on

pytestmark = pytest.mark.xdist_group("algorithms")

WEIGHT = tff.TensorType(np.float32)
SHAPES = ([2], [3, 1], [])
VALUE = tff.types.to_type([tff.TensorType(np.float32, shape) for shape in SHAPES])
SEED = (11, 12)


def updates(count, scale, seed=0):
    rng = np.random.default_rng(seed)
    return [[np.float32(scale * rng.normal(size=shape)) for shape in SHAPES] for _ in range(count)]


def aggregate(factory, values, weights=None, value_type=VALUE, number=0):
    """The output of round `number`; the rounds before it are not computed."""
    process = factory.create(value_type, WEIGHT)
    state = with_noise_seed(process.initialize(), SEED)
    if number:
        state["round"] = np.int32(number)
    return process.next(state, values, [np.float32(w) for w in weights or [1] * len(values)])


def noise(z=0.0, **options):
    return Noise(**{"clip": 1.0, "expected_clients": 4, "noise_multiplier": z, **options})


def global_norm(update):
    return math.sqrt(sum(float((np.asarray(t, float) ** 2).sum()) for t in update))


def test_the_mean_in_numpy():
    """Of five clients one does not count; two are longer than the clip; the denominator is 4 whatever the number."""
    sent, weights = [*updates(3, 0.2), *updates(2, 5.0)], [3, 200, 0, 1, 1]
    assert [global_norm(u) > 1.0 for u in sent] == [False, False, False, True, True]
    wanted = [0.0] * 3
    for update, weight in zip(sent, weights, strict=True):
        factor = (weight > 0) * min(1, 1 / global_norm(update)) / 4
        wanted = [total + factor * t.astype(float) for total, t in zip(wanted, update, strict=True)]
    output = aggregate(PrivateMeanFactory(noise()), sent, weights)
    toolbox.assert_close(list(output.result), wanted, 1e-6)
    assert dict(output.measurements) == {"privacy/clip": 1.0}
    assert not output.state["noise_seed"].any() and output.state["round"] == 1


@pytest.mark.parametrize("granularity", ["layer", "model"])
def test_attention_without_clipping_and_noise_is_attention(granularity):
    sent, weights = updates(5, 0.3), [1, 0, 7, 1, 1]
    wide = noise(clip=6.0, expected_clients=1)
    for c in (None, 0.1):
        ours = aggregate(PrivateAttentionFactory(wide, granularity, c), sent, weights)
        theirs = AttentionFactory(granularity).create(VALUE, WEIGHT)
        theirs = theirs.next(theirs.initialize(), sent, [np.float32(w) for w in weights])
        toolbox.assert_close(list(ours.result), list(theirs.result), 1e-6)


def test_attention_at_its_bound_in_numpy():
    """Norms 3 and .4 with S = 1: shares e^0 and e^-.6 of the first one shrunk to 1 and the second as it is."""
    value_type = tff.types.to_type([tff.TensorType(np.float32, [2])])
    sent = [[np.float32([3, 0])], [np.float32([0, 0.4])]]
    (result,) = aggregate(PrivateAttentionFactory(noise(), "model"), sent, value_type=value_type).result
    e = math.exp(-0.6)
    np.testing.assert_allclose(result, [1 / (1 + e), 0.4 * e / (1 + e)], atol=1e-6)


WIDE = tff.types.to_type([tff.TensorType(np.float32, [20_000]), tff.TensorType(np.float32, [20_000])])


@pytest.mark.parametrize(
    "factory, deviation",
    [
        # z clip / expected; z sqrt(S^2 + c^2) over the normaliser's floor, z sqrt(S^2 + c^2) / c: c
        (PrivateMeanFactory(noise(2.0, clip=0.7)), 2 * 0.7 / 4),
        (PrivateAttentionFactory(noise(9.0, clip=0.7), "model", 0.3), None),
        (PrivateMeanFactory(noise(2.0, clip=0.7, tree=True)), 2 * 0.7 / 4),
    ],
    ids=["mean", "attention", "tree"],
)
def test_a_round_without_clients_has_its_noise(runtimes, factory, deviation):
    output = aggregate(factory, [], value_type=WIDE)
    values = np.concatenate(list(output.result))
    if deviation is None:  # the noise of the normaliser is one number, at least its deviation
        assert 0.2 < values.std() <= 0.3 * 1.02
    else:
        assert values.std() == pytest.approx(deviation, rel=0.02)
    for opened in runtimes.values():
        with computing_on(opened):
            again = aggregate(factory, [], value_type=WIDE)
        toolbox.assert_close(list(again.result), list(output.result), 1e-7)
    assert output.state["round"] == 1


def test_the_noise_is_the_same_whoever_comes_first():
    sent = updates(3, 5.0)
    factory = PrivateMeanFactory(noise(1.0, quantile=0.5))
    ahead, reversed_order = aggregate(factory, sent), aggregate(factory, sent[::-1])
    toolbox.assert_close(list(ahead.result), list(reversed_order.result), 1e-6)
    assert ahead.state["clip"] == reversed_order.state["clip"]
    plain = aggregate(PrivateMeanFactory(noise(0.0)), sent).result
    later = aggregate(factory, sent, number=1).result
    assert all(np.abs(a - b).max() > 1e-3 for a, b in zip(ahead.result, plain, strict=True))
    assert all(np.abs(a - b).max() > 1e-3 for a, b in zip(ahead.result, later, strict=True))


def test_nobody_but_the_noise_sees_who_was_clipped():
    """With a fixed bound no count leaves the clients; with a quantile one number does."""
    fixed, follows = (
        PrivateMeanFactory(noise(1.0, **options)).create(VALUE, WEIGHT).next for options in ({}, {"quantile": 0.5})
    )
    model = 4 * (2 + 3 + 1)
    assert round_traffic(fixed).up == model and round_traffic(follows).up == model + 4
    attention = PrivateAttentionFactory(noise(1.0), "layer").create(VALUE, WEIGHT).next
    assert round_traffic(attention).up == model + 3 * 4
    assert len([c for c in intrinsic_calls(attention) if c.function.uri == "federated_aggregate"]) == 1


def test_attention_has_no_tree():
    with pytest.raises(ValueError, match="that round's normaliser"):
        PrivateAttentionFactory(noise(1.0, tree=True))
    with pytest.raises(ValueError, match="granularity"):
        PrivateAttentionFactory(noise(1.0), "tensor")


# Whole rounds


def private(name, z=0.0, **options):
    return privatised(build(name), PrivacyOptions(**options), expected_clients=2, noise_multiplier=z)


def weights_after(algorithm, rounds=1):
    state, metrics = begin(algorithm), []
    for number in range(rounds):
        state = with_noise_seed(state, SEED) if has_noise(algorithm) else state
        state, _, of_round = play(algorithm, state, [number], clients_of_round)
        metrics += of_round
    return list(state["weights"].trainable), state, metrics


def test_a_wide_bound_without_noise_is_the_algorithm():
    by_all = recompose(build("fedavg", weighting="uniform"), aggregator=mean())
    assert not has_noise(by_all)
    toolbox.assert_close(weights_after(private("fedavg", clip=1e3))[0], weights_after(by_all)[0], 1e-6)
    toolbox.assert_close(weights_after(private("fedpa", clip=10.0))[0], weights_after(build("fedpa"))[0], 2e-6)


@pytest.mark.parametrize("name", ["fedavg", "fedpa"])
def test_two_rounds_with_noise(runtimes, name):
    algorithm = private(name, 0.5, clip=0.1, clip_quantile=0.5)
    assert has_noise(algorithm)
    weights, state, metrics = weights_after(algorithm, 2)
    if name == "fedpa":
        for opened in runtimes.values():
            with computing_on(opened):
                toolbox.assert_close(weights_after(algorithm, 2)[0], weights, 1e-6)
    assert all(np.abs(w - s).max() > 1e-3 for w, s in zip(weights, toolbox.start_weights(), strict=True))
    assert state["aggregator"]["round"] == 2 and not state["aggregator"]["noise_seed"].any()
    assert metrics[1]["aggregator"].keys() == {"privacy/clip", "privacy/clipped_share"}
    assert metrics[1]["aggregator"]["privacy/clip"] != metrics[0]["aggregator"]["privacy/clip"]


def test_statistics_of_the_training_stay_at_the_clients():
    quiet, open_ = private("fedavg"), private("fedavg", training_metrics=True)
    assert not quiet.next.type_signature.result.metrics.member["work"]
    assert round_traffic(open_.next).up - round_traffic(quiet.next).up == 5 * 4
    assert weights_after(quiet)[2][0]["work"] == ()
    assert weights_after(open_)[2][0]["work"]["clients/counted"] == 2


def test_without_a_seed_no_step_is_made():
    """The noise is NaN then, and TFF's finalizer takes no step along an update that is not finite."""
    algorithm = private("fedavg", 1.0)
    state, _, _ = play(algorithm, begin(algorithm), [0], clients_of_round)
    toolbox.assert_close(list(state["weights"].trainable), toolbox.start_weights(), 0)


@pytest.mark.parametrize(
    "name, needed",
    [
        ("scaffold", "control variates.*one noisy sum"),
        ("fedcmc", "classifier vector.*must be chosen privately"),
        ("lazy_mil", "Lazy MIL sends.*every triple needs a private choice"),
        ("lazy_mil_alias", "copies clients' sentences"),
        ("feded", "FedED.*a client's predictions need a common bound"),
    ],
)
def test_what_is_not_covered_is_named(name, needed):
    with pytest.raises(CompositionError, match=needed):
        private(name)


@pytest.mark.parametrize(
    "name, options, reason",
    [
        ("fedpa", {"mechanism": "tree"}, "that round's normaliser"),
        ("fedavg", {"mechanism": "tree", "clip_quantile": 0.5}, "the same bound"),
        ("fedavg", {"mechanism": "tree", "noise_seed": "system"}, "resumed run"),
        ("fedavg", {"normaliser": 1.0}, "is only for attention"),
        ("fedavg", {"unit": "example"}, "local training"),
    ],
)
def test_options_that_do_not_fit(name, options, reason):
    with pytest.raises(CompositionError, match=reason):
        private(name, **options)


def test_another_aggregator_is_not_taken_for_a_mean():
    other = tff.aggregators.MeanFactory()
    with pytest.raises(CompositionError, match="sensitivity to one client is not known"):
        privatised(
            recompose(build("fedavg"), aggregator=other), PrivacyOptions(), expected_clients=2, noise_multiplier=1.0
        )
