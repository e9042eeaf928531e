"""The audit of a run: one small run that learns its examples by heart, audited once; and what is refused."""

from __future__ import annotations

import dataclasses
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
from scipy.optimize import brentq

import tff_re
from computations import algorithms
from computations.algorithms.arranged import privatised
from computations.privacy.options import PrivacyOptions
from datasets.errors import DataError
from tests.upper_floors import command, refusal, sentence, write_json, write_recipe
from tff_re.auditing.audit import audit_run
from tff_re.auditing.canaries import Claim, _against_claim, claim_of, direction, train_with_canaries, with_canaries
from tff_re.auditing.canaries import _estimates as estimates
from tff_re.auditing.membership import judge, outputs_of
from tff_re.auditing.one_round import build_update, no_weights_sent, round_clients
from tff_re.errors import UserError
from tff_re.recipes.reading import load
from tff_re.runs.evaluation import arranged
from tff_re.runs.finished import open_run
from tff_re.runs.folder import RunFolder
from tff_re.runtime import open_runtime
from tff_re.tasks.data_paths import DataPaths

CHARACTERS = [chr(0x4E00 + 7 * number) for number in range(300)]


def corpus() -> dict:
    """160 texts of ten random characters with random labels: there is nothing to learn but the examples."""
    draw = np.random.default_rng(0)
    dialogues = {}
    for d in range(8):
        texts = ["".join(draw.choice(CHARACTERS, 10)) for _ in range(20)]
        labels = draw.integers(0, 2, len(texts))
        lines = [sentence(i, text, *["1"] * label) for i, (text, label) in enumerate(zip(texts, labels, strict=True))]
        dialogues[f"dialogue-{d}"] = {"diagnosis": "流感", "dialogue": lines}
    return dialogues


@pytest.fixture(scope="module")
def texts():
    return [line["sentence"] for dialogue in corpus().values() for line in dialogue["dialogue"]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audited")
    recipe = {
        "name": "by-heart",
        "task": {
            "name": "symptom_classification",
            "path": str(write_json(folder / "corpus.json", corpus())),
            **{"encoding": "characters", "max_length": 12, "min_clients": 2, "test_share": 0.4},
        },
        "partition": {"name": "iid", "num_clients": 4},
        "model": {"name": "logistic_regression", "features": "word_presence"},
        "algorithm": {"name": "fedavgs", "learning_rate": 0.5, "local_epochs": 20},
        "training": {"rounds": 4, "clients_per_round": 4},
    }
    path = write_recipe(folder / "r.toml", recipe)
    tff_re.train(load(str(path)), folder / "run", runtime="in-process")
    return folder / "run"


@pytest.fixture(scope="module")
def opened(trained, tmp_path_factory):
    copy = shutil.copytree(trained, tmp_path_factory.mktemp("opened") / "run")  # an open run is locked
    with open_run(copy, DataPaths(), "in-process") as (run, _):
        yield run


@pytest.fixture(scope="module")
def audited(trained, tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / "audit"
    result = tff_re.audit(trained, out, canaries=30, shadows=2, runtime="in-process")
    return SimpleNamespace(out=out, result=result, numbers=json.loads((out / "audit.json").read_text("utf-8")))


def test_the_report_has_every_part_and_a_summary(audited, texts):
    report = (audited.out / "audit.md").read_text("utf-8")
    assert report.count("### What was tried") == report.count("### What was not tried") == 4
    verdict, *sentences = audited.result.judgement
    assert report.splitlines()[2] == f"**{verdict}**" and len(sentences) == 4
    assert verdict.startswith("The run reveals the words of a client's texts") and "examples were trained on" in verdict
    assert all(report.index(sentence) < report.index("## What was audited") for sentence in sentences)
    assert audited.numbers["judgement"] == [verdict, *sentences]
    assert len(repr(audited.result)) < 400
    assert report.index("## Canary clients") < report.index("## Summary") < len(report)
    assert (
        all(f"| {' | '.join(row)} |" in report for row in audited.result.summary) and len(audited.result.summary) > 10
    )
    for file in audited.result.files:
        assert file.exists() and not file.stat().st_mode & 0o077, file
    assert {file.name for file in audited.result.files} == {path.name for path in audited.out.iterdir()}
    for line in report.splitlines():
        if line.startswith("!["):
            assert (audited.out / line.split("(")[-1].rstrip(")")).stat().st_size > 5000


def test_no_text_of_the_corpus_is_written(audited, texts):
    written = "".join(f.read_text("utf-8") for f in audited.out.iterdir() if f.suffix in (".md", ".csv", ".json"))
    assert len(written) > 3000 and not any(text[i : i + 3] in written for text in texts for i in range(8))


def test_an_update_names_its_clients_words(audited):
    words = audited.numbers["parts"]["words"]["words"]
    assert words["weight"] == "classifier/kernel" and "word_presence" in words["why"]
    assert words["first round"]["recall"] == words["first round"]["ranking_auc"] == 1.0
    for when in ("first round", "finished model", "sum of the round"):
        assert words[when]["precision"] == 1.0 and words[when]["precision_interval"][0] > 0.97
        # Where the examples are known by heart some steps are too small for float32.
        assert words[when]["recall"] > 0.8
        assert words[when]["ranking_auc"] is None or words[when]["ranking_auc"] > 0.9  # none: all words are there
    assert "not applicable" in (audited.out / "audit.md").read_text("utf-8")  # the span check
    assert "no pretrained encoder" in audited.numbers["parts"]["words"]["span"]["not_applicable"]


def test_a_model_that_learned_by_heart_tells_its_members(audited, opened):
    membership = audited.numbers["parts"]["membership"]
    assert membership["members"] > 80 and membership["others"] > 50 and membership["shadows"] == 2
    for attack in ("loss threshold", "shadow models"):
        assert membership[attack]["auc_interval"][0] > 0.7, attack
    # The same model before training tells nothing.
    model, federated = opened.experiment.model, opened.experiment.prepared.examples
    blank = model.initial_weights(3)
    scores = [-outputs_of(model, blank, model.arrange(federated.pooled(split)))[0] for split in ("train", "test")]
    low, high = judge(*scores, seed=0).auc_interval
    assert low < 0.5 < high


def test_losses_and_confidences_are_kerass(opened):
    model, weights = opened.experiment.model, opened.weights
    examples = model.arrange(opened.experiment.prepared.examples.pooled("test"))
    losses, confidences = outputs_of(model, weights, examples)
    logits = np.asarray(model.keras_model(weights)({"tokens": examples["tokens"]})["logits"], np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    of_label = shares[np.arange(len(shares)), examples["y"]]
    np.testing.assert_allclose(losses, -np.log(of_label), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(confidences, np.log(of_label) - np.log(1 - of_label), rtol=1e-3, atol=1e-4)


# Canaries


def test_without_noise_the_bound_is_above_zero(audited):
    canaries = audited.numbers["parts"]["canaries"]
    assert canaries["claim"] == {"unit": None, "epsilon": None, "delta": None} and canaries["below_the_claim"] is None
    assert canaries["taking_part"] == 30 and canaries["unobserved"] == 1000
    for who in ("the final model", "every round's model"):
        assert canaries[who]["lower_bound"] > 0.5
        low, high = canaries[who]["interval"]
        assert low <= canaries[who]["estimate"] <= high and low > 1


def private_run(opened, noise_multiplier: float):
    """The run with differential privacy of clients: all four take part in each of the four rounds."""
    experiment = opened.experiment
    options = {"expected_clients": 4.0, "noise_multiplier": noise_multiplier}
    algorithm = privatised(experiment.algorithm, PrivacyOptions(clip=0.5, noise_multiplier=1.0), **options)
    return dataclasses.replace(opened, experiment=dataclasses.replace(experiment, algorithm=algorithm))


def claimed(noise_multiplier: float, delta: float) -> float:
    """Epsilon of four Gaussian releases, of which each client is in all."""
    mechanism = GaussianPrivacyLoss(noise_multiplier / 2)
    return brentq(lambda epsilon: mechanism.get_delta_for_epsilon(epsilon) - delta, 0, 500)


def test_with_noise_the_bound_lies_between_zero_and_the_claim(opened):
    delta = 1e-2
    tried = train_with_canaries(private_run(opened, 1.0), 30, 1, 0.5, 1.0, lambda text: None)
    assert len(tried.observed.final) == 30 and tried.dimension > 400
    bounds = estimates(tried, delta, 0)
    assert len(bounds) == 2
    for bound, _, _ in bounds.values():
        assert bound.lower < claimed(1.0, delta) and bound.interval[0] < claimed(1.0, delta) + 1
    assert max(bound.lower for bound, _, _ in bounds.values()) > 0.2
    spread = tried.unobserved.final.std() * np.sqrt(tried.dimension)
    assert spread == pytest.approx(1, abs=0.1)  # as random directions have it


@pytest.mark.slow  # that there is a bound without noise is tested above
def test_a_private_sum_without_noise_hides_nothing(opened):
    tried = train_with_canaries(private_run(opened, 0.0), 30, 1, 0.5, 1.0, lambda text: None)
    assert all(bound.lower > 1 for bound, _, _ in estimates(tried, 1e-2, 0).values())


@pytest.mark.parametrize("name", ["in-process", pytest.param("local", marks=pytest.mark.slow)])
def test_a_canary_sends_its_direction_and_others_what_they_trained(opened, name, tmp_path):
    """FedAvg over two clients and a canary of length 2: the mean by examples, the canary with weight 30."""
    experiment = opened.experiment
    model, algorithm = experiment.model, experiment.algorithm
    ids, examples = arranged(experiment, "train")
    _, clients = round_clients(experiment, ids, examples, 1, 0)
    clients = clients[:2]
    seed = np.array([5, -6], np.int32)
    weights = model.initial_weights(0)
    nothing = type(examples[0])((key, value[:0]) for key, value in examples[0].items())
    marked = [type(client)(client, canary=np.bool_(False)) for client in clients]
    marked.append({"examples": nothing, "seed": seed, "canary": np.bool_(True)})
    changed = with_canaries(algorithm, 2.0, 30.0)
    assert changed.client_work.outputs == algorithm.client_work.outputs

    with open_runtime(name, log_path=tmp_path / "log"):
        updates = build_update(algorithm)(weights, clients)
        new = changed.next(changed.initialize(weights), marked)["state"]["weights"].trainable
    counts = [len(client["examples"]["y"]) for client in clients] + [30]
    canary = [2.0 * tensor.numpy() for tensor in direction(model, seed)]
    assert np.sqrt(sum(np.sum(np.square(tensor)) for tensor in canary)) == pytest.approx(2, rel=1e-5)
    for index, (old, updated) in enumerate(zip(weights.trainable, new, strict=True)):
        sent = [update[index] for update in updates] + [canary[index]]
        mean = sum(n * value for n, value in zip(counts, sent, strict=True)) / sum(counts)
        np.testing.assert_allclose(old - updated, mean, rtol=1e-4, atol=1e-6)


def test_the_claim_beside_the_bound(tmp_path):
    folder = RunFolder(tmp_path)
    folder.summary.write_text(json.dumps({"privacy": {"unit": "client", "epsilon": 2.5, "delta": 1e-3}}), "utf-8")
    claim = claim_of(folder)
    assert claim == Claim("client", 2.5, 1e-3)
    assert "does not contradict the claim" in _against_claim(claim, 2.0)
    assert "THE CLAIM IS WRONG" in _against_claim(claim, 3.0)
    assert "cannot be compared" in _against_claim(Claim("example", 2.5, 1e-3), 3.0)
    assert "claims no ε" in _against_claim(Claim(), 3.0)
    folder.summary.write_text("{", "utf-8")
    with pytest.raises(UserError, match=r"summary\.json: cannot be read"):
        claim_of(folder)


def test_predictions_are_no_change_of_weights(opened):
    experiment = opened.experiment
    registered = algorithms.find("feded")
    algorithm = registered.build(experiment.model, registered.options(num_server_examples=4))
    assert no_weights_sent(algorithm) == "its clients send predictions on the server's examples, not weights"
    assert no_weights_sent(experiment.algorithm) is None


# Files


def test_the_runs_own_files_hold_no_text_and_ids_in_the_partition_alone(audited):
    artefacts = audited.numbers["parts"]["artefacts"]
    assert artefacts["occurrences"]["raw text"] == 0 and artefacts["files"] > 10
    with_ids = {item["file"] for item in artefacts["found"] if item["kind"] == "id of an example"}
    assert with_ids == {"partition.json"}


def test_a_planted_text_is_found_by_the_command(trained, tmp_path, texts, capsys):
    run = shutil.copytree(trained, tmp_path / "run")
    partition = json.loads((run / "partition.json").read_text("utf-8"))
    with (run / "run.log").open("a", encoding="utf-8") as log:
        log.writelines(f"{text}\n" for text in texts)
    assert partition
    typed = command(capsys, "audit", run, "--parts", "artefacts", "--runtime", "in-process")
    assert typed.code == 0 and "files: raw text" in " ".join(typed.out.split())
    numbers = json.loads((run / "audit" / "audit.json").read_text("utf-8"))["parts"]["artefacts"]
    (held,) = (item for item in numbers["found"] if item["kind"] == "raw text")
    assert held["file"] == "run.log" and held["occurrences"] > 80
    assert "RAW TEXT" in (run / "audit" / "audit.md").read_text("utf-8")
    assert not any(text[:4] in typed.out for text in texts)


def test_under_noise_units_and_advice_fit_the_run(trained, tmp_path):
    """DP-SGD changes every row: no "100 % of the words", and privacy.unit = "example" is not advised to it."""
    privacy = 'privacy={unit="example", noise_multiplier=2.0, delta=1e-2}'
    recipe = load(str(trained / "recipe.toml"), (privacy, "evaluation.train_split=false", "training.rounds=1"))
    tff_re.train(recipe, tmp_path / "run", runtime="in-process")
    said = []
    ways = {"parts": ("words", "membership", "canaries"), "shadows": 0, "canaries": 0, "runtime": "in-process"}
    result = tff_re.audit(tmp_path / "run", on_step=said.append, **ways)
    assert [line for line in said if line.startswith("left out")] == [
        "left out: canary clients (--canaries 0), so ε was not measured",
        "left out: shadow models (--shadows 0), so membership was tested by the loss only",
    ]
    findings = [row for row in result.summary if row[0] == "words"]
    assert findings[0][1].startswith("AUC of a client's words before others") and "%" not in findings[0][2]
    assert not any("its update reveals" in row[1] or "their sum reveals" in row[1] for row in findings)
    for row in result.summary:
        assert "privacy.unit = 'example' at" not in row[-1] and "'example' or 'group'" not in row[-1]
    assert "more noise than the run's (privacy.unit = 'example'" in result.summary[0][-1]
    left_open = json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))["privacy"]["seen_by_server"]
    said = ["Its guarantee does not cover what the server saw in addition to the noised updates:", ""]
    said += [f"- {line}" for line in left_open]
    assert left_open and "\n".join(said) in (tmp_path / "run" / "audit" / "audit.md").read_text("utf-8")
    assert "noise changes every row" in result.judgement[1] and "--canaries 0 was given" in result.judgement[3]


# What is refused


def test_what_is_refused(trained, tmp_path, capsys):
    refusal(command(capsys, "audit", tmp_path / "none"), "none: no such folder")
    (tmp_path / "empty").mkdir()
    refusal(command(capsys, "audit", tmp_path / "empty"), "holds no run (recipe.toml is missing)")
    refusal(command(capsys, "audit", trained, "--parts", "words,membreship"), "no part 'membreship'", "membership")
    refusal(command(capsys, "audit", trained, "--parts", ","), "--parts: names no part")
    refusal(command(capsys, "audit", trained, "--canaries", 3), "--canaries 3: too few")
    refusal(command(capsys, "audit", trained, "--shadows", 1), "--shadows 1")
    nothing = command(capsys, "audit", trained, "--parts", "canaries", "--canaries", 0, "--shadows", 0)
    refusal(nothing, "--canaries 0 leaves nothing to audit; give 10 or more, or add other --parts")
    refusal(command(capsys, "audit", trained, "--out", trained), "is not empty and holds no audit")
    refusal(command(capsys, "audit", trained, "--out", trained / "recipe.toml"), "is a file")
    unfinished = tmp_path / "unfinished"
    shutil.copytree(trained, unfinished)
    (unfinished / "summary.json").unlink()
    refusal(command(capsys, "audit", unfinished), "is not finished", "train --resume")
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "export.json").write_text("{}", "utf-8")
    refusal(command(capsys, "audit", tmp_path / "export"), "outside its run's folder")


def test_a_run_whose_data_are_gone(trained, tmp_path, capsys):
    run = shutil.copytree(trained, tmp_path / "run")
    text = (run / "recipe.toml").read_text("utf-8")
    (run / "recipe.toml").write_text(text.replace("corpus.json", "gone.json"), "utf-8")
    refusal(command(capsys, "audit", run, "--runtime", "in-process"), "gone.json")
    with pytest.raises((UserError, DataError), match=r"gone\.json"):
        audit_run(run, DataPaths(), "in-process")
    assert not (run / "audit").exists()
