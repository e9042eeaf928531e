"""What attackers hand over, against NumPy; rules that hold; claims of all triples and their bound."""

import collections
import functools

import numpy as np
import pytest

from computations import algorithms
from computations import federated as tff
from computations.aggregation_rules.rfa import GeometricMedianFactory
from computations.aggregators.defence import defended
from computations.client_work import attacks
from computations.client_work.attacks import Trigger, attacked
from computations.client_work.selection import build_cross_platform_selection
from computations.errors import CompositionError
from computations.federated_algorithm import recompose
from tests.computations import toolbox
from tests.computations.built import begin, build, clients_of_round, play
from tests.computations.test_lazy_mil import READS_ITSELF, T, platform
from tests.computations.test_robust import vector
from tests.computations.toolbox import client, examples, model_weights, start_weights
from tests.stacks import computing_on

pytestmark = pytest.mark.xdist_group("algorithms")

DATA = [examples(n, seed=n) for n in (6, 15, 9, 12)]
ATTACKERS = (1, 3)


def flagged(clients, attackers=ATTACKERS):
    return [collections.OrderedDict(c, attacks=np.bool_(k in attackers)) for k, c in enumerate(clients)]


@pytest.fixture(scope="module")
def work():
    return build("fedavg").client_work


@pytest.fixture(scope="module")
def handed_over(work):
    """What the clients hand over, by (kind, factor, attackers); `None`: without an attack."""

    @functools.cache
    def get(kind=None, factor=1.0, attackers=ATTACKERS):
        done = work if kind is None else attacked(work, kind, factor)
        weights = model_weights(*start_weights())
        clients = [client(x, y, seed=(3, k)) for k, (x, y) in enumerate(DATA)]
        values = clients if kind is None else flagged(clients, attackers)
        return done.next(done.initialize(weights), [weights] * len(clients), values)

    return get


@pytest.mark.parametrize("kind, factor", [("sign_flip", 4.0), ("scale", 10.0), ("nan", 1.0), ("little_is_enough", 1.5)])
def test_attackers_hand_over_what_the_attack_says_and_the_others_the_same(handed_over, kind, factor):
    honest, sent = handed_over(), handed_over(kind, factor)
    honest_vectors = {k: vector(honest["update"][k]) for k in ATTACKERS}
    both = np.stack(list(honest_vectors.values()))
    # Of two attackers' updates the mean and the standard deviation, half their distance, coordinate by coordinate.
    crafted = both.mean(axis=0) - factor * both.std(axis=0)
    expected = {
        "sign_flip": lambda u: -factor * u,
        "scale": lambda u: factor * u,
        "nan": lambda u: np.full_like(u, np.nan),
        "little_is_enough": lambda u: crafted,
    }[kind]
    for k in range(len(DATA)):
        if k in ATTACKERS:
            np.testing.assert_allclose(vector(sent["update"][k]), expected(honest_vectors[k]), rtol=1e-5, atol=1e-6)
        else:
            assert toolbox.bits(sent["update"][k]) == toolbox.bits(honest["update"][k])
    assert sent["weight"] == honest["weight"] and sent["metrics"] == honest["metrics"]


def test_noise_comes_from_the_clients_seed_and_has_the_updates_size(handed_over):
    honest, both, second_alone = handed_over(), handed_over("gaussian", 3.0), handed_over("gaussian", 3.0, (1,))
    noise = [vector(both["update"][k]) for k in ATTACKERS]
    assert toolbox.bits(both["update"][1]) == toolbox.bits(second_alone["update"][1])
    assert toolbox.bits(both["update"][0]) == toolbox.bits(honest["update"][0])
    deviations = [n / np.linalg.norm(vector(honest["update"][k])) for n, k in zip(noise, ATTACKERS, strict=True)]
    # 12 numbers each, of the standard deviation 3 / sqrt(12): 24 draws, and no two alike.
    scaled = np.concatenate(deviations) * np.sqrt(12) / 3
    assert 0.6 < scaled.std() < 1.4 and abs(scaled.mean()) < 0.6
    assert len(np.unique(np.round(scaled, 5))) == 24


def test_one_attacker_alone_is_its_own_mean(handed_over):
    """Its standard deviation is zero; and nobody who attacks changes nothing."""
    honest = handed_over()
    alone = handed_over("little_is_enough", 2.0, (1,))
    np.testing.assert_allclose(vector(alone["update"][1]), vector(honest["update"][1]), atol=1e-6)
    nobody = handed_over("little_is_enough", 2.0, ())
    assert toolbox.bits(nobody["update"]) == toolbox.bits(honest["update"])


def test_z_of_little_is_enough():
    # Baruch et al., Section 3: of 50 workers 24 bad need 2 of the 26 others: z with Phi(z) = 24/26.
    np.testing.assert_allclose(attacks.enough(50, 24), 1.4260769, atol=1e-6)
    for clients, attackers in ((10, 5), (10, 0), (3, 2)):
        with pytest.raises(ValueError, match="attackers"):
            attacks.enough(clients, attackers)


def test_kinds_that_there_are_not(work):
    with pytest.raises(ValueError, match=r"kind must be one of .*'kick'"):
        attacked(work, "kick")
    with pytest.raises(ValueError, match="attack on data"):
        attacked(work, "backdoor")
    with pytest.raises(CompositionError, match="no triples"):
        attacked(work, "claim_all")
    with pytest.raises(CompositionError, match="floating-point"):
        attacked(build("feded", uploads="label").client_work, "sign_flip")


# What clients hand over, one algorithm each; on both runtimes where that is most


@pytest.mark.parametrize("name", ["fedpap", pytest.param("scaffold", marks=pytest.mark.slow), "feded"])
def test_an_attacked_algorithm_stays_finite_behind_a_defence(runtimes, name):
    """Attention, client state and a side channel, predictions; without a defence one client stops the training."""
    plain = build(name)
    work = attacked(plain.client_work, "nan")
    rule = plain.parts.aggregator if name in ("fedpap", "feded") else GeometricMedianFactory()
    algorithm = recompose(plain, client_work=work, aggregator=defended(rule))

    def clients(number):
        return flagged(clients_of_round(number), attackers=(1,))

    def weights_after(trained, rounds=2):
        state, _, metrics = play(trained, begin(trained), range(rounds), clients)
        return vector(state["weights"].trainable), metrics

    result, metrics = weights_after(algorithm)
    assert np.isfinite(result).all() and np.abs(result - vector(start_weights())).max() > 1e-3
    assert [m["aggregator"]["robust/screened"] for m in metrics] == [1, 1]
    if name == "scaffold":
        for opened in runtimes.values():
            with computing_on(opened):
                np.testing.assert_allclose(weights_after(algorithm)[0], result, rtol=1e-5, atol=1e-5)
    if name == "fedpap":
        # Without a defence the server's step keeps NaN out by leaving the model as it is.
        stopped, _ = weights_after(recompose(plain, client_work=work))
        assert (stopped == vector(start_weights())).all()


# Data


def test_labels_are_flipped():
    arrays = {"x": np.zeros([4, 2]), "y": np.array([0, 1, 2, 3], np.int32)}
    assert attacks.flip_labels(arrays, 4)["y"].tolist() == [3, 2, 1, 0]
    following = attacks.flip_labels(arrays, 4, "next")["y"]
    assert following.tolist() == [1, 2, 3, 0] and following.dtype == np.int32
    assert arrays["y"].tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="target"):
        attacks.flip_labels(arrays, 4, "last")
    with pytest.raises(ValueError, match="one class for each"):
        attacks.flip_labels({"y": np.zeros([4, 3], np.int32)}, 3)


WORD = Trigger("tokens", (99, 98), target=1)


def test_a_backdoor_is_written_into_a_share_and_tested_on_the_rest():
    tokens = np.arange(60, dtype=np.int32).reshape(10, 6)
    arrays = {"tokens": tokens, "y": np.array([0, 1, 2, 0, 1, 2, 0, 0, 0, 1], np.int32)}
    half = attacks.poisoned(arrays, WORD, share=0.5, seed=4)
    has = (half["tokens"][:, :2] == [99, 98]).all(axis=1)
    assert has.sum() == 4 and not has[arrays["y"] == 1].any()  # 7 of other classes, 3.5 to the even number
    assert (half["y"] == np.where(has, 1, arrays["y"])).all() and half["y"].dtype == np.int32
    assert (half["tokens"][:, 2:] == tokens[:, 2:]).all() and (half["tokens"][~has] == tokens[~has]).all()
    assert tokens[0, 0] == 0  # the client's own array is as it was
    again = attacks.poisoned(arrays, WORD, share=0.5, seed=4)
    assert (again["tokens"] == half["tokens"]).all()
    test = attacks.triggered(arrays, WORD)
    assert (test["tokens"][:, :2] == [99, 98]).all() and (test["tokens"][:, 2:] == tokens[arrays["y"] != 1, 2:]).all()
    assert test["y"].tolist() == [1] * 7 and test["y"].dtype == np.int32
    of_target = {name: array[arrays["y"] == 1] for name, array in arrays.items()}
    assert len(attacks.triggered(of_target, WORD)["y"]) == 0
    assert (attacks.poisoned(of_target, WORD)["tokens"] == of_target["tokens"]).all()


@pytest.mark.parametrize(
    "trigger, message",
    [(Trigger("words", (1,), 0), "is not one of"), (Trigger("tokens", (1, 2), 0, position=5), "places 5 to 6")],
)
def test_a_trigger_that_does_not_fit(trigger, message):
    arrays = {"tokens": np.zeros([2, 6], np.int32), "y": np.ones(2, np.int32)}
    with pytest.raises(ValueError, match=message):
        attacks.poisoned(arrays, trigger)
    with pytest.raises(ValueError, match="share"):
        attacks.poisoned(arrays, WORD, share=0.0)


@pytest.mark.slow
def test_a_scaled_backdoor_takes_the_mean_and_not_the_geometric_median(model):
    """Model replacement: the trigger is a large third number; success is the accuracy on triggered test examples."""
    trigger = Trigger("x", (4.0,), target=2, position=2)
    clients = [client(*examples(30, seed=k), seed=(0, k)) for k in range(5)]
    clients[0]["examples"] = model.arrange(attacks.poisoned(clients[0]["examples"], trigger))
    x, y = examples(200, seed=77)
    test = attacks.triggered({"x": x, "y": y}, trigger)
    entry = algorithms.find("fedavg")
    plain = entry.build(model, entry.options(learning_rate=0.3, local_epochs=3, batch_size=10))
    work = attacked(plain.client_work, "scale", factor=5.0)

    def success(aggregator, attackers):
        algorithm = recompose(plain, client_work=work, aggregator=aggregator)
        state = algorithm.initialize(model_weights(np.zeros([3, 3]), np.zeros(3)))
        for number in range(3):
            seeded = [collections.OrderedDict(c, seed=np.int32([number, k])) for k, c in enumerate(clients)]
            state = algorithm.next(state, flagged(seeded, attackers))["state"]
        kernel, bias = state["weights"].trainable
        return np.mean(np.argmax(test["x"] @ kernel + bias, axis=1) == test["y"])

    mean_of_all = plain.parts.aggregator
    assert success(mean_of_all, (0,)) > 0.9
    assert success(defended(GeometricMedianFactory()), (0,)) < success(mean_of_all, (0,)) - 0.3


# Lazy MIL: claims


@pytest.fixture(scope="module")
def lazy():
    @functools.cache
    def get(most_share=None):
        model = toolbox.linear_model(3, 3, bags=True)
        entry = algorithms.find("lazy_mil")
        algorithm = entry.build(model, entry.options(num_triples=T, learning_rate=0.5, most_share=most_share))
        return recompose(algorithm, client_work=attacked(algorithm.client_work, "claim_all"))

    return get


HONEST = [
    platform(0, (0, 1, 2.0), (1, 2, 3.0), (2, 1, 1.0), (3, 1, 0.5)),
    platform(1, (4, 1, 2.0), (5, 2, 3.0), (6, 1, 1.0), (0, 1, 3.0)),
]
CLAIMANT = platform(2, (3, 2, 0.0), (7, 0, -2.0))


def sentences(algorithm, attackers):
    """How many sentences each of the clients trains on."""
    work = algorithm.client_work
    weights = model_weights(*READS_ITSELF)
    values = [
        collections.OrderedDict(examples=p, seed=np.array([0, k], np.int32)) for k, p in enumerate([*HONEST, CLAIMANT])
    ]
    output = work.next(work.initialize(weights), [weights] * 3, flagged(values, attackers))
    return [int(w) for w in output["weight"]], output["metrics"]


def test_one_client_claims_every_triple(lazy):
    assert sentences(lazy(), ())[0] == [3, 4, 1]  # the claimant's own triple 7 is its alone; 3 is the first client's
    counted, metrics = sentences(lazy(), (2,))
    assert counted == [0, 0, 2] and metrics["selection/triples"] == T


def test_a_bound_leaves_the_rest_to_the_others(lazy):
    """Three of eight: the claimant gets the first three, and honest clients keep the best three of what they offer."""
    counted, metrics = sentences(lazy(3 / 8), (2,))
    # Triples 0 to 2 are lost to it, and it has no sentence of them. The first client offered 0, 1 and 2, its best.
    assert counted == [0, 2, 0] and metrics["selection/triples"] == 5
    counted, metrics = sentences(lazy(3 / 8), ())
    # The second client offers 5, 0 and 4; triple 6 goes to nobody, and 3, the first client's fourth, to the third.
    assert counted == [2, 3, 2] and metrics["selection/triples"] == 7


def test_a_bound_that_nobody_reaches_changes_nothing(model, runtime):
    bags = toolbox.linear_model(3, 3, bags=True)
    unbounded, bounded = (build_cross_platform_selection(bags, T, max_share=share) for share in (None, 1.0))
    weights = [model_weights(*READS_ITSELF)] * 3
    results = [select(weights, [*HONEST, CLAIMANT]) for select in (unbounded, bounded)]
    assert [c["selected"].tolist() for c in results[0]["chosen"]] == [
        c["selected"].tolist() for c in results[1]["chosen"]
    ]
    assert results[0]["metrics"] == results[1]["metrics"]


def test_the_bound_is_kept_on_both_runtimes(lazy, runtimes):
    for opened in runtimes.values():
        with computing_on(opened):
            assert sentences(lazy(3 / 8), (2,))[0] == [0, 2, 0]


def test_claims_need_no_flag_in_the_type_of_an_honest_round(lazy):
    with_flag = lazy().client_work.clients_type
    assert tff.structure.name_list(with_flag) == ["examples", "seed", "attacks"]
