"""Digests of training texts: what they tell of a file, when an export gets them, and what `evaluate` says."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import shutil
from types import SimpleNamespace

import pytest

from datasets.bags.records import BagSentence
from datasets.dialogues.records import LabelledText
from datasets.documents.corpus import DocumentSample
from datasets.documents.records import Document
from datasets.entities.records import EntitySample, EntitySpan
from datasets.errors import DataError
from datasets.partition import Partition
from datasets.partition.base import ClientSamples
from datasets.relations.loading import load_relations
from datasets.relations.records import RelationMention
from tests.exports_for_tests import arguments, export_of, written_once
from tests.runs.test_sentence_relations import write_pgr
from tests.upper_floors import SECRET, command, refusal
from tff_re.errors import UserError
from tff_re.exporting.export_model import export_model
from tff_re.exporting.layout import TRAINING_DIGESTS_FILE
from tff_re.exporting.training_digests import TrainingDigests, digests_for_export
from tff_re.tasks.base import Prepared

pytestmark = pytest.mark.xdist_group("exports")


def dialogue(document, text):
    return LabelledText(f"{document}/1", document, text, 0)


def pair(document, text):
    return RelationMention(f"m-{document}", document, text, (0, 1), (2, 3), "a", "b", "r", 0)


def document(document_id, text):
    return DocumentSample(f"cdr-train-{document_id}", Document(document_id, text, 2, (), ()), (), ())


def entities(document, text):
    return EntitySample(f"s-{document}", document, text, (EntitySpan(0, 1, "Drug"),), 1)


def sentence(head, tail, text, number=0):
    ids = (f"nyt10-train-{head}{tail}{number}",) * 2
    return BagSentence(*ids, text, (0, 1), (2, 3), "a", "b", head, tail, ("NA",), 0)


KINDS = pytest.mark.parametrize("make", [dialogue, pair, document, entities])


# What digests tell


@KINDS
def test_a_file_is_seen_unseen_or_seen_in_part(make):
    digests = TrainingDigests.from_samples([make(f"d{i}", f"the text number {i}") for i in range(5)])
    assert digests.examples == 5
    all_seen = digests.seen([make(f"d{i}", f"the text number {i}") for i in range(3)])
    assert (all_seen.examples, all_seen.by_id, all_seen.by_text, all_seen.either) == (3, 3, 3, 3)
    none = digests.seen([make("e1", "another text"), make("e2", "a third")])
    assert (none.by_id, none.by_text, none.either) == (0, 0, 0) and none.warning("f.tsv") is None
    part = [make("d1", "a changed text"), make("e1", "the text number 2"), make("d3", "the text number 3")]
    part = digests.seen([*part, make("e2", "new words")])
    assert (part.examples, part.by_id, part.by_text, part.either) == (4, 2, 2, 3)
    assert part.warning("f.tsv") == (
        "f.tsv: 3 of 4 examples match the run's training or dev data (2 by id, 2 by text); the metrics are not those "
        "of new texts"
    )


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("the drug Inhibits the gene", True),
        ("  the\tdrug inhibits\u3000the  gene\n", True),
        ("ｔｈｅ drug inhibits the gene", True),
        ("the drug inhibits the gene.", False),
        ("the drug inhibits thegene", False),
        ("", False),
    ],
)
def test_case_width_and_blanks_make_no_difference(text, seen):
    digests = TrainingDigests.from_samples([dialogue("d", "The drug inhibits the gene")])
    assert digests.seen([dialogue("e", text)]).by_text == seen


def test_a_bag_is_seen_by_its_pair_and_by_each_of_its_sentences():
    digests = TrainingDigests.from_samples([sentence("a", "b", "x y once", 0), sentence("a", "b", "x y twice", 1)])
    assert digests.examples == 1
    file = [
        *(sentence("a", "b", "p q new", 0), sentence("a", "b", "p q newer", 1)),  # its pair is known
        *(sentence("c", "d", "r s new", 0), sentence("c", "d", "X  Y TWICE", 1)),  # one of its sentences is
        *(sentence("b", "a", "t u new", 0),),  # the pair in the other order is not
    ]
    seen = digests.seen(file)
    assert (seen.examples, seen.by_id, seen.by_text, seen.either) == (3, 1, 1, 2)


def test_ids_that_a_reader_made_are_not_compared():
    """Two files have the same numbers; the readers make ids of them with the split's name."""
    digests = TrainingDigests.from_samples([pair("gad-train-00001", "a b c")])
    assert digests.ids == frozenset()
    seen = digests.seen([pair("gad-given-00001", "d e f"), pair("gad-given-00002", "a b c")])
    assert (seen.by_id, seen.by_text, seen.either) == (None, 1, 1)
    assert "(1 by text)" in seen.warning("f")
    own = TrainingDigests.from_samples([pair("1234567", "a b c")])
    assert own.seen([pair("gad-given-00001", "d e f")]).by_id is None
    assert own.seen([pair("1234567", "d e f")]).by_id == 1


def test_the_same_words_as_id_and_as_text_are_two_things():
    digests = TrainingDigests.from_samples([dialogue("one", "two")])
    seen = digests.seen([dialogue("two", "one")])
    assert (seen.by_id, seen.by_text) == (0, 0)


def test_the_file_holds_no_text_no_plain_hash_and_no_order():
    samples = [dialogue(f"d{i}", f"{SECRET} {i}") for i in range(20)]
    written, again = (TrainingDigests.from_samples(samples).to_json() for _ in range(2))
    value = json.loads(written)
    assert value.keys() == {"format", "format_version", "key", "examples", "started_from_run", "ids", "texts"}
    assert SECRET not in written and len(value["texts"]) == 20 * 10 and len(value["key"]) == 32
    for text in (s.text for s in samples):
        assert hashlib.sha256(text.encode()).hexdigest()[:10] not in written
        assert hashlib.blake2b(text.encode(), digest_size=5).hexdigest() not in written
    digests = re.findall("." * 10, value["texts"])
    assert digests == sorted(digests)
    other = re.findall("." * 10, json.loads(again)["texts"])
    assert not set(digests) & set(other), "two exports' digests cannot be compared"


def test_the_file_is_read_as_it_was_written():
    digests = TrainingDigests.from_samples([dialogue("d", "a"), dialogue("d", "b")], started_from_run=True)
    fail = functools.partial(DataError, path="f.json")
    assert TrainingDigests.from_json(json.loads(digests.to_json()), fail) == digests
    good = json.loads(digests.to_json())
    for change, reason in (
        ({"format": "x"}, "holds no digests"),
        ({"format_version": 2}, "another version"),
        ({"key": "zz" * 16}, '"key" is not 16 hexadecimal bytes'),
        ({"key": "00"}, '"key" is not 16 hexadecimal bytes'),
        ({"examples": "2"}, '"examples" is not a whole number'),
        ({"started_from_run": 1}, '"started_from_run" is neither'),
        ({"texts": "0123"}, '"texts" does not consist of digests'),
        ({"ids": ["0123456789"]}, '"ids" is not a string'),
    ):
        with pytest.raises(DataError, match=reason):
            TrainingDigests.from_json({**good, **change}, fail)
    with pytest.raises(DataError, match="holds no digests"):
        TrainingDigests.from_json([], fail)


# What the digests are of


def prepared(**fields):
    unused = dict.fromkeys(("examples", "inputs", "measures", "counts"))
    return Prepared(**unused, **fields)


def test_a_run_was_trained_on_the_examples_of_clients_and_server_and_chosen_on_dev():
    samples = [dialogue(f"d{i}", f"text {i}") for i in range(5)]
    clients = {"a": ClientSamples(("d0/1",), ("d1/1",)), "b": ClientSamples(("d2/1",), ())}
    partition = Partition("iid", {}, 0, clients, server=("d3/1",))
    held_out = SimpleNamespace(
        corpora={
            "dev": SimpleNamespace(samples=(samples[4],)),
            "test": SimpleNamespace(samples=(dialogue("t", "test"),)),
        }
    )
    fields = {"partition": partition, "corpora": (SimpleNamespace(samples=samples[:4]),), "held_out": held_out}
    assert [s.document_id for s in prepared(**fields).trained_on()] == ["d0", "d2", "d3", "d4"]
    assert prepared(**fields, sites=("aachen",)).trained_on() == []
    assert prepared().trained_on() == []


class Task:
    def __init__(self, **options):
        self.get = options.get


def experiment(*, sites=(), data=None, samples=1, **task):
    made = SimpleNamespace(sites=sites, trained_on=lambda: [dialogue("d", "a")] * samples)
    return SimpleNamespace(prepared=made, recipe=SimpleNamespace(task=Task(**task), data=data))


DEFAULTS = {"private": False, "started_from_run": False}


@pytest.mark.parametrize(
    ("of", "written"),
    [
        (experiment(dataset="pgr"), True),
        (experiment(), True),  # made-up examples
        (experiment(dataset="pgr", path="own.tsv"), False),
        (experiment(dataset="pgr", data="a statement"), False),
        (experiment(dataset="relations"), False),  # a form of own files
        (experiment(dataset="i2b2_2010"), False),
        (experiment(dataset="i2b2_2010_entities"), False),
        (experiment(dataset="imcs_v2"), False),
        (experiment(dataset="shipped"), True),
    ],
)
def test_only_exports_of_public_data_have_digests_by_default(of, written):
    digests, line = digests_for_export(of, None, **DEFAULTS)
    assert (digests is not None) == written
    assert ("can tell whether it is among them" if written else "not those of a public data set") in line
    digests, line = digests_for_export(of, True, **DEFAULTS)
    assert digests.examples == 1 and "digests of 1 training and dev examples" in line
    digests, line = digests_for_export(of, False, **DEFAULTS)
    assert digests is None and line.startswith("no digests of training texts in the files: ")


@pytest.mark.parametrize(
    ("of", "private", "reason"),
    [
        (experiment(dataset="pgr", sites=("aachen",)), False, "the training texts are at the sites"),
        (experiment(dataset="pgr"), True, "differential privacy, which digests of its texts would undo"),
        (experiment(samples=0), False, "the task's examples are not texts"),
    ],
)
def test_sites_and_private_runs_have_none(of, private, reason):
    digests, line = digests_for_export(of, None, private=private, started_from_run=False)
    assert digests is None and reason in line
    with pytest.raises(UserError, match=f"--training-digests: .*{reason}; leave it out"):
        digests_for_export(of, True, private=private, started_from_run=False)


# `evaluate` and `validate`


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_pgr(tmp_path_factory.mktemp("pgr") / "given.tsv")


@pytest.fixture(scope="module")
def exported(corpus):
    """An export of a model that was trained on the first half of the documents of the corpus."""
    mentions = load_relations("pgr", path=corpus).mentions
    trained_on = mentions[: len(mentions) // 2]
    files = {TRAINING_DIGESTS_FILE: TrainingDigests.from_samples(trained_on).to_json()}
    kind = "blinded relations of words"
    return written_once(
        f"{kind} with digests",
        lambda folder: export_model(folder, **arguments(kind), files=files, formats="saved_model"),
    )


def seen_by_hand(corpus):
    """(by id, by text, either, all) of the corpus of the fixtures, without digests."""
    mentions = load_relations("pgr", path=corpus).mentions
    trained_on = mentions[: len(mentions) // 2]
    ids, texts = {m.document_id for m in trained_on}, {m.text for m in trained_on}
    either = sum(m.document_id in ids or m.text in texts for m in mentions)
    return sum(m.document_id in ids for m in mentions), sum(m.text in texts for m in mentions), either, len(mentions)


def cells(text):
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    return {row[0]: row[1] for row in rows}


def test_evaluate_warns_of_a_file_that_was_seen(exported, corpus, capsys):
    typed = command(capsys, "evaluate", exported, "--file", corpus, "--dataset", "pgr")
    by_id, by_text, either, count = seen_by_hand(corpus)
    assert 0 < by_text < count
    assert typed.code == 0 and SECRET not in typed.out + typed.err
    assert f"compared by ┃ of {count} ┃" in typed.out
    assert [cells(typed.out)[name] for name in ("id", "text", "id or text")] == [str(by_id), str(by_text), str(either)]
    assert typed.err == (
        f"warning: given.tsv: {either} of {count} examples match the run's training or dev data ({by_id} by id, "
        f"{by_text} by text); the metrics are not those of new texts\n"
    )


def test_the_json_says_it_too(exported, corpus, capsys):
    typed = command(capsys, "evaluate", exported, "--file", corpus, "--dataset", "pgr", "--json")
    value, (by_id, by_text, either, count) = json.loads(typed.out), seen_by_hand(corpus)
    assert typed.code == 0 and typed.err.startswith("warning: ") and typed.err.count("\n") == 1
    assert value["seen"] == {
        **{"examples": count, "by_id": by_id, "by_text": by_text, "either": either},
        **{"run_examples": count // 2, "started_from_run": False},
    }
    assert value["file"] == "given.tsv" and value["counts"] == {"examples": count} and "accuracy" in value["metrics"]
    plain = export_of("blinded relations of words")
    typed = command(capsys, "evaluate", plain, "--file", corpus, "--dataset", "pgr", "--json")
    assert json.loads(typed.out)["seen"] is None and typed.err == ""


def test_of_an_export_without_digests_it_is_not_known(corpus, capsys):
    plain = export_of("blinded relations of words")
    assert not (plain / TRAINING_DIGESTS_FILE).exists()
    typed = command(capsys, "evaluate", plain, "--file", corpus, "--dataset", "pgr")
    assert typed.code == 0 and typed.err == ""
    assert "seen in training: not known; the export has no digests of its training texts\n" in typed.out


def test_a_changed_or_missing_file_of_digests_is_refused(exported, corpus, capsys, tmp_path):
    folder = tmp_path / "export"
    shutil.copytree(exported, folder)
    path, arguments_of = folder / TRAINING_DIGESTS_FILE, ("evaluate", folder, "--file", corpus, "--dataset", "pgr")
    path.write_text(path.read_text("utf-8").replace('"examples"', '"examples" '), "utf-8")
    refusal(command(capsys, *arguments_of), "training_digests.json: was changed after the export")
    assert command(capsys, *arguments_of, "--trust").code == 0
    path.write_text("{}", "utf-8")
    refusal(command(capsys, *arguments_of, "--trust"), "training_digests.json: holds no digests of training texts")
    path.unlink()
    refusal(command(capsys, *arguments_of), "training_digests.json: is missing, but SHA256SUMS lists it")
    typed = command(capsys, *arguments_of, "--trust")
    assert typed.code == 0 and "seen in training: not known" in typed.out


def test_validate_warns_and_does_not_sign_it(exported, corpus, capsys, tmp_path):
    key, out = tmp_path / "key.pem", tmp_path / "a.json"
    command(capsys, "validate", "--make-key", "--key", key)
    typed = command(
        capsys, "validate", exported, "--file", corpus, "--dataset", "pgr", "--key", key, "--out", out, "--name", "a"
    )
    assert typed.code == 0 and typed.err.startswith("warning: given.tsv: ")
    assert "seen" not in json.loads(out.read_text("utf-8"))


def test_json_is_for_exports(tmp_path, capsys):
    refusal(command(capsys, "evaluate", tmp_path, "--json"), "--json is for exports")
