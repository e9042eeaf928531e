"""A run across three sites: the numbers of the simulation, and what leaves a site."""

from __future__ import annotations

import gzip
import json
import os
import threading
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from tests.runs.test_sentence_relations import write_pgr
from tests.sites.sites_for_tests import (
    NAMES,
    Federation,
    corpora,
    payload,
    recipe_of,
    stages,
    trained,
    write_site,
    write_sites,
)
from tests.upper_floors import SECRET, assert_same_weights, command, consultations, refusal, tiny, write_json
from tff_re import api
from tff_re.errors import UserError
from tff_re.recipes.reading import resolve, tomllib
from tff_re.runs.evaluation import Evaluator
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.sites.agreement import read_agreement
from tff_re.sites.experiments import SitesBuilder
from tff_re.sites.messages import unpack
from tff_re.sites.run import open_at_sites, train_at_sites
from tff_re.sites.transport import Serving
from tff_re.tasks.data_paths import DataPaths


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

EACH = pytest.mark.parametrize(
    "algorithm", [pytest.param(n, marks=() if n == "fedpap" else pytest.mark.slow) for n in ALGORITHMS]
)


@EACH
def test_weights_are_those_of_the_simulation_to_the_bit(runs, algorithm):
    run = runs(algorithm)
    assert run.experiment.prepared.encoding == run.simulation.prepared.encoding  # the vocabulary
    assert_same_weights(run.result.weights, run.simulated.weights)


@EACH
def test_metrics_are_those_of_the_simulation_without_single_clients(runs, algorithm):
    run = runs(algorithm)
    there, here = (read_history(RunFolder(run.folder / name)) for name in ("run", "simulated"))
    assert len(there) == 2
    for ours, simulated in zip(there, here, strict=True):
        single = {f"test/accuracy_{which}" for which in ("worst", "median", "best")}
        sites = {name: ours.pop(name) for name in list(ours) if name.startswith("sites/")}
        assert sites == {"sites/answered": 3, "sites/asked": 3, "sites/test": 3, "sites/train": 3}
        assert ours.keys() == simulated.keys() - single
        np.testing.assert_allclose(list(ours.values()), [simulated[name] for name in ours], rtol=1e-6)
    assert not (run.folder / "run" / "clients.csv").exists()


@EACH
def test_what_leaves_a_site_is_what_traffic_says_to_the_byte(runs, algorithm):
    run = runs(algorithm)
    for name in NAMES:
        stages_of_site = [(arrays, answer) for site, _, arrays, answer in stages(run) if site == name]
        rounds = 2
        per_round = 2 if algorithm == "fedpap" else 1
        assert len(stages_of_site) == rounds * per_round
        assert sum(payload(sums) for _, (_, sums) in stages_of_site) == rounds * run.simulation.traffic.up
        down = sum(payload(arrays) for arrays, _ in stages_of_site)
        assert down == rounds * run.simulation.traffic.down
        assert all(table == {"site": name} for _, (table, _) in stages_of_site)


@EACH
def test_no_text_no_rare_word_and_no_example_id_leaves_a_site(runs, algorithm):
    run = runs(algorithm)
    answers = b"".join(answer for _, _, answer in run.sent)
    files_of_run = b"".join(p.read_bytes() for p in (run.folder / "run").rglob("*") if p.is_file())
    for where in (answers, files_of_run):
        for corpus in corpora().values():
            for example_id, dialogue in corpus.items():
                assert example_id.encode() not in where
                for sentence in dialogue["dialogue"]:
                    text = sentence["sentence"]
                    assert not [text[at : at + 2] for at in range(len(text) - 1) if text[at : at + 2].encode() in where]
        for alone in "甲乙丙":  # at one client of one site
            assert any(alone in json.dumps(corpus, ensure_ascii=False) for corpus in corpora().values())
            assert alone.encode() not in where
    assert "烧".encode() in answers  # at all of them: the spy sees words


def test_the_round_is_chosen_on_dev_examples_that_clients_keep_out(tmp_path):
    keys = ("choice.dev_share=0.3", "choice.dev_unit=document", "choice.metric=accuracy")
    run = trained(tmp_path, recipe_of("fedpap", *keys))
    assert_same_weights(run.result.weights, run.simulated.weights)
    there, here = (read_history(RunFolder(tmp_path / name)) for name in ("run", "simulated"))
    for name in ("dev/loss", "dev/accuracy", "test/loss"):
        np.testing.assert_allclose([row[name] for row in there], [row[name] for row in here], rtol=1e-6)
    assert run.result.chosen == run.simulated.chosen and run.result.chosen_on == run.simulated.chosen_on
    notes = [note for note in run.experiment.prepared.notes if note.startswith("dev: ")]
    assert len(notes) == 1 and run.simulation.notes[-1].startswith(notes[0])


def test_client_states_stay_at_the_sites(runs):
    run = runs("moon")
    for name in NAMES:
        assert not list((run.folder / "sites" / name / "state").rglob("clients/*/*")), "forgotten after the run"
    versions = [table["versions"] for _, table, _, _ in stages(run)]
    assert versions == [[-1]] * 3 + [[1]] * 3


def test_which_sites_took_part_is_written_and_exported(runs):
    run = runs("fedpap")
    rows = (run.folder / "run" / "took_part.csv").read_text().splitlines()
    assert rows == ["round,sites", "1,aachen bonn celle", "2,aachen bonn celle"]
    exported = api.export(run.folder / "run", run.folder / "export", formats="saved_model", runtime="in-process")
    card = (exported / "README.md").read_text("utf-8") if (exported / "README.md").exists() else ""
    written = card + "".join(p.read_text("utf-8") for p in exported.glob("*.json"))
    assert "at the sites aachen, bonn, celle" in written and "simulation" not in written
    score = api.score(exported, run.folder / "sites" / "bonn" / "texts.json")  # a site does this by itself
    assert 0 < score.metrics["accuracy"] <= 1


@pytest.fixture
def again(runs, tmp_path):
    """A finished run, its sites as processes that were started again, and `--runtime` of their sockets."""
    folder = runs("fedpap").folder
    federation = Federation({name: folder / "sites" / name / "site.toml" for name in NAMES})
    sockets = {name: tmp_path / name for name in NAMES}
    serving = [Serving(service.answer, sockets[name]) for name, service in federation.services.items()]
    for server in serving:
        threading.Thread(target=server.run, daemon=True).start()
    yield folder / "run", federation, "sites:" + ",".join(f"{name}={path}" for name, path in sockets.items())
    for server in serving:
        server.close()
    federation.close()


def test_sites_evaluate_a_finished_run_as_sums(again, capsys):
    run, federation, runtime = again
    last = read_history(RunFolder(run))[-1]
    with open_at_sites(run, DataPaths(), federation.engine) as (opened, _):
        for split, names in (("test", ("accuracy", "loss", "macro_f1")), ("train", ("accuracy", "loss"))):
            evaluated = Evaluator(opened.experiment, split)(opened.weights)
            assert {name: evaluated.metrics[name] for name in names} == {n: last[f"{split}/{n}"] for n in names}
    answers = [unpack(answer) for _, _, answer in federation.sent]
    assert len(answers) == 2 * len(NAMES) and all(set(table) == {"site"} for table, _ in answers)
    typed = command(capsys, "evaluate", run, "--runtime", runtime)
    assert typed.code == 0 and "test examples of 3 clients after round 2" in " ".join(typed.out.split())
    assert f"{last['test/accuracy']:.4f}" in typed.out and "bonn" not in typed.out


def test_what_sites_that_were_left_out_or_have_forgotten_do_to_an_evaluation(again, capsys, tmp_path):
    run, federation, runtime = again
    line = ("evaluate", run, "--runtime", runtime)
    refusal(command(capsys, *line, "--sites", "aachen,celle"), "bonn is not named", "--sites aachen,bonn,celle")
    (state,) = (run.parent / "sites" / "bonn" / "state" / "runs").iterdir()
    state.rename(tmp_path / "away")
    try:
        federation.restart("bonn")
        known = open_at_sites(run, DataPaths(), federation.engine)
        with pytest.raises(UserError, match="site bonn: it does not know the run"), known as (opened, _):
            Evaluator(opened.experiment, "test")(opened.weights)
    finally:
        (tmp_path / "away").rename(state)
    refusal(command(capsys, "evaluate", run.parent / "simulated", "--runtime", runtime), "is not a run across sites")


def test_commands_on_a_run_across_sites(runs, tmp_path, capsys):
    """What needs no examples works; what does says whose they are, and what to type."""
    run = runs("fedpap").folder / "run"
    held = "needs the run's examples, which are at the sites aachen, bonn, celle"
    refusal(
        command(capsys, "audit", run, "--runtime", "in-process"),
        held,
        "simulated run of the recipe (train without --sites)",
    )
    refusal(command(capsys, "cases", run), held)
    refusal(command(capsys, "evaluate", run, "--runtime", "in-process"), "--sites aachen,bonn,celle", "EXPORT --file")
    refusal(command(capsys, "evaluate", run, "--sites", "aachen"), "--sites needs --runtime")
    refusal(command(capsys, "predict", run, "烧"), "give the folder of an exported model")
    refusal(command(capsys, "export", run, "--adapter-only", "--runtime", "in-process"), "has no adapter")
    before = sorted(path.name for path in run.iterdir())
    refusal(command(capsys, "train", run / "recipe.toml", "--out", run, "--resume"), "holds a run across sites")
    assert sorted(path.name for path in run.iterdir()) == before
    assert command(capsys, "report", run, "--out", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "--runtime flower:SOCKET --sites aachen,bonn,celle --out runs/again" in page and "--partition" not in page
    for client in read_agreement(RunFolder(run).sites).clients:
        assert f"{client.site} (1 client, {client.train} training examples, in 2 of 2 rounds)" in page
    with pytest.raises(UserError, match="partition of a run across sites"):
        api.train(recipe_of(), tmp_path / "x", runtime="sites:a=/x", partition="p.json")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda table: table.pop("vectors_width"), "the key 'vectors_width' is missing"),
        (lambda table: table.update(new=1), "unknown key 'new'"),
        (lambda table: table["clients"][0].pop("site"), "the key 'clients.site' is missing"),
        (lambda table: table["clients"][0].update(train=1.0), "'clients.train' must be a whole number"),
        (lambda table: table["clients"][0].update(test=-1), "'test' must be from 0"),
        (lambda table: table.update(clients=3), "'clients' must be a list"),
    ],
)
def test_what_was_agreed_upon_is_read_as_it_was_written_and_nothing_else(runs, tmp_path, change, what):
    text = (runs("fedpap").folder / "run" / "sites.json").read_text("utf-8")
    path = tmp_path / "sites.json"
    path.write_text(text, "utf-8")
    agreement = read_agreement(path)
    assert agreement.sites == NAMES and agreement.to_json() + "\n" == text
    table = json.loads(text)
    change(table)
    path.write_text(json.dumps(table), "utf-8")
    with pytest.raises(UserError, match=f"sites.json: is damaged, or of another version .*{what}.*put the original"):
        read_agreement(path)


@pytest.mark.parametrize(
    ("algorithm", "rule"),
    [
        ("fednova", "median"),
        *(pytest.param(*row, marks=pytest.mark.slow) for row in (("fednova", "rfa"), ("fedavg", "median"))),
    ],
)
def test_rules_across_sites_are_those_of_one_place(tmp_path, algorithm, rule):
    """The median collects: what a site sends has a row for each of its clients, and no size that the type fixes."""
    run = trained(tmp_path, recipe_of(algorithm, f"aggregation.rule={rule}", "training.rounds=1"))
    assert_same_weights(run.result.weights, run.simulated.weights)


@pytest.mark.parametrize("compression", ["stochastic_8bit", pytest.param("top_k", marks=pytest.mark.slow)])
def test_compressed_updates_are_those_of_one_place(tmp_path, compression):
    """A site decodes and adds what its client sends in one graph, which must not change the order of the additions."""
    run = trained(tmp_path, recipe_of("fedpap", f"aggregation.compression={compression}"))
    assert_same_weights(run.result.weights, run.simulated.weights)


@pytest.mark.slow
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


def with_server(folder, algorithm, *overrides):
    """A recipe whose coordinator has dialogues of its own, in a file."""
    dialogues = {f"server-{key}": value for key, value in consultations(3).items()}
    path = write_json(folder / "own.json", dialogues)
    return recipe_of(algorithm, "task.server_share=0.2", f"task.path={path}", *overrides)


def test_feded_with_the_coordinators_own_examples(tmp_path):
    run = trained(tmp_path, with_server(tmp_path, "feded", "algorithm.temperature=2.0"))
    assert_same_weights(run.result.weights, run.simulated.weights)
    assert len(run.experiment.prepared.examples.server["y"]) == 3 * 6
    sent = [payload(sums) for site, _, _, (_, sums) in stages(run) if site == "bonn"]
    assert sum(sent) == 2 * run.simulation.traffic.up
    hello = next(message for _, message, _ in run.sent)
    assert b"own.json" not in hello and str(tmp_path).encode() not in hello


OTHER_MODEL = "client_model={name = 'lstm', units = 4, embedding_width = 3}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "overrides"),
    [
        ("feded", [OTHER_MODEL]),
        ("feded", ["algorithm.weighting=agreement"]),
        ("fedavg_server_pass", []),
        ("fedavgs", ["aggregation.rule=fltrust"]),
    ],
)
def test_others_with_examples_at_the_server(tmp_path, algorithm, overrides):
    run = trained(tmp_path, with_server(tmp_path, algorithm, *overrides))
    assert_same_weights(run.result.weights, run.simulated.weights)


@pytest.mark.parametrize(
    ("algorithm", "keys", "line"),
    [
        ("feded", (), "feded needs labelled examples at the server; set task.server_share"),
        ("feded", ("task.server_share=0.2",), "name its file with task.path"),
        ("fedavgs", ("aggregation.rule=fltrust",), "'fltrust' needs labelled examples at the server"),
        ("fedavgs", ("choice.dev_share=1e-9",), "'choice.dev_share' is 1e-09, which is less than one of the largest"),
    ],
)
def test_what_the_coordinator_cannot_train_is_refused(tmp_path, algorithm, keys, line):
    federation = Federation(write_sites(tmp_path / "sites"))
    with pytest.raises(UserError, match=line):
        train_at_sites(recipe_of(algorithm, *keys), tmp_path / "run", federation.engine)
    federation.close()


def test_a_recipe_at_sites_names_no_file_of_the_coordinator(runs):
    hello = next(unpack(message)[0] for _, message, _ in runs("fedpap").sent)
    assert hello["kind"] == "hello" and "path" not in tomllib.loads(hello["recipe"])["task"]


def dialogues_of(name):
    """Three sites' shares of real dialogues, in IMCS-V2's format."""
    if name == "shipped":
        file = resources.files("datasets") / "shipped" / "consultations_train.json"
    else:
        if "TFF_RE_DATA" not in os.environ:
            pytest.skip("TFF_RE_DATA names no folder")
        file = Path(os.environ["TFF_RE_DATA"]) / "mie" / "dev.imcs_v2.json.gz"
    content = file.read_bytes()
    whole = list(json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).items())
    return {site: dict(whole[number :: len(NAMES)]) for number, site in enumerate(NAMES)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shipped", "mie"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_real_dialogues_cut_in_three(tmp_path, algorithm, name):
    recipe = recipe_of(algorithm, "task.max_length=40", "task.encoding=words", "algorithm.local_epochs=1")
    run = trained(tmp_path, recipe, write_sites(tmp_path / "sites", dialogues_of(name)))
    assert len(run.experiment.prepared.encoding.vocabulary) > 200
    assert run.experiment.prepared.encoding == run.simulation.prepared.encoding
    assert_same_weights(run.result.weights, run.simulated.weights)


def write_pairs(path, name):
    """Lines of PGR: made up, or 600 of the published ones."""
    if name == "made up":
        return write_pgr(path, documents=9).read_text("utf-8").splitlines()
    if "TFF_RE_DATA" not in os.environ:
        pytest.skip("TFF_RE_DATA names no folder")
    file = Path(os.environ["TFF_RE_DATA"]) / "pgr" / "train.tsv.gz"
    lines = gzip.decompress(file.read_bytes()).decode("utf-8").splitlines()[:601]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["learned", "file"])
@pytest.mark.parametrize("name", ["made up", pytest.param("pgr", marks=pytest.mark.real_data)])
def test_relations_in_sentences_with_fedcmc(tmp_path, name, vectors):
    heading, *rows = write_pairs(tmp_path / "whole.tsv", name)
    files = {}
    for number, site in enumerate(NAMES):
        files[site] = write_site(tmp_path / site, site, {}, data={"dataset": "pgr", "path": "texts.tsv"})
        rows_here = [row for row in rows if int(row.split("\t")[0].removeprefix("doc")) % 3 == number]
        (tmp_path / site / "texts.tsv").write_text("\n".join([heading, *rows_here]) + "\n", "utf-8")
    words = {"encoding": "words", "max_length": 20, "min_clients": 2, "test_share": 0.3}
    if vectors == "file":
        words["vectors_path"] = str(tmp_path / "vectors.txt")
        (tmp_path / "vectors.txt").write_text("2 3\nthe 1 2 3\ngene 4 5 6\n", "utf-8")
    table = {
        "name": "tiny-relations",
        "task": {"name": "sentence_relations", "dataset": "pgr", **words},
        "model": {"name": "pcnn", "embedding_width": 4, "filters": 3, "position_width": 2},
        "algorithm": {"name": "fedcmc", "learning_rate": 0.05, "local_epochs": 1},
        "training": {"rounds": 2, "clients_per_round": 3},
    }
    run = trained(tmp_path, resolve(table, "tiny-relations.toml"), files, tmp_path / "whole.tsv")
    assert run.experiment.prepared.measures.positive_labels == run.simulation.prepared.measures.positive_labels
    assert_same_weights(run.result.weights, run.simulated.weights)
    known = len(run.experiment.prepared.encoding.tokenizer)
    assert run.experiment.model.weights_type.trainable[0].shape == (known, 3 if vectors == "file" else 4)
    assert not any(SECRET.encode() in answer for _, _, answer in run.sent)
    assert not any(b"vectors.txt" in message for _, message, _ in run.sent)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (["failures.dropout=0.2"], "failures. works only in a simulation"),
        (["attack.kind=sign_flip"], "attack. works only in a simulation"),
        (["aggregation.secure=simulated"], "aggregation.secure = 'simulated' works only in a simulation"),
        (["baseline.kind=pooled"], "baseline.kind = 'pooled' is not for runs across sites"),
        (["personalise.local_head=true"], "'personalise.local_head' is not for runs across sites"),
        (["training.tolerated_failures=1"], "tolerated_failures is not for runs across sites"),
        (
            ["training.min_clients=1", "privacy={unit='client', clip=1.0, noise_multiplier=1.0}"],
            "min_clients cannot be combined with .privacy.",
        ),
    ],
)
def test_what_sites_do_not_do_is_refused(keys, line):
    with pytest.raises(UserError, match=line):
        SitesBuilder(None).build(tiny(*keys))
