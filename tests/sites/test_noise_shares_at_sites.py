"""Noise in shares across three sites: the bits without it, what a site adds, and what a coordinator that lies gets."""

from __future__ import annotations

import json
from types import SimpleNamespace

import attrs
import numpy as np
import pytest

from computations import federated as tff
from computations.aggregators import shared_noise
from computations.aggregators.secure import SecureSumFactory
from computations.named import named_sum
from tests.sites.sites_for_tests import NAMES, Federation, decisions_of, recipe_of, trained, write_sites
from tests.upper_floors import assert_same_weights, command
from tff_re.errors import UserError
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.sites import decisions, noise_share, protocol
from tff_re.sites.attempts import Attempt, Attempts
from tff_re.sites.masks import derive_noise_key, derive_own_key, random_words
from tff_re.sites.messages import Refused, unpack
from tff_re.sites.program import Program
from tff_re.sites.run import train_at_sites
from tff_re.sites.store import RunStore

NO_TRAIN = "evaluation.train_split=false"
MASKS, SIMULATED = ("aggregation.secure=masks", NO_TRAIN), ("aggregation.secure=simulated", NO_TRAIN)
PRIVACY = "privacy={unit = 'client', clip = 0.5, noise_multiplier = 0.8, least_sites = 3}"


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """A run across sites and the simulation, both with noise of zeros."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise_share, "discrete_gaussian", lambda count, variance, words: np.zeros(count, np.int64))
        patch.setattr(shared_noise, "_noised", lambda state, totals, deviation: (totals, 1.0))
        recipes = (recipe_of("fedavgs", *more, PRIVACY) for more in (MASKS, SIMULATED))
        return trained(tmp_path_factory.mktemp("quiet"), next(recipes), simulated_recipe=next(recipes))


def test_but_for_the_noise_sites_have_the_bits_of_the_simulation(quiet):
    assert_same_weights(quiet.result.weights, quiet.simulated.weights)
    there, here = (read_history(RunFolder(quiet.folder / name)) for name in ("run", "simulated"))
    assert [row["privacy/epsilon"] for row in there] == [row["privacy/epsilon"] for row in here]


def test_attention_has_the_bits_of_the_simulation_too(tmp_path, monkeypatch):
    drawn = []

    def no_noise(count, variance, words):
        drawn.append((count, variance))
        return np.zeros(count, np.int64)

    monkeypatch.setattr(noise_share, "discrete_gaussian", no_noise)
    monkeypatch.setattr(shared_noise, "_noised", lambda state, totals, deviation: (totals, 1.0))
    recipes = (recipe_of("fedpap", *more, PRIVACY, "training.rounds=1") for more in (MASKS, SIMULATED))
    run = trained(tmp_path, next(recipes), simulated_recipe=next(recipes))
    assert_same_weights(run.result.weights, run.simulated.weights)
    aggregator, layers = run.experiment.algorithm.parts.aggregator, run.result.weights.trainable
    assert aggregator._shares.clip == pytest.approx(0.5 * np.sqrt(2))
    numbers = sum(np.size(layer) for layer in layers) + len(layers)
    assert {variance for _, variance in drawn} == {aggregator._shares.variance(numbers)}
    assert sum(count for count, _ in drawn) == 3 * numbers  # the normalisers have noise, too


@pytest.fixture(scope="module")
def noised(tmp_path_factory):
    """A run of one round across sites, with what each site drew and stored."""
    drawn, stored, folder = [], [], tmp_path_factory.mktemp("noised")
    draw, store = noise_share.discrete_gaussian, RunStore.write_stage_record

    def drawing(count, variance, words):
        drawn.append((variance, draw(count, variance, words)))
        return drawn[-1][1]

    def storing(self, program, round_num, stage, table, arrays):
        stored.append((self.folder.parents[2].name, arrays[: table["answer"]]))
        store(self, program, round_num, stage, table, arrays)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise_share, "discrete_gaussian", drawing)
        patch.setattr(RunStore, "write_stage_record", storing)
        federation = Federation(write_sites(folder / "sites"))
        recipe = recipe_of("fedavgs", *MASKS, PRIVACY, "training.rounds=1")
        experiment, result = train_at_sites(recipe, folder / "run", federation.engine, details=False)
        yield SimpleNamespace(
            **{"folder": folder, "experiment": experiment, "result": result, "federation": federation},
            **{"drawn": list(drawn), "stored": list(stored), "stored_since": stored},
        )
        federation.close()


def test_the_total_has_the_noise_of_all_sites(noised, tmp_path, monkeypatch):
    monkeypatch.setattr(noise_share, "discrete_gaussian", lambda count, variance, words: np.zeros(count, np.int64))
    federation = Federation(write_sites(tmp_path / "sites"))
    recipe = recipe_of("fedavgs", *MASKS, PRIVACY, "training.rounds=1")
    _, quiet = train_at_sites(recipe, tmp_path / "run", federation.engine, details=False)
    federation.close()
    shares = noised.experiment.algorithm.parts.aggregator._shares
    layers = noised.result.weights.trainable
    per_site = len(noised.drawn) // 3
    assert per_site == len(layers)
    for number, (with_noise, without) in enumerate(zip(layers, quiet.weights.trainable, strict=True)):
        noise = sum(noised.drawn[site * per_site + number][1] for site in range(3)).reshape(without.shape)
        moved = -recipe.algorithm.options.server_step * noise * shares.step / 3  # an update is old less new
        np.testing.assert_allclose(np.asarray(with_noise) - np.asarray(without), moved, atol=1e-5)
    numbers = sum(np.size(layer) for layer in layers)
    (variance,) = {variance for variance, _ in noised.drawn}
    assert variance == shares.variance(numbers)
    together = np.concatenate([samples for _, samples in noised.drawn])
    six_standard_errors = 6 / np.sqrt(2 * together.size)  # the sites' keys are new in each test
    assert np.std(together) == pytest.approx(np.sqrt(variance), rel=six_standard_errors)


def test_no_file_has_sums_without_noise(noised):
    """What a site stores of a stage is what it masks."""
    assert sorted(name for name, _ in noised.stored) == sorted(NAMES)
    shares, layers = noised.experiment.algorithm.parts.aggregator._shares, noised.result.weights.trainable
    bits = shares.modulus_bits(sum(np.size(layer) for layer in layers))
    assert all(len(arrays) == len(layers) for _, arrays in noised.stored)
    words = np.concatenate([np.ravel(a) for _, arrays in noised.stored for a in arrays]).astype(np.int64)
    centred = np.where(words >= 2 ** (bits - 1), words - 2**bits, words)
    # Of a character model, nearly all updates of rows that no client has are zero.
    assert (centred == 0).mean() < 0.01 and np.std(centred) > 0.5 * np.sqrt(noised.drawn[0][0])


def test_a_restarted_site_that_lost_its_answer_draws_the_same_noise(noised):
    federation, (_, before) = noised.federation, next(pair for pair in noised.stored if pair[0] == "bonn")
    question = next(
        protocol.question_of(message)
        for site, message, _ in federation.sent
        if site == "bonn" and unpack(message)[0].get("purpose") == "train" and unpack(message)[0]["kind"] == "masked"
    )
    federation.restart("bonn")
    again = attrs.evolve(question, attempt=question.attempt + 10**6)
    answer = protocol.answer_of(protocol.Masked, federation.services["bonn"].answer(protocol.to_bytes(again)))
    assert isinstance(answer, protocol.MaskedAnswer)
    after = noised.stored_since[-1][1]
    assert after is not before and all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    # The ids of clients, the round and the weights cannot be others.
    weights = tuple(a + np.float32(1) if a.dtype.kind == "f" else a for a in question.arrays)
    other = attrs.evolve(question, attempt=question.attempt + 10**6 + 1, arrays=weights)
    refusal = protocol.answer_of(protocol.Masked, federation.services["bonn"].answer(protocol.to_bytes(other)))
    assert isinstance(refusal, protocol.No) and "a round is answered once" in refusal.reason


def test_the_ledger_of_a_site_counts_the_round(noised, capsys):
    (digest,) = noised.federation.services["bonn"]._decisions.ledger._data
    for name, path in noised.federation.files.items():
        typed = command(capsys, "site", path, "--ledger")
        assert typed.code == 0 and "1 run with noise in shares, for one client, if 3 sites of each total" in typed.out
        assert "without a guarantee" not in typed.out and f"of {name}" not in typed.out
    spent = noised.federation.services["bonn"]._decisions.ledger.epsilon(digest, "shares")
    assert spent == noised.experiment.features[0].accounting.epsilon(1)


def test_a_run_says_against_whom_it_holds(noised):
    summary = json.loads((noised.folder / "run" / "summary.json").read_text("utf-8"))["privacy"]
    said = "against the coordinator and anyone who sees the models, but less against a site, which knows its own share"
    assert said in summary["statement"]
    assert summary["noise"].startswith("in shares, from a secret of each site")
    assert "in shares" in summary["mechanism"]
    assert not [line for line in summary["seen_by_server"] if "sum of clipped updates" in line]
    (row,) = read_history(RunFolder(noised.folder / "run"))
    assert row["privacy/epsilon"] == pytest.approx(noised.experiment.features[0].accounting.epsilon(1))


def test_no_number_but_the_words_leaves_in_training(noised):
    kinds = {unpack(message)[0]["kind"] for _, message, _ in noised.federation.sent}
    assert "masked" in kinds and "stage" not in kinds


def test_a_key_of_noise_gives_one_stream_of_words():
    key = derive_noise_key(b"x" * 32, "request", "sums")
    whole, parts = random_words(key)(5), random_words(key)
    assert whole.dtype == np.uint64 and np.array_equal(whole, np.concatenate([parts(2), parts(3)]))
    for other in (derive_noise_key(b"y" * 32, "request", "sums"), derive_noise_key(b"x" * 32, "request", "others")):
        assert not np.isin(random_words(other)(100), random_words(key)(100)).any()
    assert derive_own_key(b"x" * 32, "request", "sums") != key


# What a site refuses


def attempt_of(*sites, number=1):
    return Attempt(number, "request", "context", "sums", list(sites))


def test_totals_are_over_the_sites_whose_noise_is_counted():
    recipe, plain = recipe_of("fedavgs", *MASKS, PRIVACY), recipe_of("fedavgs", *MASKS)
    asked, few = attempt_of("bonn", "celle", "aachen"), ["bonn", "celle"]
    attempts = Attempts()
    attempts.newest = asked
    line = r"totals over at least 3 sites \(privacy.least_sites\), and not over 2"
    with pytest.raises(Refused, match=line):
        decisions_of().roster(attempts, few, recipe)
    with pytest.raises(Refused, match=line):
        decisions_of().masked(Attempts(), attempt_of(*few), recipe)
    with pytest.raises(Refused, match=r"at least 4 sites \(allow.least_sites\)"):
        decisions_of(least_sites=4).roster(attempts, asked.sites, recipe)
    decisions_of().roster(attempts, few, plain)
    decisions_of().roster(attempts, asked.sites, recipe)


def test_a_site_may_ask_for_noise_that_sites_add():
    site, example = decisions_of(privacy="shares"), "privacy={unit = 'example', noise_multiplier = 1.0}"
    for accepted in ((*MASKS, PRIVACY), (NO_TRAIN, example)):
        site.require_privacy(recipe_of("fedavgs", *accepted))
    central = PRIVACY.replace("least_sites = 3", "noise_seed = 'system'")
    with pytest.raises(UserError, match="this site asks for noise that the sites add"):
        site.require_privacy(recipe_of("fedavgs", NO_TRAIN, central))
    with pytest.raises(UserError, match=r"has no \[privacy\]"):
        site.require_privacy(recipe_of("fedavgs"))
    with pytest.raises(UserError, match=r"this site asks for privacy.unit = 'example'"):
        decisions_of(privacy="example").require_privacy(recipe_of("fedavgs", *MASKS, PRIVACY))


@pytest.mark.parametrize("least", [None, 2])
def test_a_site_opens_one_total_of_the_same_sums(least):
    """Else totals over {a, b, c, d, e}, {b, c} and {d, e} would tell the sums of a, though none of them is small."""
    attempts, recipe = Attempts(), recipe_of("fedavgs", *MASKS)
    everyone = ["aachen", "bonn", "celle", "dresden", "erfurt"]
    attempts.newest = attempt_of("bonn", "celle", number=2)
    attempts.opened["sums"] = [everyone]
    with pytest.raises(Refused, match="a total over aachen, bonn, celle, dresden, erfurt was opened before, and one"):
        decisions_of(least_sites=least).roster(attempts, ["bonn", "celle"], recipe)
    attempts.newest = attempt_of(*everyone, number=3)
    decisions_of(least_sites=least).roster(attempts, everyone, recipe)


NUMBER = tff.FederatedType(np.float32, tff.CLIENTS)


def test_a_computation_with_sums_without_noise_is_refused():
    recipe = recipe_of("fedavgs", *MASKS, PRIVACY)

    def words(value):
        process = SecureSumFactory(8, 12, 1.0, measured=False).create(np.float32)
        return process.next(process.initialize(), value).result

    second_stage = tff.tensorflow.computation(lambda value, total: value - total, np.float32, np.float32)

    def program_of(aggregate):
        program = Program(tff.federated_computation(lambda value: aggregate(value), NUMBER))
        return recipe, {"train": program}

    decisions_of().programs(*program_of(words))
    for more in (
        lambda value: tff.federated_zip((words(value), named_sum("loss", value))),
        lambda value: named_sum("loss", value),
        lambda value: words(tff.federated_map(second_stage, (value, tff.federated_broadcast(words(value))))),
    ):
        with pytest.raises(Refused, match="covers one sum of integers in a round"):
            decisions_of().programs(*program_of(more))


def test_a_site_counts_the_rounds_of_the_budget(monkeypatch, tmp_path):
    recipe = recipe_of("fedavgs", *MASKS, PRIVACY.replace("}", ", epsilon = 3.0}"))
    accounting = SimpleNamespace(budget=3.0, unit="client", noise_multiplier=0.8, epsilon=lambda rounds: 1.2 * rounds)
    monkeypatch.setattr(decisions, "accounting_in", lambda experiment: accounting)
    run, site = SimpleNamespace(recipe=recipe, experiment=None), decisions_of(tmp_path)
    charged = []
    monkeypatch.setattr(type(site), "charge_round", lambda self, *arguments: charged.append(arguments))
    request = SimpleNamespace(run="0" * 32, round=9, clients=("a",))
    site._charge(run, request, SimpleNamespace(rounds=2))
    assert charged == [("0" * 32, 9, 0.8, {"a": (1.0, 1)})]
    with pytest.raises(Refused, match="round 9 would spend more than the recipe's ε = 3"):
        site._charge(run, request, SimpleNamespace(rounds=3))


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ((*MASKS, PRIVACY.replace(", least_sites = 3", "")), "aggregation.secure needs privacy.least_sites"),
        ((NO_TRAIN, PRIVACY), "privacy.least_sites needs aggregation.secure = 'masks', or 'simulated'"),
        ((*MASKS, PRIVACY, "aggregation.secure_quantile=0.5"), "secure_quantile does not go with privacy.least_sites"),
        ((*MASKS, PRIVACY, "aggregation.secure_norm=1.0"), "secure_norm does not go with privacy.least_sites"),
        ((*MASKS, PRIVACY, "privacy.clip_quantile=0.5"), "privacy.clip_quantile is for noise that the server adds"),
        ((*MASKS, PRIVACY, "aggregation.secure_modulus_bits=20"), "secure_modulus_bits is 20, and the clients'"),
        ((*MASKS, PRIVACY, "algorithm.name=fednova"), "is for the mean and for attention"),
    ],
)
def test_what_does_not_go_with_shares_is_one_line(tmp_path, keys, line):
    federation = Federation(write_sites(tmp_path / "sites"))
    with pytest.raises(UserError, match=line) as caught:
        train_at_sites(recipe_of("fedavgs", *keys), tmp_path / "run", federation.engine)
    federation.close()
    assert "\n" not in str(caught.value)
    assert not [1 for _, message, _ in federation.sent if unpack(message)[0]["kind"] == "masked"]
