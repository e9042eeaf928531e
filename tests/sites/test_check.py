"""`site --check`: numbers about a site's data under a recipe, without a text and without a connection."""

from __future__ import annotations

import json
import socket

import pytest
import tomli_w

from tests.recognition_for_tests import record, write_texts
from tests.recognition_for_tests import table as entity_table
from tests.sites.relations_for_tests import LABELS, RELATIONS, mention, relations_table
from tests.sites.sites_for_tests import corpora, recipe_of, write_site
from tests.sites.test_own_evaluation import bag_recipe, bag_sites, document_recipe, document_sites
from tests.upper_floors import SECRET, command, consultations, refusal, text_recipe
from tff_re.sites.check import check_data, shown_labels
from tff_re.sites.policy import read_site


@pytest.fixture(autouse=True)
def _no_connection(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("a socket is opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "bind", refuse)


def relations(folder, records=None, test=None, **task) -> tuple:
    """(site.toml, recipe file) of sentences with two mentions."""
    records = [mention(n, LABELS[n % 2], words=30 if n == 3 else 3) for n in range(12)] if records is None else records
    file = write_site(folder, "bonn", {}, data=RELATIONS)
    write_texts(folder / "texts.jsonl", records)
    write_texts(folder / "test.jsonl", test or [{**records[0], "id": "t0"}, mention(50, "lowers")])
    return file, written(folder, relations_table(**task))


def written(folder, table):
    path = folder / "recipe.toml"
    path.write_text(tomli_w.dumps(table), "utf-8")
    return path


def checked(capsys, file, recipe, *arguments) -> tuple[str, dict]:
    """(what was printed, what was written as JSON)."""
    out, state = file.with_name("check.json"), file.with_name("state")
    typed = command(capsys, "site", file, "--check", recipe, "--out", out, *arguments)
    assert typed.code == 0 and not state.exists(), typed
    for text in (typed.out, typed.err, out.read_text("utf-8")):
        assert SECRET not in text
    return " ".join(typed.out.split()), json.loads(out.read_text("utf-8"))


def test_relations_in_sentences(tmp_path, capsys):
    file, recipe = relations(tmp_path)
    out, check = checked(capsys, file, recipe)
    train, test = check["splits"]["train"], check["splits"]["test"]
    assert (train["examples"], train["labels"]) == (12, {"raises": 6, "lowers": 6, "stops": 0})
    assert check["missing_labels"] == ["stops"] and not check["unknown_labels"] and not check["problems"]
    assert train["median"] < 30 < train["longest"] and (train["cut"], test["cut"]) == (1, 0)
    assert (train["duplicates"], test["duplicates"]) == (0, 0)
    assert check["overlaps"] == [{"earlier": "train", "later": "test", "texts": 1}]
    assert train["known"] == 1 > test["known"] > 0.8  # "50" is no word of the training texts
    assert check["own_words"]["without_others"] == 0 < check["own_words"]["frequent"]
    for line in (
        "1 of 14 texts cut to the length limit",
        "labels without a training example: stops",
        "1 of 2 test texts are in train, too",
        "1 of 1 client has fewer training texts than a batch (algorithm.batch_size = 32)",
    ):
        assert line in out


def test_labels_that_the_recipe_does_not_list(tmp_path, capsys):
    records = [mention(n, ["raises", "lowers", "melts"][n % 3]) for n in range(9)]
    out, check = checked(capsys, *relations(tmp_path, records, [mention(20, "boils")]))
    assert check["unknown_labels"] == {"melts": 3, "boils": 1}
    assert "task.class_names lacks labels of the site's files" in out and "melts (3), boils (1)" in out
    assert check["splits"]["train"]["labels"] == {"raises": 3, "lowers": 3, "stops": 0, "melts": 3, "boils": 0}


def test_repeated_texts_are_counted_whatever_their_case_and_blanks(tmp_path, capsys):
    records = [mention(n, "raises") for n in range(4)]
    again = {**records[0], "id": "9", "document": "9", "text": records[0]["text"].replace("very ", "VERY ")}
    _, check = checked(capsys, *relations(tmp_path, [*records, again]))
    assert check["splits"]["train"]["duplicates"] == 1


def test_entities(tmp_path, capsys):
    file = write_site(tmp_path, "bonn", {}, data={"dataset": "entities", "path": "texts.jsonl"})
    write_texts(tmp_path / "texts.jsonl", map(record, range(16)))
    task = {"path": None, "entity_types": ["drug", "symptom", "dose"], "max_length": len(SECRET) + 9}
    recipe = written(tmp_path, entity_table("unused", task=task, partition=None))
    out, check = checked(capsys, file, recipe)
    train, test = check["splits"]["train"], check["splits"]["test"]
    assert train["texts"] + test["texts"] == 16 and train["labels"]["symptom"] == train["texts"]
    assert check["missing_labels"] == ["dose"] and train["cut"] + test["cut"] > 0
    assert "entities are not represented by tags" in out
    _, check = checked(capsys, file, recipe, "--set", 'task.entity_types=["drug"]')
    assert check["unknown_labels"] == {"symptom": 16} and len(check["problems"]) == 1
    leave = ("--set", 'task.entity_types=["drug"]', "--set", "task.other_types=leave_out")
    _, check = checked(capsys, file, recipe, *leave)
    assert check["unknown_labels"] == {"symptom": 16} and not check["problems"]
    assert list(check["splits"]["train"]["labels"]) == ["drug"]


def test_dialogues_and_clients_that_are_too_small(tmp_path, capsys):
    small = {"small": {"diagnosis": "流感", "dialogue": consultations(1, 2)["d0"]["dialogue"]}}
    clients = {"rule": "documents", "least_examples": 3}
    file = write_site(tmp_path, "bonn", consultations(3) | small, clients=clients)
    table = text_recipe("unused", min_clients=2)
    table["task"] |= {"path": None, "dataset": "shipped"}
    del table["task"]["path"]
    out, check = checked(capsys, file, written(tmp_path, table))
    assert len(check["clients"]) == 3 and set(check["splits"]) == {"train", "test"}
    assert "1 client with 2 texts: fewer training examples than clients.least_examples" in out
    # Dialogues repeat each other's six sentences.
    assert check["splits"]["train"]["duplicates"] >= 6 and check["own_words"]["known_without_others"] > 0.9


def test_an_html_page_without_a_text(tmp_path, capsys):
    file, recipe = relations(tmp_path)
    assert command(capsys, "site", file, "--check", recipe, "--out", tmp_path / "check.html").code == 0
    page = (tmp_path / "check.html").read_text("utf-8")
    assert "labels without a training example: stops" in page and SECRET not in page
    assert (tmp_path / "check.html").stat().st_mode & 0o077 == 0


def test_a_digest_that_is_not_allowed_is_a_warning(tmp_path):
    file = write_site(tmp_path, "bonn", corpora()["bonn"], allow={"recipes": ["0" * 64]})
    assert any("allow.recipes" in line for line in check_data(read_site(file), recipe_of()).warnings)


def test_bags_and_documents(tmp_path):
    files, _ = document_sites(tmp_path / "documents")
    check = check_data(read_site(files["bonn"]), document_recipe())
    train = check.splits["train"]
    assert list(check.splits) == ["train"] and list(train.labels) == ["CID"] and train.labels["CID"] and train.known
    files, _ = bag_sites(tmp_path / "bags")
    check = check_data(read_site(files["bonn"]), bag_recipe(tmp_path))
    assert check.splits["train"].examples >= check.splits["train"].texts > 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["{site}", "--check", "{folder}/absent.toml"], "absent.toml"),
        (["{folder}/absent/site.toml", "--check", "{recipe}"], "site.toml: no such file"),
        (["{site}", "--check", "{recipe}", "--set", "task.max_lenght=3"], "max_length"),
        (["{site}", "--check", "{recipe}", "--out", "check.pdf"], "--out check.pdf: give a file whose name ends with"),
        (["{site}", "--out", "check.html"], "--out is where --check RECIPE writes"),
        (["--check", "{recipe}"], "--check RECIPE needs the site's file"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, arguments, line):
    file, recipe = relations(tmp_path)
    names = {"site": file, "recipe": recipe, "folder": tmp_path}
    refusal(command(capsys, "site", *(argument.format(**names) for argument in arguments)), line)


def test_a_missing_file_of_data_is_one_line(tmp_path, capsys):
    file, recipe = relations(tmp_path)
    (tmp_path / "test.jsonl").unlink()
    refusal(command(capsys, "site", file, "--check", recipe), "test.jsonl")


def test_labels_that_may_be_texts_are_not_named():
    text = "the patient has had a fever since yesterday evening"
    hidden = shown_labels({"melts": 3, text: 1})
    assert hidden["melts"] == 3 and sum(hidden.values()) == 4 and not any(text in name for name in hidden)
    assert list(shown_labels({str(number): 1 for number in range(201)}).values()) == [201]
    listed = "located in the administrative territorial entity"
    assert shown_labels({listed: 2, text: 1}, [listed])[listed] == 2


def test_a_long_label_that_the_recipe_lists_is_there(tmp_path, capsys):
    long = "raises the level of a substance in the blood of the patient"
    file, recipe = relations(tmp_path, [mention(n, long) for n in range(6)], class_names=[long, *LABELS])
    _, check = checked(capsys, file, recipe)
    assert check["splits"]["train"]["labels"][long] == 6 and long not in check["missing_labels"]


def test_a_text_in_the_place_of_a_label_is_not_shown(tmp_path, capsys):
    records = [mention(0, "raises"), mention(1, f"{SECRET} and much more of what the patient said that day")]
    _, check = checked(capsys, *relations(tmp_path, records))
    assert list(check["unknown_labels"].values()) == [1] and check["splits"]["train"]["labels"]["raises"] == 1
