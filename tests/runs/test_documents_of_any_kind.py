"""Documents with several relations and types of entities by recipe: BioRED's form, DocRED's form, own files."""

from __future__ import annotations

import json

import numpy as np
import pytest

from datasets.documents.loading import load_documents
from datasets.errors import DataError
from tests.bags_for_tests import HIDDEN, prepare, train_table
from tests.documents_for_tests import (
    biored_block,
    docred_value,
    document_table,
    marking_encoder,
    write_biored,
    write_docred,
)
from tests.upper_floors import command, refusal, share_computations, write_recipe
from tff_re.exporting.export_run import export_run
from tff_re.exporting.kinds.documents import DocumentKind, DocumentPredictor
from tff_re.exporting.prediction import load_export
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.runtime import DEFAULT_RUNTIME
from tff_re.tasks.data_paths import DataPaths

BIORED_METRICS = ("f1", "precision", "recall", "f1_intra", "f1_inter", "macro_f1")
DOCRED_METRICS = (*BIORED_METRICS, "ign_f1")


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    write_biored(folder / "train.pubtator", range(12))
    write_biored(folder / "dev.pubtator", range(100, 112))
    write_docred(folder / "all.json", range(24))
    return folder


def biored_table(files, task=None, **sections):
    paths = {"path": str(files / "train.pubtator"), "test_path": str(files / "dev.pubtator")}
    task = {"dataset": "biored", **paths, **(task or {})}
    return document_table(task=task, partition={"name": "iid", "num_clients": 3}, **sections)


def docred_table(files, task=None, **sections):
    """Half of a file's documents are held out."""
    path = str(files / "all.json")
    task = {
        "dataset": "docred",
        "path": path,
        "test_path": path,
        "test_split": "train",
        "test_subset": 12,
        **(task or {}),
    }
    return document_table(task=task, partition={"name": "iid", "num_clients": 3}, **sections)


def predicted(pairs, scores, threshold):
    """(document, head, relation, tail) of what reaches the threshold, one by one."""
    return {
        (pair.document_id, pair.head_id, relation, pair.tail_id)
        for row, mine in zip(scores, pairs, strict=True)
        for values, pair in zip(row, mine, strict=False)
        for relation, value in enumerate(values)
        if value >= threshold
    }


def counted(chosen, gold, known=()):
    """F1, precision, recall, macro F1 and F1 without known facts, from sets."""
    right = chosen & set(gold)

    def f1(correct, predictions, facts):
        return 2 * correct / (predictions + facts) if predictions + facts else 0.0

    relations = {key[2] for key in chosen | set(gold)}
    by_relation = [f1(*(len({k for k in keys if k[2] == r}) for keys in (right, chosen, gold))) for r in relations]
    seen = len(right.intersection(known))
    p = (len(right) - seen) / (len(chosen) - seen) if len(chosen) > seen else 0.0
    r = len(right) / len(gold)
    return {
        "f1": f1(len(right), len(chosen), len(gold)),
        "precision": len(right) / len(chosen) if chosen else 0.0,
        "recall": r,
        "macro_f1": sum(by_relation) / len(by_relation),
        "ign_f1": 2 * p * r / (p + r) if p + r else 0.0,
    }


# What clients and server hold.


def test_relations_without_a_direction_of_several_types(files):
    prepared = prepare(biored_table(files))
    assert prepared.pair_relations[:2] == ("Association", "Positive_Correlation") and len(prepared.pair_relations) == 8
    assert len(prepared.pair_types) == 8 and prepared.inputs.num_types == 4 and not prepared.inputs.typed
    arrays = prepared.examples.clients[0].train
    assert arrays["pair_head"].shape[1] == 3 and arrays["pair_labels"].shape[1:] == (3, 8)
    # The types of drug, gene and rash among the four, in the order of their first mentions.
    assert arrays["entity_type"].tolist() == [[0, 2, 1]] * len(arrays["y"])
    names = {f"{split}/{name}" for split in ("dev", "test") for name in BIORED_METRICS}
    assert set(prepared.held_out.metric_names) == names | {"dev/threshold"}
    wanted = ["trivial: every pair the most frequent relation", "trivial: by the types of a pair, from dev"]
    assert list(prepared.held_out.references()) == wanted
    facts = sum(number % every == 1 for number in range(12) for every in (2, 3, 4))
    assert sum(client.train["pair_labels"].sum() for client in prepared.examples.clients) == facts
    assert any(note.startswith("training: 12 documents, ") and note.endswith("; 8 relations, 8 pairs of types")
               for note in prepared.notes)  # fmt: skip
    assert not any(HIDDEN in note for note in prepared.notes)


def test_the_row_of_the_types_of_a_pair(files):
    held_out = prepare(biored_table(files)).held_out
    shares = {}
    for sample in held_out.corpora["dev"].samples:
        for pair in sample.pairs:
            kind = sample.entities[pair.head].kind, sample.entities[pair.tail].kind, pair.intra
            shares.setdefault(kind, []).append(pair.labels)
    assert len(shares) > 1

    def chosen(split, threshold):
        return {
            (*sample.pair_ids(pair)[:2], relation, sample.pair_ids(pair)[2])
            for sample in held_out.corpora[split].samples
            for pair in sample.pairs
            for kind in [(sample.entities[pair.head].kind, sample.entities[pair.tail].kind, pair.intra)]
            for relation in range(8)
            if sum(relation in labels for labels in shares.get(kind, [])) >= threshold * len(shares.get(kind, [0]))
        }

    gold = {split: held_out._documents[split].gold.facts for split in ("dev", "test")}
    at = {sum(r in x for x in of_kind) / len(of_kind) for of_kind in shares.values() for r in range(8)} - {0}
    best = max(at, key=lambda threshold: counted(chosen("dev", threshold), gold["dev"])["f1"])
    row = held_out.references()["trivial: by the types of a pair, from dev"]
    for split in gold:
        assert row[f"{split}/f1"] == pytest.approx(counted(chosen(split, best), gold[split])["f1"]), split
    assert row["dev/f1"] >= held_out.references()["trivial: every pair the most frequent relation"]["dev/f1"]


def test_measures_of_several_relations_at_devs_threshold_and_at_the_models(files):
    held_out = prepare(biored_table(files)).held_out
    scores = {}
    for split in ("dev", "test"):
        shape = held_out._documents[split].encoded.arrays["pair_labels"].shape
        scores[split] = np.random.default_rng(len(split)).random(shape).astype(np.float32)
    for threshold in (None, 0.5):
        metrics = held_out.metrics(scores, threshold)
        at = metrics["dev/threshold"]
        assert (at == 0.5) == (threshold == 0.5), "the model's own, where it has one"
        for split, values in scores.items():
            documents = held_out._documents[split]
            chosen = predicted(documents.encoded.pairs, values, at)
            wanted = counted(chosen, documents.gold.facts)
            for name in ("f1", "precision", "recall", "macro_f1"):
                assert metrics[f"{split}/{name}"] == pytest.approx(wanted[name]), (split, name)
    points = held_out.points(scores)
    assert points[-1][0] == pytest.approx(1.0), "all facts are candidates"


def test_documents_of_a_file_are_set_apart_and_facts_of_training_are_known(files):
    prepared = prepare(docred_table(files))
    held = {pairs[0].document_id for s in ("dev", "test") for pairs in prepared.held_out._documents[s].encoded.pairs}
    trained = {i.rsplit("-", 1)[1] for client in prepared.partition.clients.values() for i in client.train}
    assert len(held) == len(trained) == 12 and not held & trained
    assert "12 of 24 documents are held out" in prepared.notes
    assert prepared.pair_relations == ("P1", "P20")
    assert prepared.pair_types == (("DRUG", "GENE"), ("DRUG", "ILL"), ("GENE", "DRUG"))
    names = {f"{split}/{name}" for split in ("dev", "test") for name in DOCRED_METRICS}
    assert set(prepared.held_out.metric_names) == names | {"dev/threshold"}
    values = [docred_value(int(number)) for number in trained]
    known = {(v["vertexSet"][label["h"]][0]["name"], label["r"], v["vertexSet"][label["t"]][0]["name"])
             for v in values for label in v["labels"]}  # fmt: skip
    every = {}
    for split in ("dev", "test"):
        documents = prepared.held_out._documents[split]
        every[split] = np.ones(documents.encoded.arrays["pair_labels"].shape, np.float32)
        named = {
            (d, h, r, t): tuple(docred_value(int(d))["vertexSet"][int(i)][0]["name"] for i in (h, t))
            for d, h, r, t in documents.gold.facts
        }
        wanted = {key for key, (head, tail) in named.items() if (head, ("P1", "P20")[key[2]], tail) in known}
        assert documents.gold.known == wanted and wanted, "by the names of the two entities"
        measured = prepared.held_out._metrics_at({split: every[split]}, 0.5)
        chosen = predicted(documents.encoded.pairs, every[split], 0.5)
        for name, value in counted(chosen, documents.gold.facts, documents.gold.known).items():
            assert measured[f"{split}/{name}"] == pytest.approx(value), name


def test_what_the_recipe_says_of_pairs(files):
    task = {"pair_types": [["ChemicalEntity", "GeneOrGeneProduct"]], "directed": ["Bind"]}
    prepared = prepare(biored_table(files, task))
    assert prepared.pair_types == (("ChemicalEntity", "GeneOrGeneProduct"),) and prepared.inputs.num_types == 2
    assert prepared.examples.clients[0].train["pair_head"].shape[1] == 1
    own = prepare(biored_table(files, {"dataset": "documents", "directed": False}))
    assert own.pair_relations == ("Association", "Bind", "Comparison") and len(own.pair_types) == 2
    # The second file states a relation that the first one does not.
    (files / "more.pubtator").write_text((files / "dev.pubtator").read_text("utf-8").replace("Bind", "Hold"), "utf-8")
    task = {"dataset": "documents", "directed": False, "test_path": str(files / "more.pubtator")}
    fewer = prepare(biored_table(files, task))
    assert fewer.pair_relations == own.pair_relations
    missed = "stated facts have a relation that training does not state, and count as missed"
    assert sum(missed in note for note in fewer.notes) == 2
    every = {
        s: np.ones(d.encoded.arrays["pair_labels"].shape, np.float32) for s, d in fewer.held_out._documents.items()
    }
    assert 0 < fewer.held_out.metrics(every, 0.5)["test/recall"] < 1


@pytest.mark.parametrize(
    ("task", "wanted"),
    [
        ({"relations": ["Bind"]}, "'task.relations' needs dataset = 'docred' or 'documents'"),
        (
            {"dataset": "cdr", "pair_types": [["Gene", "Gene"]]},
            "'task.pair_types' needs dataset = 'biored' or 'docred' or",
        ),
        ({"dataset": "gda", "directed": True}, "'task.directed' needs dataset = 'biored' or 'docred' or 'documents'"),
        ({"pair_types": [["ChemicalEntity"]]}, "'task.pair_types' must have pairs of types"),
        ({"pair_types": []}, "'task.pair_types' must not be empty"),
        ({"directed": "Bind"}, "'task.directed' must be true, false or a list, got 'Bind'"),
        ({"directed": ["Bnd"]}, "directed names an unknown relation; did you mean 'Bind'?"),
        ({"pair_types": [["Chemical", "CellLine"]]}, "did you mean 'ChemicalEntity'?"),
        ({"dataset": "documents", "relations": ["Bind"]}, "states a relation that is not in the list; "),
        ({"dataset": "documents", "separators": ""}, "'task.separators' must not be empty"),
        (
            {"dataset": "documents", "relations": ["Bind", "Hold", "Bind"]},
            "'task.relations' names 'Bind' twice; name each once",
        ),
        ({"dataset": "documents", "relations": ["Bind", " "]}, "'task.relations' must not have an empty name"),
        ({"dataset": "documents", "dev_split": "dev"}, "'documents' has no files of its own; leave it out"),
        ({"dataset": "docred"}, "is not JSON"),
    ],
    ids=str,
)
def test_what_does_not_fit(files, task, wanted, capsys, tmp_path):
    recipe = write_recipe(tmp_path / "r.toml", biored_table(files, task))
    typed = command(capsys, "train", recipe, "--out", tmp_path / "out")
    assert HIDDEN not in refusal(typed, wanted) + typed.out


def test_test_documents_may_be_drawn_from_the_clients_file(files):
    """Whatever the name of a split, which own files do not have."""
    path = biored_table(files)["task"]["path"]
    task = {"dataset": "documents", "directed": False, "test_path": path, "test_subset": 4}
    prepared = prepare(biored_table(files, task))
    ids = {sample.document_id for sample in prepared.training}
    held = [pairs for d in prepared.held_out._documents.values() for pairs in d.encoded.pairs]
    assert len(held) == 4 and ids and not ids & {pair.document_id for pairs in held for pair in pairs}


# From training to predictions.


def test_a_relation_without_a_direction_is_predicted_in_one_order(tmp_path):
    lines = ["1|t|Aspirin helps pain.", "1|a|", "1\t0\t7\tAspirin\tDrug\tC1", "1\t14\t18\tpain\tDisease\tD1"]
    lines += ["1\ttreats\tC1\tD1", "1\tassoc\tC1\tD1"]
    (tmp_path / "own.pubtator").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    types = [["Drug", "Disease"], ["Disease", "Drug"]]
    options = {"path": tmp_path / "own.pubtator", "pair_types": types, "directed": ["treats"]}
    corpus = load_documents("documents", **options)

    class Fixed(DocumentPredictor):
        threshold, labels, dataset = 0.5, corpus.relation_names, "documents"

        def __init__(self, **more):
            self._details = {"pair_types": types, "pairs": {"directed": ["treats"]}, **more}

        def scores(self, corpus):
            return [np.array([[0.8, 0.9], [0.7, 0.6]], np.float32)]

        def _named(self, row):
            return dict(zip(corpus.relation_names, map(float, row), strict=True))

        def _seen(self, corpus):
            return None

    first, second = Fixed().predict(corpus)
    assert (first.head_id, first.labels, second.head_id, second.labels) == (
        "C1",
        ("assoc", "treats"),
        "D1",
        ("treats",),
    )
    assert list(second.probabilities) == ["treats"] and second.probability == pytest.approx(0.6)
    # The same fact, scored once; an evaluation has no tree of MeSH.
    score = Fixed()._score(options["path"], "documents", None)
    assert (score.metrics["recall"], score.metrics["precision"]) == (1, pytest.approx(2 / 3))
    assert not any("hypernyms" in note for note in score.notes)
    score = Fixed(hypernyms_left_out=True)._score(options["path"], "documents", None)
    (note,) = (note for note in score.notes if "hypernyms" in note)
    assert note.startswith("the run left out negative pairs of hypernyms (task.mesh_tree)")


def exported(run_folder, folder):
    return load_export(export_run(run_folder, folder, False, DataPaths(), DEFAULT_RUNTIME, quantise="float16"))


def by_hand(run, split, threshold):
    """`counted` of a split by the probabilities of Keras alone."""
    documents = run.experiment.prepared.held_out._documents[split]
    model = run.experiment.model.keras_model(run.result.weights)
    arrays = {name: documents.encoded.arrays[name] for name in run.experiment.prepared.inputs.specs}
    logits = np.asarray(model(arrays, training=False)["logits"], np.float64)
    scores = np.zeros(arrays["pair_labels"].shape)
    scores[arrays["pair_head"] >= 0] = 1 / (1 + np.exp(-logits))
    return counted(
        predicted(documents.encoded.pairs, scores, threshold), documents.gold.facts, documents.gold.known or ()
    )


@pytest.mark.slow
def test_biored_with_a_threshold_class_and_types(files, runtime, capsys, tmp_path):
    """Metrics at the threshold class are those by hand; the export predicts a file of its form, paired as training."""
    table = biored_table(
        files,
        {"pair_types": [["ChemicalEntity", "GeneOrGeneProduct"], ["DiseaseOrPhenotypicFeature", "GeneOrGeneProduct"]]},
        model={"loss": "adaptive_threshold", "type_embedding": 3},
        algorithm={"learning_rate": 0.05},
        training={"rounds": 2, "client_fraction": 1.0},
    )
    experiment, result = train_table(table, tmp_path / "run", runtime, details=False)
    assert experiment.prepared.inputs.typed and any("types" in name for name in experiment.model.weight_names)
    metrics = result.server_evaluation.metrics
    assert metrics["dev/threshold"] == 0.5 and experiment.model.threshold == 0.5
    run = type("Run", (), {"experiment": experiment, "result": result})
    for split in ("dev", "test"):
        wanted = by_hand(run, split, 0.5)
        for name in ("f1", "precision", "recall", "macro_f1"):
            assert metrics[f"{split}/{name}"] == pytest.approx(wanted[name], abs=1e-9), (split, name)

    predictor = exported(tmp_path / "run", tmp_path / "export")
    about = predictor.description
    assert about["details"]["threshold"] == 0.5 and "entity_type" in about["arrays"]
    types = [list(pair) for pair in experiment.prepared.pair_types]
    assert about["details"]["pair_types"] == types and about["details"]["pairs"] == {"directed": False}
    for form in ("saved_model", "saved_model_float16"):
        assert about["forms"][form]["f1"] == pytest.approx(metrics["test/f1"]), form
    file = write_biored(tmp_path / "later.pubtator", range(200, 206))
    corpus = predictor.read(file)
    assert corpus.pair_types == experiment.prepared.pair_types and corpus.relation_names == predictor.labels
    typed = command(capsys, "predict", tmp_path / "export", "--file", file, "--json")
    rows = [json.loads(line) for line in typed.out.splitlines()]
    assert typed.code == 0 and HIDDEN not in typed.out and len(rows) == 2 * 6
    for row in rows:
        assert row["labels"] == [name for name, value in row["probabilities"].items() if value >= 0.5]
    typed = command(capsys, "evaluate", tmp_path / "export", "--file", file)
    assert typed.code == 0 and "macro_f1" in typed.out and "6 documents, 7 facts" in " ".join(typed.out.split())
    card = (tmp_path / "export" / "README.md").read_text("utf-8")
    assert "scores as high as the model's threshold class" in " ".join(card.split()) and "`entity_type` [D, E]" in card
    own = command(capsys, "predict", tmp_path / "export", "--file", file, "--dataset", "documents", "--json")
    assert own.code == 0 and len(own.out.splitlines()) == len(rows), "own files are paired as training, too"


@pytest.mark.slow
def test_docred_from_one_file(files, runtime, capsys, tmp_path):
    table = docred_table(files, training={"rounds": 2, "client_fraction": 1.0})
    experiment, result = train_table(table, tmp_path / "run", runtime, details=False)
    metrics = result.server_evaluation.metrics
    run = type("Run", (), {"experiment": experiment, "result": result})
    for split in ("dev", "test"):
        for name, value in by_hand(run, split, metrics["dev/threshold"]).items():
            assert metrics[f"{split}/{name}"] == pytest.approx(value, abs=1e-9), (split, name)
    assert {f"test/{name}" for name in DOCRED_METRICS} <= set(read_history(RunFolder(tmp_path / "run"))[-1])

    predictor = exported(tmp_path / "run", tmp_path / "export")
    assert "entity_type" not in predictor.description["arrays"] and predictor.encoding.types == ()
    values = [{k: v for k, v in docred_value(number).items() if k != "labels"} for number in range(50, 54)]
    later = tmp_path / "later.json"
    later.write_text(json.dumps(values), "utf-8")
    typed = command(capsys, "predict", tmp_path / "export", "--file", later, "--json")
    rows = [json.loads(line) for line in typed.out.splitlines()]
    assert typed.code == 0 and {(row["head_id"], row["tail_id"]) for row in rows} == {
        ("0", "1"),
        ("0", "2"),
        ("1", "0"),
    }
    typed = command(
        capsys, "evaluate", tmp_path / "export", "--file", write_docred(tmp_path / "more.json", range(60, 66))
    )
    assert typed.code == 0 and "macro_f1" in typed.out and "ign_f1" not in typed.out


def test_sites_need_the_recipe_to_name_relations_and_types(files):
    from tff_re.errors import UserError
    from tff_re.recipes.reading import resolve
    from tff_re.sites.prepared import require_task

    def refused(table):
        with pytest.raises(UserError) as caught:
            require_task(resolve(table, "r.toml").task)
        return str(caught.value)

    message = refused(docred_table(files))
    assert message == "task.relations: it cannot come from the sites' files, which may differ; set it in the recipe"
    assert refused(docred_table(files, {"relations": ["P1"]})).startswith("task.pair_types: it cannot come from")
    require_task(resolve(docred_table(files, {"relations": ["P1"], "pair_types": [["A", "B"]]}), "r.toml").task)
    require_task(resolve(biored_table(files), "r.toml").task)
    require_task(resolve(document_table(), "r.toml").task)


def test_the_files_of_these_tests_are_of_their_forms():
    assert biored_block(1)[-3:] == [
        "1\tAssociation\t7\tC1\tNovel",
        "1\tBind\tC1\t7\tNovel",
        "1\tComparison\tD1\t7\tNovel",
    ]
    assert marking_encoder().is_dir()


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        ({"pair_types": [["A"]]}, "pair_types"),
        ({"pair_types": {}}, "pair_types"),
        ({"pair_types": [["A", 1]]}, "pair_types"),
        ({"pairs": []}, "not an object"),
        ({"pairs": {"path": "x"}}, "not an object"),
        ({"pairs": {"directed": "Bind"}}, "which relations have a direction"),
        ({"pairs": {"separators": 1}}, "not a string"),
        ({"hypernyms_left_out": "yes"}, "not true or false"),
        ({"named_by_types": {}}, "named_by_types"),
        ({"named_by_types": [["A", "B", True]]}, "named_by_types"),
        ({"named_by_types": [["A", "B", 1, [0]]]}, "named_by_types"),
        ({"named_by_types": [["A", None, True, [0]]]}, "named_by_types"),
        ({"named_by_types": [["A", "B", True, [2]]]}, "named_by_types"),
        ({"named_by_types": [["A", "B", True, [True]]]}, "named_by_types"),
        ({"named_by_types": [["A", "B", True, [0, 1]], ["A", "B", False, [1]]]}, None),
        ({"pair_types": [["A", "B"]], "pairs": {"directed": ["Bind"], "separators": ";"}}, None),
        ({}, None),
    ],
)
def test_what_an_export_says_of_pairs_is_checked(details, reason):
    description = {"arrays": ["input_ids"], "classes": 2, "details": {"threshold": 0.5, **details}}
    if reason is None:
        DocumentKind().check(description, DataError)
    else:
        with pytest.raises(DataError, match=reason):
            DocumentKind().check(description, DataError)
