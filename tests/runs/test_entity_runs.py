"""Runs that recognise entities, on a tiny tagger: every algorithm, every feature of a run, pages and commands."""

from __future__ import annotations

import csv
import functools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from computations import algorithms
from tests.models.encoders_for_tests import chinese_encoder
from tests.recognition_for_tests import TYPES, WARDS, recipe_of, record, table, write_texts
from tests.runs.resuming import assert_same_files, resumed_after
from tests.upper_floors import (
    SECRET,
    assert_same_weights,
    builder,
    command,
    keras_weights,
    refusal,
    share_computations,
    write_recipe,
)
from tff_re import api
from tff_re.runs.evaluation import Evaluator, metric_names
from tff_re.runs.features.attack import Attack
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.runs.run import train_run
from tff_re.tasks.span_metrics import SPAN_METRICS

pytestmark = pytest.mark.xdist_group("entity runs")


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("entities") / "train.jsonl", map(record, range(32)))


def trained(folder, runtime, path, *, seed=None, details=False, resume=False, on_round=None, **sections):
    ways = {} if on_round is None else {"on_round": on_round}
    recipe = recipe_of(path, seed=seed, **sections)
    experiment, result = train_run(
        recipe, folder, builder=builder(), runtime=runtime, details=details, resume=resume, **ways
    )
    rows = read_history(RunFolder(folder))
    return SimpleNamespace(folder=folder, experiment=experiment, result=result, rows=rows)


def clients_csv(folder):
    with open(folder / "clients.csv", newline="", encoding="utf-8") as file:
        return {row["client"]: row for row in csv.DictReader(file)}


def summary(folder):
    return json.loads((folder / "summary.json").read_text("utf-8"))


# Algorithms

REFUSED = {
    "fedlcc": ("contrasts the model's output 'context'", "choose another model.name or algorithm.name"),
    **dict.fromkeys(("lazy_mil", "lazy_mil_alias"), ("needs bags of sentences; use task.name = 'bag_relations'",)),
    **dict.fromkeys(
        ("mil_att", "mil_att_ra", "mil_ave", "mil_none", "mil_one"),
        ("needs bags: ", "choose another algorithm, or train it on bags of sentences"),
    ),
}
"""What the others train, these do not: the line names the algorithm and what to do."""

QUICK = {"fedpap", "moon", "feded"}
"""A proximal term and attention, a client state, predictions in place of weights."""

AT_SERVER = {"task": {"server_share": 0.25}}
SECTIONS = {"feded": AT_SERVER, "fedavg_server_pass": AT_SERVER}

OURS = [n for n in algorithms.names() if algorithms.find(n).build.__module__.startswith("computations.")]


def test_every_algorithm_is_trained_or_refused():
    assert len(OURS) == 28 and {*REFUSED, *QUICK} < {*OURS}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in OURS if n not in REFUSED]
)
def test_a_round_of_every_algorithm(name, texts, runtime, tmp_path):
    run = trained(tmp_path / "run", runtime, texts, algorithm={"name": name}, **SECTIONS.get(name, {}))
    (row,) = run.rows
    assert row["clients/counted"] == 4 and row["clients/non_finite"] == 0 and math.isfinite(row["local/loss"])
    names = {key for key in row if key.startswith(("test/", "train/"))}
    assert names == {key for key in metric_names(run.experiment) if key.startswith(("test/", "train/"))}
    assert {f"test/{metric}" for metric in SPAN_METRICS} < names
    assert all(0 <= row[key] <= 1 for key in names if not key.endswith("loss"))
    start = run.experiment.model.initial_weights(0)
    pairs = zip(run.experiment.model.weight_names, start.trainable, run.result.weights.trainable, strict=True)
    unchanged = [weight for weight, before, after in pairs if (np.asarray(before) == after).all()]
    if name == "fedetf":  # which puts another classifier into the place of the initial one, with a bias of zero
        assert unchanged == ["classifier/bias"]
        return
    assert not unchanged and row["test/loss"] < Evaluator(run.experiment, "test")(start).metrics["loss"]


@pytest.mark.parametrize("name", REFUSED)
def test_algorithms_that_do_not_fit_are_refused_by_name(name, texts, tmp_path, capsys):
    recipe = write_recipe(tmp_path / "r.toml", table(texts, algorithm={"name": name}))
    line = refusal(command(capsys, "train", recipe, "--out", tmp_path / "out"), name, *REFUSED[name])
    assert "r.toml" in line and not (tmp_path / "out").exists()


# Types that clients do not annotate

ALL_DRUGS = {ward: ["drug"] for ward in WARDS}


@pytest.mark.parametrize("crf", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_loss_leaves_out_what_nobody_annotated(crf, texts, runtime, tmp_path):
    """No weight that stands for a symptom's tag moves; where they count as no entity, all do."""

    def moved(unannotated):
        run = trained(
            tmp_path / unannotated,
            runtime,
            texts,
            task={"annotated": ALL_DRUGS, "unannotated": unannotated, "test": "documents"},
            model={"crf": crf},
            algorithm={"name": "fedavg"},
        )
        start = run.experiment.model.initial_weights(0)
        changes = dict(
            zip(
                run.experiment.model.weight_names,
                [
                    np.asarray(b) - np.asarray(a)
                    for a, b in zip(start.trainable, run.result.weights.trainable, strict=True)
                ],
                strict=True,
            )
        )
        by_tag = [change for name, change in changes.items() if name.startswith(("classifier", "chain"))]
        assert len(by_tag) == (5 if crf else 2) and all(change.shape[-1] == 5 for change in by_tag)
        return [np.abs(change).reshape(-1, 5).max(axis=0) for change in by_tag], run

    masked, run = moved("left_out")
    assert all((change[:3] > 0).all() and not change[3:].any() for change in masked)
    plain, other = moved("no_entity")
    expected, _ = moved("global_model")
    for with_no_entity, with_expected in zip(plain, expected, strict=True):
        assert (with_no_entity > 0).all() and (with_expected > 0).all()
        assert not np.allclose(with_no_entity, with_expected)
    symptoms = [
        row["examples"] for row in csv.DictReader((run.folder / "classes.csv").open()) if row["class"] == "symptom"
    ]
    assert symptoms == ["8"], "test texts of documents have all types"
    assert (other.folder / "classes.csv").read_text().splitlines()[2].endswith(",8")
    assert run.experiment.prepared.annotated == dict.fromkeys(WARDS, ("drug",))


def test_clients_are_measured_on_the_types_that_they_annotate(texts, runtime, tmp_path):
    run = trained(tmp_path / "run", runtime, texts, task={"annotated": ALL_DRUGS})
    rows = {row["class"]: row for row in csv.DictReader((run.folder / "classes.csv").open())}
    assert rows["symptom"]["examples"] == "0" and int(rows["drug"]["examples"]) > 0
    assert summary(run.folder)["references"]["trivial: dictionary of the training entities"]["test/f1"] == 1


# A recogniser

LEARNS = {
    "training": {"rounds": 8, "checkpoint_every": 2},
    "algorithm": {"name": "fedavgs", "learning_rate": 0.05, "local_epochs": 8, "batch_size": 8},
    "model": {"units": 8, "embedding_width": 8},
}
CHOICE = {"dev_share": 0.3, "metric": "f1"}


@pytest.fixture(scope="module")
def whole(runtime, texts, tmp_path_factory):
    """A run that learns to recognise entities, whose round is chosen on dev."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return trained(folder, runtime, texts, details=True, choice=CHOICE, **LEARNS)


def test_entities_are_learned_and_the_round_is_chosen_by_f1_on_dev(whole):
    on_dev = [row["dev/f1"] for row in whole.rows]
    assert max(on_dev) > 0.9 > on_dev[0]
    number, criterion = whole.result.chosen
    assert criterion == "dev/f1" and number == 1 + int(np.argmax(on_dev)), "the first of the best"
    chosen = summary(whole.folder)["chosen"]
    assert chosen["by"] == "dev/f1" and chosen["test/f1"] == whole.rows[number - 1]["test/f1"] > 0.8
    for row in whole.rows:
        f1 = [row[f"test/f1_{which}"] for which in ("worst", "median", "best")]
        assert f1 == sorted(f1) and row["test/lenient_f1"] >= row["test/f1"]
    references = summary(whole.folder)["references"]["trivial: dictionary of the training entities"]
    assert references["test/f1"] == 1


def test_the_counts_in_the_files_are_those_of_the_decoded_entities(whole):
    """classes.csv and clients.csv against the texts: gold entities by type, tokens by client."""
    classes = {row["class"]: row for row in csv.DictReader((whole.folder / "classes.csv").open())}
    samples = whole.experiment.prepared.samples("test")
    for name in TYPES:
        assert int(classes[name]["examples"]) == sum(span.type == name for sample in samples for span in sample.spans)
    table = clients_csv(whole.folder)
    for client, held in whole.experiment.prepared.partition.clients.items():
        texts = {s.sample_id: s.text for s in samples}
        assert int(table[client]["examples"]) == sum(len(texts[i]) for i in held.test)
        assert {"f1", "loss"} < table[client].keys()
    assert not (whole.folder / "confusion.csv").exists()
    assert keras_weights(whole.folder / "model.keras")


def test_a_client_whose_test_texts_have_no_tokens_is_not_the_worst(whole):
    none = [0.0, 0.0]
    names = ("true_positives", "predicted", "actual", "overlapping_predicted", "overlapping_actual")
    empty = {"examples": 0.0, "loss": 0.0, "correct_tags": [0.0], **dict.fromkeys(names, none)}
    right = {**empty, "examples": 5.0, "loss": 1.0, **{key: [2.0, 1.0] for key in names}}
    half = {**right, "true_positives": [1.0, 0.5]}
    evaluation = Evaluator(whole.experiment, "test").combine([right, empty, half], WARDS[:3])
    spread = [evaluation.metrics[f"f1_{which}"] for which in ("worst", "median", "best")]
    assert spread == [0.5, 0.75, 1] and math.isnan(evaluation.clients[WARDS[1]][1])


def test_no_file_holds_a_text(whole):
    spellings = (SECRET.encode(), json.dumps(SECRET)[1:-1].encode(), "没吃药".encode())
    for path in [path for path in whole.folder.rglob("*") if path.is_file()]:
        content = path.read_bytes()
        assert not any(spelling in content for spelling in spellings), path


def test_a_resumed_run_is_the_same(whole, texts, runtime, tmp_path):
    train = functools.partial(trained, tmp_path / "run", runtime, texts, choice=CHOICE, **LEARNS)
    again = resumed_after(train, 5)
    assert_same_weights(again.result.weights, whole.result.weights)
    assert_same_files(again.folder, whole.folder, "metrics.csv", "clients.csv", "classes.csv", "summary.json")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["moon", "fedcmc", "scaffold", "feddyn", "feded"])
def test_a_resumed_run_with_states_and_a_crf_is_the_same(name, texts, runtime, tmp_path):
    sections = {"algorithm": {"name": name}, "model": {"crf": True, "dropout": 0.3}, **SECTIONS.get(name, {})}
    sections["training"] = {"rounds": 4, "clients_per_round": 3, "checkpoint_every": 2}
    plain = trained(tmp_path / "plain", runtime, texts, **sections)
    again = resumed_after(functools.partial(trained, tmp_path / "run", runtime, texts, **sections), 3)
    assert_same_weights(again.result.weights, plain.result.weights)
    assert_same_files(again.folder, plain.folder, "metrics.csv", "clients.csv", "summary.json")


# Features of a run

SIX = {"partition": {"name": "iid", "num_clients": 6}, "training": {"clients_per_round": 6}}


def run_features(*, quick=()):
    cases = {
        "krum": {**SIX, "aggregation": {"rule": "krum", "krum_bad": 1}},
        "median": {"aggregation": {"rule": "median"}},
        "trimmed_mean": {**SIX, "aggregation": {"rule": "trimmed_mean", "trimmed_share": 0.2}},
        "rfa": {"aggregation": {"rule": "rfa"}},
        "fltrust": {**AT_SERVER, "aggregation": {"rule": "fltrust"}},
        "stochastic_8bit": {"aggregation": {"compression": "stochastic_8bit"}},
        "top_k": {"aggregation": {"compression": "top_k", "top_share": 0.3}},
        "secure": {"aggregation": {"secure": "simulated"}},
        "server_optimizer": {"server_optimizer": {"name": "adam"}},
        "sign_flip": {"attack": {"kind": "sign_flip", "clients": 1}, "aggregation": {"rule": "median"}},
        "client_model": {**AT_SERVER, "algorithm": {"name": "feded"}, "client_model": {"name": "tagger", "units": 3}},
    }
    return [
        pytest.param(case, id=name, marks=() if name in quick else pytest.mark.slow) for name, case in cases.items()
    ]


@pytest.mark.parametrize("sections", run_features(quick=("median",)))
def test_rules_compression_and_secure_sums(sections, texts, runtime, tmp_path):
    run = trained(tmp_path / "run", runtime, texts, **sections)
    (row,) = run.rows
    start = run.experiment.model.initial_weights(0)
    changed = [(np.asarray(a) != b).any() for a, b in zip(start.trainable, run.result.weights.trainable, strict=True)]
    assert any(changed) and all(np.isfinite(b).all() for b in run.result.weights.trainable)
    assert math.isfinite(row["test/loss"]) and 0 <= row["test/f1"] <= 1
    rule = sections.get("aggregation", {}).get("rule")
    assert (rule in ("krum", "median", "trimmed_mean")) == ("robust/collected" in row)
    assert (rule == "fltrust") == ("robust/trust" in row)


@pytest.mark.parametrize(
    "unit", ["example", pytest.param("group", marks=pytest.mark.slow), pytest.param("client", marks=pytest.mark.slow)]
)
def test_units_of_privacy(unit, texts, runtime, tmp_path):
    """An example is a text, however many tokens it has; a group is a patient."""
    sections = {
        "privacy": {"unit": unit, "clip": 0.5, "noise_multiplier": 1.0, "delta": 1e-3},
        "training": {"sampling": "poisson", "clients_per_round": 2},
        "algorithm": {"batch_size": 2},
        "evaluation": {"train_split": False},
    }
    run = trained(tmp_path / "run", runtime, texts, **sections)
    protected = summary(run.folder)["privacy"]
    assert protected["unit"] == unit and 0 < protected["epsilon"] < math.inf
    assert run.rows[-1]["privacy/epsilon"] == pytest.approx(protected["epsilon"])
    grouped = [note for note in summary(run.folder)["notes"] if note.startswith("privacy: ")]
    assert (unit == "group") == any("8 groups of training examples" in note for note in grouped)


def test_fine_tuning_at_the_clients(texts, runtime, tmp_path):
    run = trained(tmp_path / "run", runtime, texts, personalise={"epochs": 2, "layers": "head"})
    values = summary(run.folder)["personalised"]
    assert values["personal/loss"] < run.rows[-1]["test/loss"]
    assert {f"personal/{name}" for name in ("f1", "macro_f1", "f1_worst", "gain")} < values.keys()
    table = clients_csv(run.folder)
    for row in table.values():
        assert float(row["gain"]) == pytest.approx(float(row["f1_personal"]) - float(row["f1"]))


def test_clients_that_train_alone(texts, runtime, tmp_path):
    run = trained(tmp_path / "run", runtime, texts, baseline={"kind": "local"}, choice=CHOICE, **LEARNS)
    assert summary(run.folder)["on_all"]["all/f1"] > 0.5 and summary(run.folder)["bytes_up_per_client_and_round"] == 0
    for row in clients_csv(run.folder).values():
        assert 0 <= float(row["f1_all"]) <= 1 and 1 <= int(row["round"]) <= 8


def test_all_texts_at_one_client(texts, runtime, tmp_path):
    federated = builder().prepare(recipe_of(texts)).examples
    run = trained(tmp_path / "run", runtime, texts, baseline={"kind": "pooled"})
    first, *others = run.experiment.prepared.examples.clients
    np.testing.assert_array_equal(first.train["tags"], federated.pooled("train")["tags"])
    assert [c.client_id for c in others] == [*WARDS] and list(clients_csv(run.folder)) == [*WARDS]
    assert run.rows[-1]["local/steps"] == math.ceil(24 / 8)


def test_attackers_flip_the_tags_of_their_texts(texts, runtime, tmp_path):
    run = trained(tmp_path / "run", runtime, texts, attack={"kind": "label_flip", "clients": 1})
    attack = run.experiment.feature(Attack)
    (attacker,) = attack.clients
    clients = {client.client_id: client.train for client in run.experiment.prepared.examples.clients}
    changed = {client: attack.trained_on(index, client, clients[client]) for index, client in enumerate(clients)}
    for client, arrays in clients.items():
        tags = arrays["tags"]
        flipped = np.where(tags < 0, tags, 4 - tags) if client == attacker else tags
        np.testing.assert_array_equal(changed[client]["tags"], flipped)
        for name in arrays.keys() - {"tags"}:
            np.testing.assert_array_equal(changed[client][name], arrays[name])
    assert clients_csv(run.folder)[attacker]["attacks"] == "yes" and run.rows[0]["attack/clients"] == 1


@pytest.mark.parametrize(
    ("sections", "wanted"),
    [
        (
            {"attack": {"kind": "backdoor", "clients": 1}},
            "[attack] kind = 'backdoor': a trigger changes the class of a whole text, but here each token has a",
        ),
        ({"model": {"name": "lstm"}}, "choose model.name = 'tagger', or 'token_encoder' with task.encoding = 'pieces'"),
        ({"choice": {"metric": "accuracy"}}, "'choice.metric': there is no metric 'accuracy'"),
        ({"algorithm": {"name": "feded"}}, "feded needs labelled examples at the server; set task.server_share, e.g."),
        ({"model": {"name": "token_encoder"}}, "words or characters with tags; choose model.name = 'tagger', or"),
    ],
    ids=range(5),
)
def test_what_does_not_fit(sections, wanted, texts, tmp_path, capsys):
    recipe = write_recipe(tmp_path / "r.toml", table(texts, **sections))
    refusal(command(capsys, "train", recipe, "--out", tmp_path / "out"), "r.toml", wanted)
    assert not (tmp_path / "out").exists()


# Word pieces


@pytest.mark.slow
@pytest.mark.parametrize("model", [{"frozen_layers": 1}, {"crf": True}], ids=str)
def test_a_pretrained_encoder(model, texts, runtime, tmp_path):
    """Whole texts in windows where they are longer than the encoder reads."""
    long = [{**record(n), "text": record(n)["text"] + "。" * 50} for n in range(16)]
    path = write_texts(tmp_path / "long.jsonl", long)
    task = {"encoding": "pieces", "tokenizer": str(chinese_encoder()), "max_length": 0, "min_clients": None}
    sections = {"task": task, "model": {"name": "token_encoder", **model}, "algorithm": {"learning_rate": 1e-3}}
    run = trained(tmp_path / "run", runtime, path, **sections)
    assert run.experiment.prepared.inputs.specs["tags"].shape[1] > 64
    start = run.experiment.model.initial_weights(0)
    assert run.rows[0]["test/loss"] < Evaluator(run.experiment, "test")(start).metrics["loss"]


# Commands and pages


def in_line(text: str) -> str:
    return " ".join(text.split())


def test_evaluate_prints_what_the_run_measured(whole, capsys):
    number = whole.result.chosen[0]
    for split in ("test", "dev"):
        typed = command(capsys, "evaluate", whole.folder, "--split", split)
        assert typed.code == 0 and typed.err == "" and SECRET not in typed.out, typed
        assert f"{split} examples of 4 clients after round {number}" in in_line(typed.out)
        for name in ("f1", "macro_f1", "lenient_recall"):
            assert f"│ {name} │ {whole.rows[number - 1][f'{split}/{name}']:.4f} │" in in_line(typed.out)
        assert all(f"│ {name} " in typed.out for name in TYPES) and "written" not in typed.out


def test_partition_shows_who_holds_which_texts(texts, tmp_path, capsys):
    recipe = write_recipe(tmp_path / "r.toml", table(texts))
    typed = command(capsys, "partition", recipe, "--out", tmp_path / "out")
    assert typed.code == 0 and all(f"│ {ward} " in typed.out for ward in WARDS) and SECRET not in typed.out
    assert "BIO tags of drug, symptom" in in_line(typed.out)
    assert (tmp_path / "out" / "partition.json").exists() and (tmp_path / "out" / "partition.png").exists()
    again = command(
        capsys, "train", recipe, "--partition", tmp_path / "out" / "partition.json", "--out", tmp_path / "run"
    )
    assert again.code == 0 and "F1" in again.out


def test_the_page_of_a_run_has_f1_by_type_and_client(whole, capsys, tmp_path):
    typed = command(capsys, "report", whole.folder, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert typed.code == 0 and SECRET not in page
    for title in ("F1 of the final model on each client", "Final precision, recall and F1 on test examples"):
        assert title in page
    for name in ("test/f1", "test/macro_f1", "test/lenient_f1", "dev/f1", "dictionary of the training entities"):
        assert name in page
    result = (
        f"test F1 of {100 * summary(whole.folder)['chosen']['test/f1']:.2f} % in round {whole.result.chosen[0]} of 8"
    )
    assert result in page and "a dictionary of the training entities gives 100.00 %" in page


def test_a_comparison_has_f1_columns(texts, tmp_path, capsys):
    recipes = [
        write_recipe(tmp_path / f"{name}.toml", table(texts, algorithm={"name": name}, choice=CHOICE) | {"name": name})
        for name in ("fedavgs", "fedavg")
    ]
    out = tmp_path / "comparison"
    typed = command(capsys, "compare", *recipes, "--seeds", "0,1", "--out", out)
    assert typed.code == 0 and typed.err == "", typed
    markdown = "".join(path.read_text("utf-8") for path in out.glob("*.md"))
    assert "test/f1" in typed.out and "test/f1" in markdown and "accuracy" not in markdown
    assert "trivial: dictionary of the training entities" in markdown
    assert command(capsys, "report", out).code == 0
    page = (out / "report.html").read_text("utf-8")
    assert "Clients: F1 on their own test examples" in page and "Classes: F1 at the end" in page and SECRET not in page


def test_an_audit_says_in_a_line_what_does_not_fit(whole, tmp_path, capsys):
    out = tmp_path / "audit"
    typed = command(capsys, "audit", whole.folder, "--canaries", "10", "--shadows", "0", "--out", out)
    assert typed.code == 0 and typed.err == "", typed
    page = (out / "audit.md").read_text("utf-8")
    assert SECRET not in page + typed.out
    assert "Label counts: not applicable: each token has a tag" in page
    assert "Span check of the encoder's first query projection: not applicable: the model has no pretrained" in page
    assert "Not applicable: its examples are texts with a tag for each token" in page
    numbers = json.loads((out / "audit.json").read_text("utf-8"))["parts"]
    words = numbers["words"]["words"]["finished model"]
    assert words["precision"] == 1 and words["recall"] > 0.9, "the rows of the characters that a client holds"
    assert numbers["canaries"]["taking_part"] == 10 and numbers["artefacts"]["occurrences"]["raw text"] == 0


def test_from_python(texts, tmp_path):
    """As a notebook does it."""
    recipe = write_recipe(tmp_path / "r.toml", table(texts))
    run = api.train(str(recipe), out=tmp_path / "run")
    assert run is not None and read_history(RunFolder(tmp_path / "run"))[-1]["test/f1"] >= 0
