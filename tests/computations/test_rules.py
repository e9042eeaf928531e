"""The rules of [aggregation] around every algorithm that sends weights: a client whose update is NaN is as if it were
not there, compressed or not, and what does not go together is refused."""

import collections
import functools
import importlib
import sys

import numpy as np
import pytest
import tensorflow as tf

from computations import federated as tff
from computations.aggregation_rules import RULES, aggregation_options
from computations.aggregation_rules.rfa import GeometricMedianFactory
from computations.aggregators.collected import collected_median
from computations.aggregators.defence import defended
from computations.aggregators.weighed_means import NormalisedMeanFactory, WeighedMeanFactory
from computations.algorithms.aggregation import require_round, with_aggregation
from computations.client_work.attack_options import AttackOptions
from computations.client_work.attacks import attacked
from computations.errors import CompositionError
from computations.federated_algorithm import recompose
from tests.computations.built import NAMES, begin, build, play
from tests.computations.test_robust import HONEST, VALUE, WEIGHT, aggregate, vector
from tests.computations.toolbox import client, examples, start_weights
from tests.stacks import computing_on
from tests.upper_floors import builder, tiny
from tff_re.errors import UserError
from tff_re.recipes.keys import markdown
from tff_re.runtime.in_process import kept, one_call

pytestmark = pytest.mark.xdist_group("algorithms")

# Every rule, and every seam that an algorithm may have: attention, client state, values beside the update, bags, a
# selection over clients. The last has an algorithm's own rule.
PAIRS = {
    "fedpap": {"rule": "rfa", "clip_quantile": 0.5},
    "scaffold": {"rule": "krum", "krum_bad": 0},
    "fedcmc": {"rule": "median"},
    "moon": {"rule": "trimmed_mean", "trimmed_share": 0.34},
    "fedavg": {"rule": "fltrust"},
    "mil_att_ra": {"rule": "mean", "zeroing_quantile": 0.9, "zeroing_factor": 3.0},
    "lazy_mil": {"rule": "attention", "clip": 1.0},
    "fedatt": {"clip": 0.5, "zeroing": 20.0},
    # A number of steps beside the update, and a sum of weights behind it.
    "fednova": {"rule": "rfa", "clip": 1.0},
    "feddyn": {"rule": "median"},
}
# For each rule test_robust.py tests that nothing passes which is not finite; these have every seam.
SEAMS = ("fedpap", "scaffold", "fedavg", "lazy_mil", "fednova")
ATTACKER = 1
SIZES = (6, 15, 9, 12)


@functools.cache
def ruled(name, **more):
    """The algorithm of a pair in which clients may send NaN."""
    plain = build(name)
    plain = recompose(plain, client_work=attacked(plain.client_work, "nan"))
    return with_aggregation(plain, aggregation_options()(**PAIRS[name], **more), clients=len(SIZES))


def rounds(algorithm, number, attackers=(), left_out=()):
    """(global weights, metrics) after so many rounds of the clients that are not left out."""

    def clients_of_round(round_num):
        clients = [client(*examples(n, seed=n), seed=(round_num, k)) for k, n in enumerate(SIZES)]
        flagged = [collections.OrderedDict(c, attacks=np.bool_(k in attackers)) for k, c in enumerate(clients)]
        return [c for k, c in enumerate(flagged) if k not in left_out]

    state, _, metrics = play(algorithm, begin(algorithm), range(number), clients_of_round)
    assert all(np.isfinite(t).all() for t in tf.nest.flatten(state) if t is not None)
    return vector(state["weights"].trainable), metrics


@pytest.mark.parametrize("name", [n if n in SEAMS else pytest.param(n, marks=pytest.mark.slow) for n in PAIRS])
def test_a_client_that_sends_nan_is_as_if_it_were_not_there(name):
    bad, metrics = rounds(ruled(name), 1, attackers=[ATTACKER])
    honest, fine = rounds(ruled(name), 1)
    without, _ = rounds(ruled(name), 1, left_out=[ATTACKER])
    # FLTrust gives it no trust, and there is nothing to screen out.
    assert metrics[0]["aggregator"]["robust/screened"] == (name != "fedavg")
    assert fine[0]["aggregator"]["robust/screened"] == 0
    assert np.abs(bad - vector(start_weights())).max() > 1e-3 and np.abs(bad - honest).max() > 1e-4
    if name != "lazy_mil":  # whose selection the attacker takes part in
        np.testing.assert_allclose(bad, without, rtol=1e-5, atol=1e-6)


def test_two_rounds_are_those_of_the_worker(runtimes):
    """Client state, a collecting rule; a quantile that follows, re-weighted means, a second stage."""
    for name in ("scaffold", "fedpap"):
        here, metrics = rounds(ruled(name), 2, attackers=[ATTACKER])
        for opened in runtimes.values():
            with computing_on(opened):
                there, _ = rounds(ruled(name), 2, attackers=[ATTACKER])
            np.testing.assert_allclose(here, there, rtol=2e-5, atol=2e-5)
    norms = [m["aggregator"]["robust/clipping_norm"] for m in metrics]
    assert norms[0] == 1 and norms[1] != 1


def test_updates_that_wait_in_a_file_give_the_same_to_the_bit(monkeypatch):
    in_memory, _ = rounds(ruled("fedpap"), 1)
    monkeypatch.setattr(kept, "MOST_IN_MEMORY", 0)
    monkeypatch.setattr(kept, "SMALLEST", 0)
    monkeypatch.setattr(one_call, "MAX_BYTES", -1)  # in stages
    in_file, _ = rounds(ruled("fedpap"), 1)
    assert in_file.tobytes() == in_memory.tobytes()


def test_compressed_updates_go_through_rules():
    whole = ruled("fedavg", compression="top_k", top_share=1.0)
    np.testing.assert_allclose(rounds(whole, 1)[0], rounds(ruled("fedavg"), 1)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.slow  # eight bits without a rule and a compressed update with one are among the quick tests
def test_updates_of_eight_bits_go_through_rules():
    eight, plain = (rounds(ruled("fedpap", **more), 1)[0] for more in ({"compression": "stochastic_8bit"}, {}))
    assert 0 < np.abs(eight - plain).max() < 0.05


@pytest.mark.parametrize("name", [name for name in NAMES if name not in PAIRS])
def test_every_other_algorithm_takes_a_rule(name):
    """Or refuses them: FedED's clients send predictions; the control of FedED has examples at its server already."""
    options = [{"rule": "rfa"}, {"rule": "median"}, {"rule": "fltrust"}, {"clip": 1.0}]
    if name == "feded":
        for refused in options:
            with pytest.raises(CompositionError, match=r"clients send predictions; .*'median'"):
                with_aggregation(build(name), aggregation_options()(**refused), clients=2)
        return
    if name == "fedavg_server_pass":
        with pytest.raises(CompositionError, match="already uses the server's examples for another purpose"):
            with_aggregation(build(name), aggregation_options()(rule="fltrust"), clients=2)
        options.remove({"rule": "fltrust"})
    chosen = options[NAMES.index(name) % len(options)]
    plain, algorithm = build(name), with_aggregation(build(name), aggregation_options()(**chosen), clients=2)
    names = tff.structure.name_list(algorithm.next.type_signature.result.metrics.member.aggregator)
    assert "robust/screened" in names and algorithm.bag_pooling == plain.bag_pooling
    takes_examples = plain.server_type is not None or chosen.get("rule") == "fltrust"
    assert (algorithm.server_type is not None) == takes_examples
    algorithm.next.type_signature.result.state.check_equivalent_to(algorithm.next.type_signature.parameter[0])


def test_what_stands_beside_an_update_goes_around_a_rule():
    """FedNova's tau_eff becomes a median, and the weight behind FedDyn's update that of the clients that passed."""
    directions, sizes = np.float32([[1, 2], [3, -1], [2, 0], [np.nan, 0], [1e3, 1e3]]), np.float32([2, 4, 8, 6, 1e9])
    vector_type, weight = tff.TensorType(np.float32, [2]), tff.TensorType(np.float32)
    stepped = tff.types.to_type(collections.OrderedDict(direction=[vector_type], size=np.float32))
    process = defended(NormalisedMeanFactory(defended(collected_median()))).create(stepped, weight)
    values = [collections.OrderedDict(direction=[d], size=n) for d, n in zip(directions, sizes, strict=True)]
    output = process.next(process.initialize(), values, [1.0] * 5)
    passed = [0, 1, 2, 4]
    np.testing.assert_allclose(output.result[0], 6 * np.median(directions[passed], axis=0))  # of 2, 4, 8 and 1e9
    assert output.measurements["robust/screened"] == 1

    process = defended(WeighedMeanFactory(defended(GeometricMedianFactory()))).create([vector_type], weight)
    output = process.next(process.initialize(), [[d] for d in directions], [1.0, 2.0, 1.0, 9.0, 0.5])
    assert output.result["weight"] == 4.5 and np.abs(output.result["update"][0]).max() < 4


def test_fednova_refuses_the_rule_that_undoes_it():
    with pytest.raises(CompositionError, match=r"undoes FedNova's division .* set algorithm.name = 'fedavg'"):
        with_aggregation(build("fednova"), aggregation_options()(rule="fltrust"), clients=2)


# What every registered rule has to do. Where a round has clients enough it combines what honest clients send.


def conforms(name):
    options = aggregation_options()(rule=name)
    assert RULES[name].title and RULES[name].build.__doc__
    RULES[name].require_round(options, 100)
    assert RULES[name].largest_factor(options) >= 1
    process = defended(RULES[name].build(options)).create(VALUE, WEIGHT)
    process.next.type_signature.result.result.member.check_equivalent_to(VALUE)
    honest, _, _ = aggregate(process, HONEST)
    assert 0.1 < honest @ np.mean(HONEST, axis=0) / np.sum(np.square(HONEST), axis=1).mean() < 2
    reordered, _, _ = aggregate(process, HONEST[::-1])
    np.testing.assert_allclose(reordered, honest, rtol=1e-5, atol=1e-6)
    with_nan, metrics, _ = aggregate(process, [*HONEST[:4], np.full(13, np.nan), *HONEST[4:]])
    np.testing.assert_allclose(with_nan, honest, rtol=1e-5, atol=1e-6)
    assert metrics["robust/screened"] == 1 and metrics.get("robust/collected", 9) == 9
    assert ("robust/collected" in metrics) == RULES[name].collects
    assert not aggregate(process, HONEST, weights=[0] * 9)[0].any()


@pytest.mark.parametrize("name", RULES)
def test_a_registered_rule_conforms(name):
    conforms(name)


@pytest.fixture
def toy():
    sys.modules.pop("tests.computations.toy_rule", None)
    yield importlib.import_module("tests.computations.toy_rule")
    RULES.remove("toy")


def test_a_rule_in_one_file(toy):
    conforms("toy")
    rows = [line for line in markdown().splitlines() if "`toy`" in line]
    assert len(rows) == 2 and "`toy`: a part of the weighted mean" in rows[0] and rows[1].startswith("| `toy_factor` |")
    experiment = builder().build(tiny("aggregation.rule=toy", "aggregation.toy_factor=0.25"))
    assert "updates are combined by a part of their mean, in place of the algorithm's own way" in experiment.notes
    assert "a toy" in experiment.notes and "toy_factor = 0.25" in experiment.recipe.to_toml()
    for keys, message in (
        (["aggregation.toy_factor=2"], "'aggregation.toy_factor' needs rule = 'toy'"),
        (["aggregation.rule=toy", "aggregation.toy_factor=0"], "'aggregation.toy_factor' must be above 0"),
        (["aggregation.rule=toy", "aggregation.secure=simulated"], "needs secure = 'none': it is a toy"),
    ):
        with pytest.raises(UserError, match=message):
            tiny(*keys)
    ends = {}
    for rule in ("toy", "mean"):
        algorithm = with_aggregation(build("fedavg"), aggregation_options()(rule=rule), clients=len(SIZES))
        state = play(algorithm, begin(algorithm), [0], lambda _: [client(*examples(n, seed=n)) for n in SIZES])[0]
        ends[rule] = vector(state["weights"].trainable) - vector(start_weights())
    np.testing.assert_allclose(ends["toy"], 0.5 * ends["mean"], rtol=1e-4, atol=1e-6)


def test_a_rule_that_is_gone_is_no_choice_any_more():
    with pytest.raises(UserError, match=r"'aggregation.rule' must be one of 'attention', "):
        tiny("aggregation.rule=toy")


def test_no_rule_is_the_algorithm_itself():
    assert with_aggregation(build("fedavg"), aggregation_options()(), clients=2) is build("fedavg")


UPDATE = tff.types.to_type([tff.TensorType(np.float32, [1000])])


@pytest.mark.parametrize(
    ("options", "expected", "max_clients", "message"),
    [
        ({"rule": "krum", "krum_bad": 3}, 8, 8, "krum_bad = 3 needs 9 clients per round, but 8 take part"),
        ({"rule": "krum", "krum_bad": 3, "krum_chosen": 5}, 9, 9, "krum_chosen is 5, .* 4 can be chosen"),
        ({"rule": "trimmed_mean", "trimmed_share": 0.09}, 10, 10, "trimmed_share = 0.09 of 10 .* leaves out no client"),
        ({"rule": "median"}, 10, 25, "aggregation.rule = 'median' collects .* 25 clients need about 2 MB"),
    ],
)
def test_rounds_that_a_rule_cannot_work_on(options, expected, max_clients, message):
    with pytest.raises(CompositionError, match=message):
        require_round(
            aggregation_options()(**options), UPDATE, expected=expected, max_clients=max_clients, free_bytes=1e6
        )
    fine = {**options, "krum_bad": 1, "krum_chosen": 2, "trimmed_share": 0.1}
    fine = {key: value for key, value in fine.items() if key == "rule" or key in options}
    require_round(aggregation_options()(**fine), UPDATE, expected=10, max_clients=10, free_bytes=1e6)


def test_what_an_attack_sends_and_says():
    assert AttackOptions(kind="sign_flip").on_update == ("sign_flip", 10)
    assert AttackOptions(kind="little_is_enough").on_update == ("little_is_enough", 1.5)
    assert AttackOptions(kind="backdoor", factor=4).on_update == ("scale", 4)
    assert AttackOptions(kind="backdoor").on_update is None and AttackOptions(kind="label_flip").on_update is None
    assert [AttackOptions(kind="nan", clients=c).number(10) for c in (0, 0.01, 0.3, 1, 7)] == [0, 1, 3, 1, 7]
    (said,) = AttackOptions(kind="scale", clients=0.3, factor=2).notes()
    assert said.startswith("clients were attacked: ") and "30 % of the clients" in said and "'scale', factor 2" in said
    assert "no client attacks" in AttackOptions(kind="backdoor", clients=0).notes()[0]
