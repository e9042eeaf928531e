"""[baseline] and [personalise] across sites: own models stay at their sites, and policies say what is told of them."""

from __future__ import annotations

import dataclasses
import json
import re
import secrets

import attrs
import numpy as np
import pytest
import tensorflow as tf

from tests.sites.sites_for_tests import (
    NAMES,
    Federation,
    corpora,
    decisions_of,
    recipe_of,
    simulation_inputs,
    write_site,
    write_sites,
)
from tests.upper_floors import assert_same_weights
from tff_re import api
from tff_re.errors import UserError
from tff_re.pages.live_page import live_page
from tff_re.pages.run_page import run_page
from tff_re.runs.folder import RunFolder
from tff_re.runs.live import LiveFolder
from tff_re.runs.reading import read_table
from tff_re.runs.run import train_run
from tff_re.sites import own_models, protocol
from tff_re.sites.comparison_messages import NUMBERS, Alone, Compare, CompareAnswer
from tff_re.sites.comparisons import federated_recipe
from tff_re.sites.messages import Malformed, unpack
from tff_re.sites.own_models import compared
from tff_re.sites.program import arrays_of
from tff_re.sites.run import train_at_sites
from tff_re.tasks.data_paths import DataPaths

BOTH = (
    "baseline={kind = 'local'}",
    "personalise={epochs = 2}",
    "algorithm.local_epochs=1",
    "algorithm.learning_rate=0.003",
)


def site_files(folder, **policies):
    files = write_sites(folder / "sites", corpora(9))
    for name, policy in policies.items():
        files[name] = write_site(folder / "sites" / name, name, corpora(9)[name], allow={"comparison": policy})
    return files


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(folder, sites, recipe, result, lines): aachen tells all, bonn the direction, celle by default nothing."""
    folder, recipe, lines = tmp_path_factory.mktemp("comparisons"), recipe_of("fedavgs", *BOTH), []
    federation = Federation(site_files(folder, aachen="interval", bonn="direction"))
    _, result = train_at_sites(recipe, folder / "run", federation.engine, on_line=lines.append)
    yield folder, federation, recipe, result, lines
    federation.close()


@pytest.fixture(scope="module")
def simulations(run):
    """Table -> (folder of a simulation on the same clients with only this table, its result); None: with neither."""
    folder, federation, recipe, _, _ = run
    simulated = {}
    for table in (None, "baseline", "personalise"):
        of_table = dataclasses.replace(federated_recipe(recipe), **({table: getattr(recipe, table)} if table else {}))
        of_table, partition = simulation_inputs(folder / "one place", of_table, federation.files)
        out = folder / f"simulated {table}"
        options = {"data_paths": DataPaths(partition=partition), "runtime": "in-process", "details": False}
        simulated[table] = out, train_run(of_table, out, **options)[1]
    return simulated


def state_of(run, name):
    (state,) = (run[0] / "sites" / name / "state" / "runs").iterdir()
    return state


def column(out, name):
    return {row["client"]: row[name] for row in read_table(RunFolder(out).clients)}


def test_the_federated_run_is_as_without_the_tables(run, simulations):
    assert_same_weights(run[3].weights, simulations[None][1].weights)


def test_a_site_alone_is_the_client_of_the_simulation_and_its_model_stays(run, simulations):
    out, result = simulations["baseline"]
    accuracy, federated = column(out, "accuracy"), column(simulations[None][0], "accuracy")
    for name in NAMES:
        state = state_of(run, name)
        keras = tf.keras.models.load_model(state / "alone" / "model.keras")
        for ours, simulated in zip(keras.trainable_weights, result.weights[name].trainable, strict=True):
            np.testing.assert_array_equal(ours.numpy(), simulated)
        record = json.loads((state / "compared-alone.json").read_text("utf-8"))
        assert (record["before"], record["after"]) == pytest.approx((accuracy[name], federated[name]), abs=1e-6)
        assert record["unit"] == "document" and record["low"] <= record["difference"] <= record["high"]
    sent = b"".join(answer for _, _, answer in run[1].sent)
    for tensor in arrays_of(result.weights["aachen"].trainable):
        assert tensor.tobytes() not in sent


def test_fine_tuning_at_a_site_is_that_of_the_simulation(run, simulations):
    personal = column(simulations["personalise"][0], "accuracy_personal")
    for name in NAMES:
        record = json.loads((state_of(run, name) / "compared-tuned.json").read_text("utf-8"))
        assert record["after"] == pytest.approx(personal[name], abs=1e-6)
        assert (state_of(run, name) / "tuned.keras").exists()


def test_what_a_site_tells_is_what_its_policy_allows(run):
    answers = [(site, unpack(message)[0], unpack(answer)) for site, message, answer in run[1].sent]
    compared_by = {
        name: [answer for site, asked, answer in answers if (site, asked["kind"]) == (name, "compare")]
        for name in NAMES
    }
    for table, arrays in compared_by["celle"]:
        assert table == {"site": "celle", "disclosed": "nothing"} and not arrays
    for table, arrays in compared_by["bonn"]:
        assert table.keys() == {"site", "disclosed", "verdict"} and table["disclosed"] == "direction" and not arrays
    for (table, arrays), what in zip(compared_by["aachen"], ("alone", "tuned"), strict=True):
        record = json.loads((state_of(run, "aachen") / f"compared-{what}.json").read_text("utf-8"))
        assert table["verdict"] == record["verdict"] and arrays[0].tolist() == [record[key] for key in NUMBERS]
    rounds = [answer[0] for _, asked, answer in answers if asked["kind"] == "alone"]
    assert all(table.keys() == {"site", "rounds", "finished"} for table in rounds) and len(rounds) == 3


def test_summary_lines_and_card_have_the_table(run):
    folder, _, _, _, lines = run
    summary = json.loads((folder / "run" / "summary.json").read_text("utf-8"))["comparisons"]
    assert summary.keys() == {"alone", "tuned"} and summary["alone"]["measure"] == "accuracy"
    aachen, bonn, celle = summary["alone"]["rows"]
    assert aachen.keys() == {"site", "disclosed", "verdict", *NUMBERS}
    assert bonn.keys() == {"site", "disclosed", "verdict"} and celle == {"site": "celle", "disclosed": "nothing"}
    assert lines[0] == (
        "after the last round each site trains alone for 2 rounds and fine-tunes the federated model, and compares "
        "the models on its own test examples; told to the coordinator (allow.comparison): aachen both "
        "measures, the difference and the verdict, bonn the verdict, celle nothing"
    )
    assert "site celle: federated against alone: not told" in lines
    assert f"site bonn: federated against alone: {bonn['verdict']}" in lines
    exported = api.export(folder / "run", folder / "export", formats="saved_model", runtime="in-process")
    card = (exported / "README.md").read_text("utf-8")
    assert "## Alone and federated at the sites" in card and "## Federated and fine-tuned at the sites" in card
    assert f"| aachen | {aachen['before']:.4f} | {aachen['after']:.4f} | {aachen['difference']:+.4f} (" in card
    assert f"| bonn | not told | not told | not told | {bonn['verdict']} |" in card
    assert "| celle | not told | not told | not told | not told |" in card
    assert "nothing is sent" not in card and "[baseline]" in (exported / "recipe.toml").read_text("utf-8")


def test_the_pages_of_the_run_have_the_table(run):
    folder = run[0] / "run"
    aachen, bonn, _ = json.loads((folder / "summary.json").read_text("utf-8"))["comparisons"]["alone"]["rows"]
    for html in (run_page(folder), live_page(LiveFolder(folder).read())):
        assert "Alone and federated at the sites" in html and "Federated and fine-tuned at the sites" in html
        text = " ".join(re.sub("<[^>]+>", " ", html[html.index("Was it worth it at the sites?") :]).split())
        numbers = f"{aachen['before']:.4f} {aachen['after']:.4f} {aachen['difference']:+.4f} ({aachen['low']:+.4f}"
        assert f"aachen {numbers}" in text and f"bonn not told not told not told {bonn['verdict']}" in text
        assert "celle not told not told not told not told" in text


def test_a_comparison_is_made_once_with_one_model(run):
    _, federation, _, result, _ = run
    asked = next(
        message for site, message, _ in federation.sent if unpack(message)[0]["kind"] == "compare" and site == "aachen"
    )
    answer = next(answer for site, message, answer in federation.sent if (site, message) == ("aachen", asked))
    federation.restart("aachen")
    assert federation.services["aachen"].answer(asked) == answer
    question = protocol.question_of(asked)
    other = attrs.evolve(question, arrays=tuple(array + 1 for array in question.arrays))
    refused = protocol.answer_of(Compare, federation.services["aachen"].answer(protocol.to_bytes(other)))
    assert "asked for with other weights before" in refused.refused
    assert len(result.weights.trainable) <= len(question.arrays)


def test_a_site_that_is_asked_again_and_again_or_restarted_trains_the_same_model(
    run, simulations, tmp_path, monkeypatch
):
    monkeypatch.setattr(own_models, "STEP_SECONDS", 0.0)
    federation, lines = Federation(site_files(tmp_path)), []
    whole = own_models.OwnModels.alone

    def restarting(models, *arguments):
        answer = whole(models, *arguments)
        if answer.rounds == 1 and models._site.options.name == "bonn":
            federation.restart("bonn")
        return answer

    monkeypatch.setattr(own_models.OwnModels, "alone", restarting)
    recipe = recipe_of("fedavgs", BOTH[0], *BOTH[2:])
    train_at_sites(recipe, tmp_path / "run", federation.engine, details=False, on_line=lines.append)
    federation.close()
    assert "sites train alone; rounds so far: aachen 1, bonn 1, celle 1" in lines
    for name in NAMES:
        (state,) = (tmp_path / "sites" / name / "state" / "runs").iterdir()
        keras = tf.keras.models.load_model(state / "alone" / "model.keras")
        for ours, simulated in zip(
            keras.trainable_weights, simulations["baseline"][1].weights[name].trainable, strict=True
        ):
            np.testing.assert_array_equal(ours.numpy(), simulated)


def test_a_site_with_several_clients_is_one_and_the_round_is_chosen_on_its_dev_examples(tmp_path):
    files = write_sites(tmp_path / "sites", corpora(9), clients={"rule": "documents"}, allow={"comparison": "interval"})
    keys = ("baseline={kind = 'local'}", "choice.dev_share=0.3", "training.clients_per_round=5", "training.rounds=2")
    federation = Federation(files)
    train_at_sites(recipe_of("fedavgs", *keys), tmp_path / "run", federation.engine, details=False)
    federation.close()
    (state,) = (tmp_path / "sites" / "aachen" / "state" / "runs").iterdir()
    summary = json.loads((state / "alone" / "summary.json").read_text("utf-8"))
    assert summary["chosen"]["by"] == "dev/loss" and [
        c["client"] for c in read_table(state / "alone" / "clients.csv")
    ] == ["aachen"]
    record = json.loads((state / "compared-alone.json").read_text("utf-8"))
    assert record["examples"] > record["units"] >= 2


def test_a_site_that_is_lost_has_no_row_and_the_run_is_finished(tmp_path, monkeypatch):
    federation, lines = Federation(site_files(tmp_path, aachen="direction")), []

    def full(*arguments):
        raise OSError(28, "no space left")

    monkeypatch.setattr(federation.services["bonn"]._own_models, "compare", full)
    train_at_sites(
        recipe_of("fedavgs", BOTH[1]), tmp_path / "run", federation.engine, details=False, on_line=lines.append
    )
    federation.close()
    rows = json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))["comparisons"]["tuned"]["rows"]
    assert [row["disclosed"] for row in rows] == ["direction", "no answer", "nothing"]
    assert any("no space left" in line and "its comparison is missing" in line for line in lines)


def test_masks_and_privacy_lower_what_is_told():
    masked, private = (
        recipe_of("fedavgs", "aggregation.secure=masks"),
        recipe_of(
            "fedavgs", "privacy={unit = 'example', noise_multiplier = 1.0, clip = 1.0}", "evaluation.train_split=false"
        ),
    )
    told = {p: decisions_of(comparison=p).comparison(masked) for p in ("interval", "direction", "nothing")}
    assert told == {"interval": "direction", "direction": "direction", "nothing": "nothing"}
    assert decisions_of(comparison="interval").comparison(private) == "nothing"
    assert decisions_of(comparison="interval").comparison(recipe_of()) == "interval"
    assert decisions_of().comparison(recipe_of()) == "nothing"


@pytest.mark.parametrize(
    ("algorithm", "keys", "line"),
    [
        ("fedavgs", ("baseline={kind = 'pooled'}",), "nobody has all examples; set it to 'local'"),
        ("moon", (BOTH[0],), "its clients keep their own state"),
        ("fedavgs", ("personalise={local_head = true}",), "'personalise.local_head' is not for runs across sites"),
        ("fedavgs", ("personalise={layers = 'adapter'}",), "has no adapter"),
    ],
)
def test_what_sites_cannot_compare_is_refused_by_name(tmp_path, algorithm, keys, line):
    federation = Federation(write_sites(tmp_path / "sites"))
    with pytest.raises(UserError, match=line):
        train_at_sites(recipe_of(algorithm, *keys), tmp_path / "run", federation.engine)
    federation.close()
    assert not (tmp_path / "run").exists()


def test_a_recipe_without_the_tables_trains_nothing_alone(tmp_path):
    federation = Federation(write_sites(tmp_path / "sites"))
    recipe = recipe_of("fedavgs", "training.rounds=1")
    train_at_sites(recipe, tmp_path / "run", federation.engine, details=False)
    run_id = unpack(federation.sent[0][1])[0]["run"]
    for question in (Alone(run=run_id), Compare(run=run_id, what="alone"), Compare(run=run_id, what="tuned")):
        answer = protocol.answer_of(type(question), federation.services["bonn"].answer(protocol.to_bytes(question)))
        assert "the recipe" in answer.refused
    unknown = Alone(run=secrets.token_hex(16))
    answer = protocol.answer_of(Alone, federation.services["bonn"].answer(protocol.to_bytes(unknown)))
    assert "does not know the run" in answer.lost
    federation.close()


def test_the_interval_is_over_documents_and_few_of_them_are_open():
    documents = [f"d{number // 4}" for number in range(80)]
    before = np.array([[number % 4 == 0, 1, 1] for number in range(80)], float)
    after = np.array([[number % 4 < 3, 1, 1] for number in range(80)], float)
    measured = compared(before, after, documents)
    assert (
        measured["before"] == 0.25
        and measured["after"] == 0.75
        and measured["units"] == 20
        and measured["unit"] == "document"
    )
    assert measured["verdict"] == "gain" and measured["low"] == measured["high"] == 0.5  # alike in all documents
    assert compared(after, before, documents)["verdict"] == "loss"
    assert compared(before[:28], after[:28], documents[:28])["verdict"] == "open"  # seven documents
    assert compared(before, before, documents)["verdict"] == "open"
    by_example = compared(before, after, [])
    assert by_example["unit"] == "example" and by_example["low"] < 0.5 < by_example["high"]
    assert by_example["before"] == 0.25


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"disclosed": "nothing", "verdict": "gain"}, "must say what the answer has"),
        ({"disclosed": "direction"}, "must say what the answer has"),
        ({"disclosed": "direction", "verdict": "open", "numbers": np.zeros(5)}, "must say what the answer has"),
        (
            {"disclosed": "interval", "verdict": "open", "numbers": np.array([0.5, 1.5, 1.0, 0, 1])},
            "shares from 0 to 1",
        ),
        ({"disclosed": "interval", "verdict": "open", "numbers": np.array([0.5, 0.6, 0.2, 0, 1])}, "the difference"),
        ({"disclosed": "interval", "verdict": "gain", "numbers": np.array([0.5, 0.6, 0.1, -1, 1])}, "of the interval"),
        ({"disclosed": "interval", "verdict": "open", "numbers": np.full(5, np.nan)}, "shares from 0 to 1"),
    ],
)
def test_an_answer_that_does_not_fit_itself_is_malformed(fields, line):
    with pytest.raises(ValueError, match=line):
        CompareAnswer(site="bonn", **fields)
    message = protocol.to_bytes(CompareAnswer(site="bonn", disclosed="direction", verdict="open"))
    with pytest.raises(Malformed, match="'disclosed'"):
        protocol.answer_of(Compare, message.replace(b"direction", b"somewhere"))
