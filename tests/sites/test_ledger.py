"""The ledger of a site: its ε is the accountant's, over all runs on the same data."""

from __future__ import annotations

import math

import pytest

from computations.privacy.accounting import composed_epsilon, example_accounting
from computations.privacy.options import PrivacyOptions, rounded_up
from computations.privacy.shares import composed_shares_epsilon, concentrated_epsilon
from tests.sites.sites_for_tests import decisions_of, recipe_of
from tff_re.errors import UserError
from tff_re.sites.ledger import TrainingData
from tff_re.sites.messages import Refused

DATA = TrainingData("texts.json", "a" * 64, "b" * 64)
OPTIONS = PrivacyOptions(unit="example", clip=1.0, noise_multiplier=1.0)
PRIVATE = recipe_of("fedavgs", "privacy={unit = 'example', clip = 1.0, noise_multiplier = 1.0}")
UNITS, BATCH = {"x": 40, "y": 100}, 10


def accounting(units=UNITS, rounds=6):
    steps = {client: math.ceil(n / BATCH) for client, n in units.items()}
    return example_accounting(OPTIONS, units=units, steps=steps, batch=BATCH, rounds=rounds)


def opened(folder, **allow):
    return decisions_of(folder, privacy="example", **allow)


def run_of(decisions, name, rounds, accounted=None, data=DATA):
    """The ledger after so many rounds of a run."""
    accounted, run = accounted or accounting(), name * 32
    decisions.begin(data, run, PRIVATE)
    for number in range(1, rounds + 1):
        decisions.charge_round(run, number, accounted.noise_multiplier, accounted.releases)
        decisions.ledger.charge_bytes(run, 100)
    return decisions.ledger


def test_epsilon_over_runs_is_the_accountants(tmp_path):
    decisions, accounted = opened(tmp_path), accounting()
    assert run_of(decisions, "0", 2).epsilon(DATA.digest) == accounted.epsilon(2)
    assert run_of(decisions, "1", 3).epsilon(DATA.digest) == accounted.epsilon(5)
    again = opened(tmp_path)
    assert again.ledger.epsilon(DATA.digest) == accounted.epsilon(5)
    again.charge_round("1" * 32, 3, 1.0, accounted.releases)  # the same round again
    assert again.ledger.epsilon(DATA.digest) == accounted.epsilon(5)
    (line,) = again.ledger.lines()
    assert "texts.json (aaaaaaaa): 2 runs, 5 rounds, 500 bytes of sums; ε = " in line and "δ = 1e-05" in line


def test_runs_of_other_clients_on_the_same_data_are_bounded_by_the_worst_of_each(tmp_path):
    decisions = opened(tmp_path)
    run_of(decisions, "0", 2)
    run_of(decisions, "1", 1, accounting({"z": 140}), TrainingData("texts.json", DATA.digest, "c" * 64))
    both = decisions.ledger.epsilon(DATA.digest)
    assert both == composed_epsilon([{(1.0, 10 / 40): 20, (1.0, 10 / 140): 14}], 1e-5)
    assert accounting().epsilon(2) < both


def test_different_noise_composes():
    first, second = {(1.0, 0.2): 10}, {(2.0, 0.5): 10}
    both = composed_epsilon([{**first, **second}], 1e-5)
    parts = [composed_epsilon([part], 1e-5) for part in (first, second)]
    assert max(parts) < both <= sum(composed_epsilon([part], 5e-6) for part in (first, second))
    assert composed_epsilon([first, second], 1e-5) == max(parts)  # examples of two clients
    exact = composed_epsilon([{(2.0, 1.0): 4}], 1e-5)
    assert composed_epsilon([{(2.0, 1.0): 2, (math.sqrt(2), 1.0): 1}], 1e-5) == pytest.approx(exact)
    assert composed_epsilon([{(0.0, 1.0): 1}], 1e-5) == math.inf and composed_epsilon([], 1e-5) == 0.0


def test_what_is_spent_is_refused_before_anything_is_taken_down(tmp_path):
    total = accounting().epsilon(3)
    decisions, accounted = opened(tmp_path, epsilon_total=total), accounting()
    run_of(decisions, "0", 2)
    decisions.begin(DATA, "1" * 32, PRIVATE)
    decisions.charge_round("1" * 32, 1, 1.0, accounted.releases)
    before = (tmp_path / "ledger.json").read_bytes()
    with pytest.raises(Refused, match=r"round 2 would make it .*allow.epsilon_total"):
        decisions.charge_round("1" * 32, 2, 1.0, accounted.releases)
    assert (tmp_path / "ledger.json").read_bytes() == before and decisions.ledger.epsilon(DATA.digest) == total
    strict = opened(tmp_path, epsilon_total=total / 2)
    strict.charge_round("1" * 32, 1, 1.0, accounted.releases)  # it is in the ledger already
    with pytest.raises(Refused, match=r"allow\.epsilon_total"):
        strict.charge_round("1" * 32, 2, 1.0, accounted.releases)


def test_runs_are_limited_by_data_and_other_privacy_has_no_epsilon_of_the_sites(tmp_path):
    decisions = decisions_of(tmp_path, runs=2)
    client = recipe_of("fedavgs", "privacy={unit = 'client', clip = 1.0, noise_multiplier = 1.0}")
    for run, recipe in (("0", recipe_of()), ("1", client), ("0", recipe_of())):
        decisions.begin(DATA, run * 32, recipe)
    with pytest.raises(Refused, match="2 runs were begun on its data"):
        decisions.begin(DATA, "2" * 32, PRIVATE)
    decisions.begin(TrainingData("other.json", "d" * 64, "e" * 64), "2" * 32, PRIVATE)
    with pytest.raises(Refused, match="begun with other data"):
        decisions.begin(TrainingData("texts.json", DATA.digest, "f" * 64), "0" * 32, recipe_of())
    assert (
        "2 runs without a guarantee of the site's own" in decisions.ledger.lines()[0]
        and "ε" not in decisions.ledger.lines()[0]
    )
    assert "no guarantee of the site's own" in decisions.ledger.lines(runs=True)[1]


def test_delta_total_is_the_sites(tmp_path):
    strict, usual = opened(tmp_path / "strict", delta_total=1e-7), opened(tmp_path / "usual")
    strict, usual = (run_of(decisions, "0", 2).epsilon(DATA.digest) for decisions in (strict, usual))
    assert strict > usual


def test_a_damaged_ledger_is_not_begun_anew(tmp_path):
    for content in (b"", b"{}", b'{"version": 2, "data": {}}', b'{"version": 1, "data": {"a": {}}}'):
        (tmp_path / "ledger.json").write_bytes(content)
        with pytest.raises(UserError, match="is damaged; put it back"):
            opened(tmp_path).ledger.lines()


# Noise in shares

SHARED = recipe_of(
    "fedavgs",
    *("aggregation.secure=masks", "evaluation.train_split=false"),
    "privacy={unit = 'client', clip = 1.0, noise_multiplier = 2.0, least_sites = 4, colluding_sites = 1}",
)


def shared_run(decisions, name, rounds, data=DATA, clients=("x",), z=2.0):
    """The ledger after so many rounds with noise in shares."""
    decisions.begin(data, name * 32, SHARED)
    for number in range(1, rounds + 1):
        decisions.charge_round(name * 32, number, z, dict.fromkeys(clients, (1.0, 1)))
    return decisions.ledger


def test_noise_in_shares_composes_over_runs_for_one_client(tmp_path):
    decisions = decisions_of(tmp_path, privacy="shares")
    assert shared_run(decisions, "0", 3).epsilon(DATA.digest, "shares") == concentrated_epsilon(3 / 8, 1e-5)
    shared_run(decisions, "1", 2, z=1.0, clients=("x", "y"))
    ledger = decisions_of(tmp_path, privacy="shares").ledger
    assert ledger.epsilon(DATA.digest, "shares") == concentrated_epsilon(3 / 8 + 2 / 2, 1e-5)  # of x
    (line,) = ledger.lines()
    # A share has a third of the variance that is counted, so that alone it gives three times the rho.
    own = rounded_up(concentrated_epsilon(3 * (3 / 8 + 2 / 2), 1e-5))
    assert "with noise in shares, for one client, if 3 sites of each total add their shares" in line
    assert line.endswith(f"; ε = {own} with this site's share only") and "without a guarantee" not in line
    first, second = ledger.lines(runs=True)[1:]
    assert f"ε = {rounded_up(concentrated_epsilon(3 / 8, 1e-5))} with noise in shares, for one client" in first
    assert f"ε = {rounded_up(concentrated_epsilon(1.0, 1e-5))} with noise in shares, for one client" in second


def test_of_runs_with_other_clients_the_epsilon_is_that_of_one_example(tmp_path):
    decisions, other = decisions_of(tmp_path), TrainingData("texts.json", DATA.digest, "c" * 64)
    shared_run(decisions, "0", 3)
    shared_run(decisions, "1", 2, data=other, clients=("z",))
    # An example moves an update of norm 1 to another update of norm 1, by 2 at most.
    assert decisions.ledger.epsilon(DATA.digest, "shares") == concentrated_epsilon(5 * 4 / 8, 1e-5)
    assert "for one example, if 3 sites of each total" in decisions.ledger.lines()[0]
    whole = [TrainingData("texts.json", DATA.digest, partition * 64, one_client=True) for partition in "bc"]
    decisions = decisions_of(tmp_path / "one client")
    for name, data in zip("01", whole, strict=True):
        shared_run(decisions, name, 2, data=data)
    assert decisions.ledger.epsilon(DATA.digest, "shares") == concentrated_epsilon(4 / 8, 1e-5)
    assert "for one client, if 3 sites" in decisions.ledger.lines()[0]


def test_the_sites_limit_holds_for_noise_in_shares(tmp_path):
    limit = composed_shares_epsilon({2.0: 3}, 1e-6)
    decisions = decisions_of(tmp_path, privacy="shares", epsilon_total=limit, delta_total=1e-6)
    shared_run(decisions, "0", 2)
    decisions.begin(DATA, "1" * 32, SHARED)
    decisions.charge_round("1" * 32, 1, 2.0, {"x": (1.0, 1)})
    before = (tmp_path / "ledger.json").read_bytes()
    with pytest.raises(Refused, match=r"round 2 would make it .*allow.epsilon_total"):
        decisions.charge_round("1" * 32, 2, 2.0, {"x": (1.0, 1)})
    decisions.charge_round("1" * 32, 2, 2.0, {"y": (1.0, 1)})  # another client has spent nothing
    assert (tmp_path / "ledger.json").read_bytes() != before
    assert decisions.ledger.epsilon(DATA.digest, "shares") == limit
    assert f"ε = {rounded_up(limit)} at δ = 1e-06 of {limit:g} (allow.epsilon_total)" in decisions.ledger.lines()[0]


def test_a_limit_counts_noise_of_one_kind(tmp_path):
    decisions = decisions_of(tmp_path, privacy="shares", epsilon_total=10.0)
    shared_run(decisions, "0", 1)
    with pytest.raises(Refused, match=r"noise of another kind .* allow.epsilon_total counts one kind only"):
        decisions.begin(DATA, "1" * 32, PRIVATE)
    without = decisions_of(tmp_path, privacy="shares")
    run_of(without, "1", 1)
    (line,) = without.ledger.lines()
    assert "1 run with noise of the site's own; ε = " in line and "1 run with noise in shares" in line
    assert without.ledger.epsilon(DATA.digest) == accounting().epsilon(1)
    with pytest.raises(ValueError, match=r"allow.epsilon_total needs allow.privacy = 'example' or 'shares'"):
        decisions_of(tmp_path, privacy="client", epsilon_total=1.0)
