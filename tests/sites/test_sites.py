"""A run across three sites: the numbers of the simulation, and what leaves a site."""

from __future__ import annotations

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest

from tests.sites.sites_for_tests import NAMES, Federation, corpora, recipe_of, same_in_one_place, write_sites
from tests.upper_floors import assert_same_weights
from tff_re import api
from tff_re.errors import UserError
from tff_re.recipes.reading import tomllib
from tff_re.runs.folder import RunFolder
from tff_re.runs.results import read_history
from tff_re.runs.run import train_run
from tff_re.sites.messages import payload, unpack
from tff_re.sites.run import train_at_sites
from tff_re.tasks.data_paths import DataPaths


def trained(folder, recipe, **tables):
    """The recipe across sites and in one place."""
    files = write_sites(folder / "sites", **tables)
    federation = Federation(files)
    experiment, result = train_at_sites(recipe, folder / "run", federation.engine, details=False)
    federation.close()
    simulated, partition = same_in_one_place(folder / "one place", recipe, files)
    ways = {"data_paths": DataPaths(partition=partition), "runtime": "in-process", "details": False}
    here = train_run(simulated, folder / "simulated", **ways)
    return SimpleNamespace(
        **{"folder": folder, "experiment": experiment, "result": result, "sent": federation.sent},
        **{"simulation": here[0], "simulated": here[1]},
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Algorithm -> its run, each made when it is first asked for."""
    made = {}

    def run(algorithm):
        if algorithm not in made:
            made[algorithm] = trained(tmp_path_factory.mktemp(algorithm), recipe_of(algorithm))
        return made[algorithm]

    return run


ALGORITHMS = ("fedavgs", "fedpap", "moon")
"""One stage; two stages; states of clients."""


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_weights_are_those_of_the_simulation_to_the_bit(runs, algorithm):
    run = runs(algorithm)
    assert run.experiment.prepared.encoding == run.simulation.prepared.encoding  # the vocabulary
    assert_same_weights(run.result.weights, run.simulated.weights)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_metrics_are_those_of_the_simulation_without_single_clients(runs, algorithm):
    run = runs(algorithm)
    there, here = (read_history(RunFolder(run.folder / name)) for name in ("run", "simulated"))
    assert len(there) == 2
    for ours, simulated in zip(there, here, strict=True):
        single = {f"test/accuracy_{which}" for which in ("worst", "median", "best")}
        assert ours.keys() == simulated.keys() - single
        np.testing.assert_allclose(list(ours.values()), [simulated[name] for name in ours], rtol=1e-6)
    with open(run.folder / "run" / "clients.csv", newline="") as file:
        assert len(list(csv.reader(file))) == 1


def stages(run, purpose="train"):
    """(site, table and arrays that came, arrays that went) of the stages."""
    for site, message, answer in run.sent:
        table, arrays = unpack(message)
        if table["kind"] == "stage" and table["purpose"] == purpose:
            yield site, table, arrays, unpack(answer)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_leaves_a_site_is_what_traffic_says_to_the_byte(runs, algorithm):
    run = runs(algorithm)
    for name in NAMES:
        own = [(arrays, answer) for site, _, arrays, answer in stages(run) if site == name]
        rounds, seed = 2, 8
        per_round = 2 if algorithm == "fedpap" else 1
        assert len(own) == rounds * per_round
        assert sum(payload(sums) for _, (_, sums) in own) == rounds * run.simulation.traffic.up
        down = sum(payload(arrays) for arrays, _ in own)
        assert down == rounds * (run.simulation.traffic.down + per_round * seed)
        assert all(table == {"site": name} for _, (table, _) in own)


def test_no_text_no_rare_word_and_no_example_id_leaves_a_site(runs):
    texts = {name: json.dumps(corpus, ensure_ascii=False) for name, corpus in corpora().items()}
    for algorithm in ALGORITHMS:
        run = runs(algorithm)
        answers = b"".join(answer for _, _, answer in run.sent)
        kept = b"".join(p.read_bytes() for p in (run.folder / "run").rglob("*") if p.is_file())
        for where in (answers, kept):
            for corpus in corpora().values():
                for example_id, dialogue in corpus.items():
                    assert example_id.encode() not in where
                    for sentence in dialogue["dialogue"]:
                        pieces = {sentence["sentence"][at : at + 2] for at in range(len(sentence["sentence"]) - 1)}
                        found = [piece for piece in pieces if piece.encode() in where]
                        assert not found
            for alone in "甲乙丙":  # at one client of one site
                assert any(alone in text for text in texts.values())
                assert alone.encode() not in where
        assert "烧".encode() in answers  # at all of them: the spy sees words


def test_client_states_stay_at_the_sites(runs):
    run = runs("moon")
    for name in NAMES:
        assert not list((run.folder / "sites" / name / "state").rglob("clients/*/*")), "forgotten after the run"
    kept = [unpack(m)[0]["clients"][0]["given"] for _, m, _ in run.sent if b'"purpose": "train"' in m]
    versions = [given["[2]"]["version"] for given in kept]
    assert versions == [-1] * 3 + [1] * 3


def test_which_sites_took_part_is_written_and_exported(runs):
    run = runs("fedavgs")
    rows = (run.folder / "run" / "took_part.csv").read_text().splitlines()
    assert rows == ["round,sites", "1,aachen bonn celle", "2,aachen bonn celle"]
    exported = api.export(run.folder / "run", run.folder / "export", formats="keras", runtime="in-process")
    card = (exported / "README.md").read_text("utf-8") if (exported / "README.md").exists() else ""
    written = card + "".join(p.read_text("utf-8") for p in exported.glob("*.json"))
    assert "at the sites aachen, bonn, celle" in written and "simulation" not in written


def test_what_needs_the_examples_is_refused(runs, tmp_path):
    run = runs("fedavgs")
    with pytest.raises(UserError, match="the run's examples are at sites"):
        api.audit(run.folder / "run", tmp_path, runtime="in-process")
    with pytest.raises(UserError, match="partition of a run across sites"):
        api.train(recipe_of(), tmp_path / "x", runtime="sites:a=/x", partition="p.json")


def test_several_clients_at_a_site_are_one_sum(tmp_path):
    """A site adds its clients up before the sites are added, so the last bits may differ."""
    recipe = recipe_of("fedpap", "training.rounds=1", "training.clients_per_round=10")
    run = trained(tmp_path, recipe, clients={"rule": "documents"})
    assert len(run.experiment.prepared.examples.clients) == 4 + 5 + 6
    for ours, simulated in zip(run.result.weights.trainable, run.simulated.weights.trainable, strict=True):
        np.testing.assert_allclose(ours, simulated, rtol=0, atol=1e-6)
    of_stage = [table for _, table, _, (_, sums) in stages(run) if table["stage"] == 1]
    assert sorted(len(table["clients"]) for table in of_stage) != [1, 1, 1]
    assert sum(len(table["clients"]) for table in of_stage) == 10


def test_a_recipe_at_sites_names_no_file_of_the_coordinator(runs):
    hello = next(unpack(message)[0] for _, message, _ in runs("fedavgs").sent)
    assert hello["kind"] == "hello" and "path" not in tomllib.loads(hello["recipe"])["task"]
