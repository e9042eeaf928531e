"""Bags of sentences by recipe: what a run measures and leaves, the round that dev chooses, resume, refusals."""

from __future__ import annotations

import csv
import functools

import numpy as np
import pytest
from sklearn.metrics import auc

from datasets.bags.records import NEGATIVE
from datasets.partition import ClientSamples, Partition, write_partition
from tests.bags_for_tests import (
    HIDDEN,
    MEASURES,
    METHODS,
    REL2ID,
    assert_best_round_is_chosen,
    assert_evaluates,
    assert_has_weights,
    assert_tunes_without_test,
    bag_table,
    data_folder,
    nyt10_line,
    nyt10_lines,
    planted_table,
    prepare,
    summary_of,
    train_table,
    trained,
    trained_without_dev,
    write_lines,
    write_pubtator,
)
from tests.models.encoders_for_tests import encoder
from tests.runs.resuming import assert_same_files, resumed
from tests.upper_floors import SYNTHETIC, assert_same_weights, command, refusal, share_computations, write_recipe
from tff_re.recipes.reading import resolve
from tff_re.runs.features.choice import Choice
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.tasks.ranking_metrics import ranking_metrics

pytestmark = pytest.mark.xdist_group("bags")


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


# What a run measures and leaves.


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=pytest.mark.slow if name[:5] == "mil_a" else ()) for name in METHODS]
)
def test_a_run_is_that_of_the_round_which_dev_chose(method, runtime):
    run = trained(runtime, method)
    chosen = assert_best_round_is_chosen(run, "dev/auc", MEASURES)
    assert "test/accuracy" not in chosen and "selection/precision_across" not in chosen
    with open(run.folder / "precision_recall.csv", newline="", encoding="utf-8") as file:
        points = np.array([[float(v) for v in row.values()] for row in csv.DictReader(file)])
    assert auc([0, *points[:, 0]], [1, *points[:, 1]]) == pytest.approx(chosen["test/auc"])
    if method == "lazy_mil":
        assert_has_weights(run.folder, run.result.weights)
        assert (run.folder / "plots" / "precision-recall.png").exists()
        assert not (run.folder / "plots" / "confusion-test.png").exists()


def test_the_test_metrics_are_those_of_the_models_probabilities(runtime):
    """NONE scores a bag by the highest probability of its sentences: the area from Keras and scikit-learn alone."""
    from sklearn.metrics import precision_recall_curve

    run = trained(runtime, "mil_none")
    model = run.experiment.model.keras_model(run.result.weights)
    bags = run.experiment.prepared.held_out._bags["test"]
    features = {name: array for name, array in bags.arrays.items() if name != "bag"}
    logits = np.asarray(model(features, training=False)["logits"], np.float64)
    by_sentence = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    scores = np.array([by_sentence[bags.arrays["bag"] == bag].max(axis=0) for bag in range(len(bags.pairs))])
    np.testing.assert_allclose(run.result.server_evaluation.scores["test"], scores, atol=1e-6)
    precision, recall, _ = precision_recall_curve(bags.labels[:, 1:].ravel(), scores[:, 1:].ravel())
    assert run.result.server_evaluation.metrics["test/auc"] == pytest.approx(auc(recall, precision))


def test_a_run_that_tunes_leaves_test_out(runtime, tmp_path):
    assert_tunes_without_test(trained(runtime, "lazy_mil"), tmp_path / "run", runtime)


def test_the_commands_of_a_run(runtime, capsys):
    assert "leave out NA" in " ".join(
        assert_evaluates(capsys, trained(runtime, "lazy_mil"), "dev/auc", MEASURES).split()
    )


# The round that dev chooses.


def test_the_weights_are_those_of_the_chosen_round_with_a_resume_and_without(runtime, tmp_path, monkeypatch):
    """The first round's, which dev is made to choose; broken off after the checkpoint of the second."""
    folder, take, seen = tmp_path / "run", Choice.take, {}

    def taking(self, best, round_num, metrics, of_each, weights):
        assert metrics[self.criterion] is not None
        seen[round_num] = weights
        return take(self, best, round_num, {self.criterion: {1: 0.7, 2: 0.7, 3: 0.1}[round_num]}, of_each, weights)

    monkeypatch.setattr(Choice, "take", taking)
    _, result = train_table(bag_table(), folder, runtime)
    summary = summary_of(folder)
    assert result.chosen == (1, "dev/auc") and summary["chosen"]["round"] == 1
    assert summary["chosen"]["test/auc"] == read_history(RunFolder(folder))[0]["test/auc"]
    assert_same_weights(result.weights, seen[1])
    assert_has_weights(folder, seen[1])
    assert all((np.asarray(seen[other].trainable[0]) != seen[1].trainable[0]).any() for other in (2, 3))
    train = functools.partial(train_table, bag_table(), tmp_path / "again", runtime, details=False)
    _, again = resumed(train, "release", 3, False)
    assert_same_files(tmp_path / "again", folder, "metrics.csv", "summary.json", "precision_recall.csv")
    assert_same_weights(again.weights, result.weights)


def test_what_dev_keeps():
    choice = Choice("dev/auc", every=1, patience=None, where="dev")
    best, seen = choice.start("start"), []
    for number, value in enumerate((np.nan, 0.0, 0.4, 0.4, 0.3, np.nan), 1):
        best = choice.take(best, number, {"dev/auc": value}, (), f"w{number}")
        seen.append((best["weights"], int(best["round"])))
    assert seen == [("start", 0), ("w2", 2), ("w3", 3), ("w3", 3), ("w3", 3), ("w3", 3)]


def test_a_round_whose_scores_are_not_finite(runtime):
    held_out = trained(runtime, "mil_none").experiment.prepared.held_out
    scores = {split: np.full(held_out._bags[split].labels.shape, 0.5) for split in held_out.splits}
    scores["dev"][1, 1] = np.nan
    metrics = held_out.metrics(scores)
    assert all(np.isnan(value) == name.startswith("dev/") for name, value in metrics.items())


# Who holds what.


def test_clients_hold_sentences_and_the_server_bags():
    prepared = prepare(bag_table())
    assert prepared.held_out.splits == ("dev", "test") and prepared.held_out.criterion == "auc"
    assert prepared.label_names == tuple(REL2ID) and prepared.measures.positive_labels == (1, 2)
    assert prepared.num_triples == len(prepared.corpora[0].triples) == 14, "12 pairs, two of them with two relations"
    clients = prepared.examples.clients
    rows = sum(len(client.train["y"]) for client in clients)
    assert rows == 10 * 3 + 2 * 10, "two pairs have five sentences with two relations each"
    assert not any(len(client.test["y"]) for client in clients)
    for number, client in enumerate(clients):
        assert (client.train["platform"] == number).all()
        labels = [prepared.corpora[0].triples[triple][1] for triple in client.train["triple"]]
        assert client.train["y"].tolist() == labels
    spread = [set(client.train["triple"].tolist()) for client in clients]
    assert any(a & b for a in spread for b in spread if a is not b), "the sentences of a bag lie on several platforms"
    assert not any("no test samples" in note for note in prepared.notes)
    assert not any(HIDDEN in note for note in prepared.notes)


def pairs_of(prepared, split) -> set:
    return set(prepared.held_out._bags[split].pairs)


def test_bags_whose_pair_is_trained_on():
    new, all_of_them = (prepare(bag_table(task={"new_pairs": flag})) for flag in (True, False))
    trained_on = set(new.corpora[0].pairs)
    everything = {(f"h{n}", f"t{n}") for n in range(9, 21)}
    assert pairs_of(new, "dev") | pairs_of(new, "test") == everything - trained_on
    assert pairs_of(all_of_them, "dev") | pairs_of(all_of_them, "test") == everything
    assert any(note == "test: 3 of 12 bags left out because nyt10 has their pairs" for note in new.notes)
    for prepared in (new, all_of_them):
        assert not pairs_of(prepared, "dev") & pairs_of(prepared, "test")


def test_the_bags_of_dev_are_drawn_by_a_seed_of_their_own():
    dev = pairs_of(prepare(bag_table()), "dev")
    other_run = prepare(bag_table(), seed=1)
    assert pairs_of(other_run, "dev") == dev
    assert other_run.partition.clients != prepare(bag_table()).partition.clients
    assert {frozenset(pairs_of(prepare(bag_table(task={"dev_seed": s})), "dev")) for s in range(5)} > {frozenset(dev)}
    assert len(pairs_of(prepare(bag_table(task={"dev_share": 0.7})), "dev")) > len(dev)


def test_dev_may_be_a_split():
    task = {"path": None, "test_path": None, "test_split": "test", "dev_split": "dev"}
    prepared = prepare(bag_table(task=task), data=data_folder())
    assert pairs_of(prepared, "dev") == {(f"h{n}", f"t{n}") for n in range(12, 18)}
    assert pairs_of(prepared, "test") == {(f"h{n}", f"t{n}") for n in range(12, 21)}
    old = prepare(bag_table(task={**task, "new_pairs": False}), data=data_folder())
    assert len(pairs_of(old, "dev")) == 8 and len(pairs_of(old, "test")) == 12


def test_documents_are_aligned(tmp_path):
    paths = [write_pubtator(tmp_path / f"{n}.pubtator", range(*r)) for n, r in (("a", (0, 8)), ("b", (6, 14)))]
    task = {"dataset": "cdr_aligned", "path": str(paths[0]), "test_path": str(paths[1])}
    prepared = prepare(bag_table(task=task))
    assert prepared.label_names == (NEGATIVE, "CID") and len(prepared.corpora[0].pairs) == 24
    heads = {pair[0] for split in ("dev", "test") for pair in pairs_of(prepared, split)}
    assert heads == {f"C{n}" for n in range(8, 14)}
    half, other = (prepare(bag_table(task={**task, "na_rate": 0.5}), seed=seed) for seed in (0, 1))
    assert len(half.corpora[0].pairs) == 16 and half.corpora[0].pairs != other.corpora[0].pairs
    facts = tmp_path / "facts.tsv"
    facts.write_text("".join(f"C{n}\tgives\tD100\n" for n in range(14)), "utf-8")
    with_facts = prepare(bag_table(task={**task, "knowledge_base": str(facts), "test_knowledge_base": str(facts)}))
    assert with_facts.label_names == (NEGATIVE, "gives")


def test_rows_that_state_their_relation_are_known_of_made_up_bags():
    from datasets.bags.planted import planted

    prepared = prepare(planted_table())
    made = planted(24, 0.4, num_relations=2, zipf=0.5, seed=0)
    sentences = {sentence.sentence_id: sentence for sentence in made.corpus.sentences}
    seen = set()
    for client, known in zip(prepared.partition.clients.values(), prepared.truth, strict=True):
        rows = [(sentences[i], relation) for i in client.train for relation in sentences[i].relations]
        assert len(rows) == len(known)
        for (sentence, relation), value in zip(rows, known, strict=True):
            wanted = -1 if relation == NEGATIVE else int(made.expressed[sentence.sentence_id] == relation)
            assert value == wanted
            seen.add(wanted)
    assert seen == {-1, 0, 1}
    assert prepare(planted_table(), seed=1).corpora[0].pairs == prepared.corpora[0].pairs, (
        "runs of other seeds have the same ones"
    )
    assert prepare(planted_table(task={"planted_seed": 1})).corpora[0].pairs != prepared.corpora[0].pairs


PLANTED = {"planted_bags": 80, "planted_relations": 3, "noise_rate": 0.8}


def false_facts(prepared, made):
    """(in training, in dev and test) how many sentences state a relation that their pair does not have."""
    corpora = prepared.held_out.corpora
    return tuple(
        sum(made.expressed[s.sentence_id] not in ("NA", *s.relations) for corpus in some for s in corpus.sentences)
        for some in ((prepared.corpora[0],), corpora.values())
    )


def test_noise_that_states_another_relation_is_left_out_of_the_test_bags():
    from datasets.bags.planted import planted

    wanted = {"num_relations": 3, "zipf": 0.5, "seed": 0}
    noisy, silent = (planted(80, 0.8, other_share=share, **wanted) for share in (0.9, 0.0))
    as_before, clean = (
        prepare(planted_table(task={**PLANTED, "other_share": 0.9, "clean_test": clean})) for clean in (False, True)
    )
    in_training, at_server = false_facts(as_before, noisy)
    assert in_training > 20 and at_server > 5
    texts = {s.sentence_id: s.text for s in noisy.corpus.sentences}
    assert all(texts[s.sentence_id] == s.text for s in clean.corpora[0].sentences)
    texts = {s.sentence_id: s.text for s in silent.corpus.sentences}
    for split, corpus in clean.held_out.corpora.items():
        assert all(texts[s.sentence_id] == s.text for s in corpus.sentences)
        assert corpus.pairs == as_before.held_out.corpora[split].pairs, "the same bags"
    assert false_facts(clean, noisy)[0] == in_training
    assert false_facts(prepare(planted_table(task={**PLANTED, "other_share": 0.0})), silent) == (0, 0)


def by_hand(prepared, expressed, pool):
    """The oracle's measures from the sentences' truth, bag by bag."""
    measures = {}
    for split, corpus in prepared.held_out.corpora.items():
        names = corpus.label_names[1:]
        scores, true = [], []
        for pair, rows in corpus.bags.items():
            stated = [expressed[corpus.sentences[row].sentence_id] for row in rows]
            scores += [pool([relation == name for relation in stated]) for name in names]
            true += [name in corpus.sentences[rows[0]].relations for name in names]
            assert corpus.sentences[rows[0]].pair == pair
        measured = ranking_metrics(np.array(scores, float), np.array(true))
        measures |= {f"{split}/{name}": measured[name] for name in ("auc", "max_f1")}
    return measures


def test_what_a_perfect_classifier_and_chance_would_have():
    from datasets.bags.planted import planted

    made = planted(200, 0.8, num_relations=3, zipf=0.5, other_share=0.9, seed=0)
    wanted = {**PLANTED, "planted_bags": 200, "other_share": 0.9}
    prepared = prepare(planted_table(task={**wanted, "clean_test": False}))
    titles = list(prepared.held_out.references())
    assert [title.partition(" ")[0] for title in titles] == ["ranking", "oracle", "oracle"]
    for title, pool in zip(titles[1:], (max, np.mean), strict=True):
        known = by_hand(prepared, made.expressed, pool)
        assert {name: prepared.held_out.references()[title][name] for name in known} == pytest.approx(known)
        assert 0.2 < known["test/auc"] < 0.95, "false facts stand among the true ones"
    clean = prepare(planted_table(task=wanted)).held_out.references()
    assert clean[titles[1]]["test/auc"] > 0.95 and clean[titles[1]]["test/max_f1"] > 0.95
    test = prepared.held_out.corpora["test"]
    share = sum(label > 0 for _, label in test.triples) / (3 * len(test.pairs))
    assert clean[titles[0]]["test/auc"] == pytest.approx(share)
    assert clean[titles[0]]["test/max_f1"] == pytest.approx(2 * share / (1 + share))
    assert list(prepare(bag_table()).held_out.references()) == titles[:1], "of read bags it is not known"


def test_training_on_what_states_its_relation_alone():
    everything, stated = (prepare(planted_table(task={**PLANTED, "train_on": rows})) for rows in ("all", "stated"))
    assert stated.partition == everything.partition
    for whole, part, known, rest in zip(
        everything.examples.clients, stated.examples.clients, everything.truth, stated.truth, strict=True
    ):
        assert (known == 0).any() and not (rest == 0).any()
        for name, array in whole.train.items():
            np.testing.assert_array_equal(part.train[name], array[known != 0], name)
        np.testing.assert_array_equal(rest, known[known != 0])
    assert any(note.startswith("train_on: the ") for note in stated.notes)


def test_runs_of_other_seeds_have_sentences_of_their_own_if_wanted():
    table = planted_table(task={"planted_anew": True})
    first, same, other = (prepare(table, seed=seed) for seed in (3, 3, 4))
    assert first.corpora[0] == same.corpora[0] and first.corpora[0].pairs != other.corpora[0].pairs
    another = prepare(planted_table(task={"planted_anew": True, "planted_seed": 1}), seed=3)
    assert another.corpora[0].pairs != first.corpora[0].pairs


def test_bags_of_a_long_tail_and_pairs_with_noise_alone():
    table = {**PLANTED, "noise_rate": 1.0, "planted_sentences": 148, "planted_single_share": 0.8}
    prepared = prepare(planted_table(task=table))
    bags = [
        rows for corpus in (prepared.corpora[0], *prepared.held_out.corpora.values()) for rows in corpus.bags.values()
    ]
    assert sum(map(len, bags)) == 148 and sum(len(rows) == 1 for rows in bags) == 64
    assert any((truth == 1).any() for truth in prepared.truth)
    without = prepare(planted_table(task={**table, "planted_at_least_one": False}))
    assert not any((truth == 1).any() for truth in without.truth)


def test_without_dev_the_last_round_is_the_one(runtime, capsys):
    folder, _, result = trained_without_dev(runtime)
    rows, summary = read_history(RunFolder(folder)), summary_of(folder)
    assert result.chosen is None and "chosen" not in summary
    assert not any(name.startswith("dev/") for row in rows for name in row)
    assert summary["best"]["test/auc"] == max(row["test/auc"] for row in rows)
    assert result.server_evaluation.metrics == {k: v for k, v in rows[-1].items() if k.startswith("test/")}
    refusal(command(capsys, "evaluate", folder, "--split", "dev"), "its task has no dev examples")


def test_precision_of_the_selection_against_numpy(runtime):
    folder, experiment, result = trained_without_dev(runtime)
    row = read_history(RunFolder(folder))[-1]
    model = experiment.model.keras_model(result.weights)
    clients = [client.train for client in experiment.prepared.examples.clients]
    scores = []
    for rows in clients:
        features = {name: rows[name] for name in experiment.prepared.inputs.specs}
        logits = np.asarray(model(features, training=False)["logits"])
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        scores.append(shares[np.arange(len(shares)), rows["y"]])
    truth, score, triple, platform = (
        np.concatenate(parts)
        for parts in (
            experiment.prepared.truth,
            scores,
            *([c[name] for c in clients] for name in ("triple", "platform")),
        )
    )

    def precision(groups):
        best = [max(np.flatnonzero(groups == group), key=lambda i: score[i]) for group in np.unique(groups)]
        known = truth[best][truth[best] >= 0]
        return (known == 1).mean()

    assert row["selection/precision_across"] == pytest.approx(precision(triple))
    assert row["selection/precision_alone"] == pytest.approx(precision(triple * 10 + platform))
    assert row["selection/true_share"] == pytest.approx((truth == 1).sum() / (truth >= 0).sum())
    assert row["selection/precision_across"] != row["selection/true_share"]


# Other models and other algorithms.


def encoder_table(frozen: int) -> dict:
    return bag_table(
        task={"encoding": "pieces", "tokenizer": str(encoder(layers=1)), "max_length": 40, "min_clients": None},
        model={"name": "sentence_encoder", "representation": "entity_max", "frozen_layers": frozen},
        training={"rounds": 1, "client_fraction": 0.67},
    )


def test_bags_behind_frozen_layers():
    plain = prepare(encoder_table(1))
    prepared = plain.precomputed(resolve(encoder_table(1), "r.toml").model, 0)
    for client, before in zip(prepared.examples.clients, plain.examples.clients, strict=True):
        assert "hidden" in client.train and "input_ids" not in client.train
        for name in ("triple", "platform", "y"):
            np.testing.assert_array_equal(client.train[name], before.train[name])
    for split, bags in plain.held_out._bags.items():
        hidden_bags = prepared.held_out._bags[split]
        assert len(hidden_bags.arrays["hidden"]) == len(hidden_bags.arrays["bag"]) and hidden_bags.pairs == bags.pairs
        np.testing.assert_array_equal(hidden_bags.arrays["bag"], bags.arrays["bag"])


@pytest.mark.slow
@pytest.mark.parametrize("keys", [{"frozen_layers": 1}, {"adapter": {"kind": "lora", "rank": 4}}, {}])
def test_a_pretrained_encoder_on_bags(keys, runtime, capsys, tmp_path):
    table = encoder_table(0)
    table["model"] |= keys
    _, result = train_table(table, tmp_path / "run", runtime)
    assert 0 <= result.server_evaluation.metrics["test/auc"] <= 1 and result.chosen == (1, "dev/auc")
    typed = command(capsys, "evaluate", tmp_path / "run", "--split", "dev")
    assert typed.code == 0 and f"{result.server_evaluation.metrics['dev/auc']:.4f}" in typed.out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedavg", "fedprox", "moon", "scaffold"])
def test_other_algorithms_train_on_the_sentences_of_bags(name, runtime, tmp_path):
    algorithm, training = {"name": name, "learning_rate": 0.1}, {"rounds": 2, "client_fraction": 0.67}
    table = bag_table(algorithm=algorithm, training=training)
    _, result = train_table(table, tmp_path / "run", runtime, details=False)
    rows = read_history(RunFolder(tmp_path / "run"))
    assert [row["clients/counted"] for row in rows] == [2, 2] and result.chosen[1] == "dev/auc"


# What is refused.

MADE_UP = planted_table()["task"] | dict.fromkeys(("path", "test_path"))


@pytest.mark.parametrize(
    ("sections", "wanted"),
    [
        ({"task": {"test_path": None, "test_split": "dev"}}, "nyt10_val.txt"),
        ({"task": {**MADE_UP, "planted_cues_of_word": 40}}, "16 cues cannot be made of 1 words; lower cues_of_word"),
        ({"algorithm": {"name": "feded"}}, "at the server, which the task 'bag_relations' does not have"),
        ({"algorithm": {"name": "lazy_mil", "na_label": 3}}, "na_label is 3, but the model has 3 classes"),
        ({**SYNTHETIC, "algorithm": {"name": "lazy_mil"}}, "lazy_mil needs bags of sentences; use task.name = 'bag_"),
        ({**SYNTHETIC, "algorithm": {"name": "mil_att"}}, "mil_att needs bags: examples with 'triple' and 'platform'"),
    ],
    ids=str,
)
def test_what_does_not_fit(sections, wanted, capsys, tmp_path, monkeypatch):
    """What a recipe's options refuse by themselves is in tests/tasks/test_options.py."""
    monkeypatch.delenv("TFF_RE_DATA", raising=False)
    (tmp_path / "empty").mkdir()
    recipe = write_recipe(tmp_path / "r.toml", sections if "name" in sections else bag_table(**sections))
    typed = command(capsys, "train", recipe, "--data", tmp_path / "empty", "--out", tmp_path / "out")
    refusal(typed, wanted)
    assert not (tmp_path / "out").exists()


def test_partition_files(runtime, capsys, tmp_path):
    file = trained(runtime, "mil_none").folder / "partition.json"
    assert prepare(bag_table(), seed=5, partition=file).partition.clients == prepare(bag_table()).partition.clients
    ids = [sentence.sentence_id for sentence in prepare(bag_table()).corpora[0].sentences]
    at_server = Partition("iid", {}, 0, {"a": ClientSamples(tuple(ids[3:]), ())}, (), tuple(ids[:3]))
    missing = Partition("iid", {}, 0, {"a": ClientSamples(tuple(ids[3:]), ())})
    for partition, parts in (
        (at_server, ["holds out single sentences, but bags are evaluated as a whole"]),
        (missing, ["p.json"]),
    ):
        write_partition(partition, tmp_path / "p.json")
        recipe = write_recipe(tmp_path / "r.toml", bag_table())
        typed = command(capsys, "train", recipe, "--partition", tmp_path / "p.json", "--out", tmp_path / "out")
        assert HIDDEN not in refusal(typed, *parts)
    recipe = write_recipe(tmp_path / "r.toml", planted_table())
    refusal(command(capsys, "train", recipe, "--partition", file, "--out", tmp_path / "out"), file)
    assert not (tmp_path / "out").exists()


def test_a_split_without_a_fact_is_refused(capsys, tmp_path):
    path = write_lines(tmp_path / "test.txt", nyt10_lines(range(12, 13)) + nyt10_lines(range(15, 16)))
    relations = str(data_folder() / "nyt10" / "nyt10_rel2id.json")
    for share, split in ((0.5, "dev"), (0.0, "test")):
        task = {"test_path": str(path), "rel2id": relations, "dev_share": share}
        recipe = write_recipe(tmp_path / "r.toml", bag_table(task=task))
        typed = command(capsys, "train", recipe, "--out", tmp_path / "out")
        refusal(typed, f"bags of {split}: none of its", "has a relation", "choose other splits or another dev_share")
    assert not (tmp_path / "out").exists()


def misplaced(**entity):
    line = nyt10_line(1, 0, "/a/visits")
    return {**line, "h": {**line["h"], **entity}}


def test_a_bad_line_is_named_and_not_shown(capsys, tmp_path):
    """The other faults of a line are in tests/datasets/bags."""
    path = write_lines(tmp_path / "own.txt", [*nyt10_lines(range(1)), misplaced(name="Eve")])
    recipe = write_recipe(tmp_path / "r.toml", bag_table(task={"path": str(path)}))
    typed = command(capsys, "train", recipe, "--out", tmp_path / "out")
    said = refusal(typed, path, "line 4", "entity h", "its name is not at its position")
    assert HIDDEN not in said + typed.out and "Ann1" not in said
    assert not (tmp_path / "out").exists()


def test_misplaced_entities_may_be_left_out(tmp_path):
    path = write_lines(tmp_path / "own.txt", [*nyt10_lines(range(6)), misplaced(name="Eve")])
    prepared = prepare(bag_table(task={"path": str(path), "misplaced": "leave_out"}))
    assert "1 lines left out, an entity is not in its sentence" in prepared.notes
