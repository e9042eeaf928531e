"""Masked sums across three sites: the bits of simulated secure sums, and what the coordinator sees."""

from __future__ import annotations

import numpy as np
import pytest

from computations import federated as tff
from computations.aggregators.secure import SecureSumFactory
from computations.errors import CompositionError
from computations.named import named_max, named_min, named_sum
from tests.sites.sites_for_tests import NAMES, Federation, decisions_of, recipe_of, trained, write_sites
from tests.sites.test_sites import with_server
from tests.upper_floors import assert_same_weights, command, refusal
from tff_re.errors import UserError
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.sites.masked_layout import require_sums
from tff_re.sites.messages import Refused, unpack
from tff_re.sites.program import Program
from tff_re.sites.run import train_at_sites

MASKS, SIMULATED = ("aggregation.secure=masks",), ("aggregation.secure=simulated",)


def masked_run(folder, algorithm, *overrides, recipe=recipe_of, **tables):
    """A run across sites with masks, and the simulation with simulated secure sums."""
    simulated = recipe(algorithm, *SIMULATED, *overrides)
    return trained(folder, recipe(algorithm, *MASKS, *overrides), simulated_recipe=simulated, **tables)


def require_same_metrics(folder):
    """Counts to the bit; losses, sums of floats, to their rounding."""
    there, here = (read_history(RunFolder(folder / name)) for name in ("run", "simulated"))
    for ours, simulated in zip(there, here, strict=True):
        single = {f"test/accuracy_{which}" for which in ("worst", "median", "best")}
        ours = {name: value for name, value in ours.items() if not name.startswith("sites/")}
        assert ours.keys() == simulated.keys() - single
        for name, value in ours.items():
            if "loss" in name or name.endswith("secure/clipped"):
                np.testing.assert_allclose(value, simulated[name], rtol=1e-6)
            else:
                assert value == simulated[name], name


ATTENTION = ("aggregation.secure_norm=0.5",)
CASES = [
    ("fedavgs", ()),
    ("fedavgs", ("algorithm.weighting=uniform",)),
    ("fedavgs", ("aggregation.secure_quantile=0.8", "aggregation.secure_bound=0.01")),
    ("fedpap", ATTENTION),
    ("fedpap", (*ATTENTION, "algorithm.granularity=model", "aggregation.secure_modulus_bits=40")),
    ("fednova", ()),
    ("fednova", ("algorithm.local_momentum=0.5",)),
    ("feddyn", ()),
    ("moon", ()),
]
SLOW = {0, 1, 2, 4, 6, 7, 8}


@pytest.mark.parametrize(
    ("algorithm", "overrides"),
    [pytest.param(*case, marks=pytest.mark.slow if n in SLOW else ()) for n, case in enumerate(CASES)],
)
def test_masked_runs_have_the_bits_of_simulated_secure_sums(tmp_path, algorithm, overrides):
    run = masked_run(tmp_path, algorithm, *overrides)
    assert_same_weights(run.result.weights, run.simulated.weights)
    require_same_metrics(tmp_path)
    asked = {unpack(message)[0]["kind"] for _, message, _ in run.sent}
    assert {"masked", "roster", "open"} <= asked and "stage" not in asked


@pytest.mark.slow
def test_several_clients_at_a_site_have_the_same_bits(tmp_path):
    """Integers have no order of addition, so not even the last bits differ, as they do with plain sums."""
    keys = ("training.rounds=1", "training.clients_per_round=10")
    run = masked_run(tmp_path, "fedavgs", *keys, clients={"rule": "documents"})
    assert len(run.experiment.prepared.examples.clients) == 4 + 5 + 6
    assert_same_weights(run.result.weights, run.simulated.weights)


@pytest.mark.slow
def test_predictions_are_masked(tmp_path):
    def recipe(algorithm, *overrides):
        return with_server(tmp_path, algorithm, *overrides)

    run = masked_run(tmp_path, "feded", "aggregation.secure_bound=20.0", recipe=recipe)
    assert_same_weights(run.result.weights, run.simulated.weights)


def test_noise_of_the_sites_own_and_masks_go_together(tmp_path):
    """The noise of DP-SGD is drawn from a secret of the site, so that no simulation has the same bits."""
    keys = ("privacy={unit = 'example', clip = 0.5, epsilon = 5.0}", "evaluation.train_split=false", *MASKS)
    federation = Federation(write_sites(tmp_path / "sites", allow={"privacy": "example", "least_sites": 3}))
    recipe = recipe_of("fedavgs", *keys, "algorithm.local_epochs=1")
    _, result = train_at_sites(recipe, tmp_path / "run", federation.engine, details=False)
    federation.close()
    assert all(np.isfinite(layer).all() for layer in result.weights.trainable)
    kinds = {unpack(message)[0]["kind"] for _, message, _ in federation.sent}
    assert "masked" in kinds and "stage" not in kinds


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return masked_run(tmp_path_factory.mktemp("masked"), "fedavgs")


def test_what_a_coordinator_sees_of_a_site_looks_like_random_numbers(run):
    """With the keys of the opened total it gets the total, and never one of the three parts."""
    answers = [unpack(answer) for _, message, answer in run.sent if unpack(message)[0]["kind"] == "masked"]
    words = np.concatenate([array.ravel() for _, arrays in answers for array in arrays if array.dtype == np.uint32])
    assert words.size > 200 and words.max() < 2**22
    counts = np.histogram(words, bins=4, range=(0, 2**22))[0] / words.size
    np.testing.assert_allclose(counts, 0.25, atol=6 * np.sqrt(0.1875 / words.size))
    opened = [unpack(answer)[1] for _, message, answer in run.sent if unpack(message)[0]["kind"] == "open"]
    assert opened and all(len(shared) == 0 for _, shared in opened), "nobody was lost"


def test_no_key_of_masks_is_sent_twice(run):
    keys = [unpack(answer)[1][0].tobytes() for _, m, answer in run.sent if unpack(m)[0]["kind"] == "open"]
    assert len(set(keys)) == len(keys) == 3 * (2 + 2 * 2)  # of three sites: two rounds, each evaluated on two splits


def test_sites_remember_which_totals_they_opened(run):
    for name in NAMES:
        (path,) = (run.folder / "sites" / name / "state" / "runs").glob("*/masks.json")
        assert '["aachen", "bonn", "celle"]' in path.read_text() and path.stat().st_mode & 0o077 == 0


def test_the_run_says_what_masks_do(run, capsys, tmp_path):
    notes = " ".join(run.experiment.recipe.notes)
    assert "sums of sites are masked" in notes and "simulation" not in notes
    exported = command(capsys, "export", run.folder / "run", "--out", tmp_path / "export", "--runtime", "in-process")
    assert exported.code == 0
    card = (tmp_path / "export" / "README.md").read_text("utf-8")
    assert "no differential privacy and secure aggregation: sums of sites are masked" in " ".join(card.split())


# Refusals


@pytest.mark.parametrize(
    ("algorithm", "keys", "line"),
    [
        ("fedpap", (), "attention needs the largest norm of all clients; set aggregation.secure_norm"),
        ("fedcmc", (), "takes a maximum or minimum over clients"),
        ("fedavgs", ("aggregation.secure_norm=1.0",), "secure_norm is for attention"),
        ("fedavgs", ("aggregation.rule=median",), "'aggregation.rule' = 'median' needs secure = 'none'"),
        ("fedavgs", ("aggregation.rule=rfa",), "'aggregation.rule' = 'rfa' needs secure = 'none'"),
        (
            "fedavgs",
            (
                "privacy={unit='client', clip=1.0, noise_multiplier=1.0, noise_seed='system'}",
                "evaluation.train_split=false",
            ),
            "aggregation.secure needs privacy.least_sites with privacy.unit = 'client'",
        ),
    ],
)
def test_what_needs_more_than_sums_is_refused_by_name(tmp_path, algorithm, keys, line):
    federation = Federation(write_sites(tmp_path / "sites"))
    with pytest.raises(UserError, match=line) as caught:
        train_at_sites(recipe_of(algorithm, *MASKS, *keys), tmp_path / "run", federation.engine)
    assert "\n" not in str(caught.value)
    assert not [1 for _, message, _ in federation.sent if unpack(message)[0]["kind"] == "masked"]
    federation.close()


NUMBER = tff.FederatedType(np.float32, tff.CLIENTS)


def secure_sum(value):
    process = SecureSumFactory(8, 12, 1.0).create(np.float32)
    return process.next(process.initialize(), value).result


@pytest.mark.parametrize(
    ("aggregate", "line"),
    [
        (lambda value: named_sum("loss", value), None),
        (secure_sum, None),
        (lambda value: named_max("norms", value), "stage 0 .* takes a maximum or minimum over clients .'norms'"),
        (lambda value: named_min("platforms", value), "maximum or minimum over clients .'platforms'"),
    ],
)
def test_whether_partial_sums_are_added_is_tried_out(aggregate, line):
    """A site tries it, too: it does not take the coordinator's word for it."""
    program = Program(tff.federated_computation(lambda value: aggregate(value), NUMBER))
    masks, programs, decisions = recipe_of("fedavgs", *MASKS), {"train": program}, decisions_of()
    if line is None:
        require_sums(program)
        decisions.programs(masks, programs)
        return
    with pytest.raises(CompositionError, match=line):
        require_sums(program)
    with pytest.raises(Refused, match=line):
        decisions.programs(masks, programs)
    decisions.programs(recipe_of("fedavgs"), programs)


def test_masks_are_for_sites(tmp_path, capsys):
    from tests.upper_floors import write_recipe

    recipe = write_recipe(tmp_path / "r.toml", aggregation={"secure": "masks"})
    typed = command(capsys, "train", recipe, "--out", tmp_path / "run", "--runtime", "in-process")
    refusal(typed, "'masks' is only for runs across sites", "'simulated' gives the same numbers")
