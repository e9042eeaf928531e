"""What is said of a run's data: the catalogue's words of its own files only."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from datasets.catalogue import DATA_SETS
from tests.upper_floors import text_recipe
from tff_re.errors import UserError
from tff_re.recipes.reading import resolve
from tff_re.runs.data_source import data_source
from tff_re.sites.policy import recipe_digest

STATED = {"title": "Letters of our clinic", "licence": "within the house only", "contact": "data@clinic.example"}


def said(table, sites=()):
    return data_source(SimpleNamespace(recipe=resolve(table, "r"), prepared=SimpleNamespace(sites=sites)))


def table_of(dataset="pgr", data=None, **task):
    table = text_recipe("unused")
    table["task"] = {"name": "sentence_relations", "dataset": dataset, "encoding": "words", **task}
    table["model"] = {"name": "lstm"}
    return table | ({} if data is None else {"data": data})


def test_the_catalogue_speaks_of_its_own_files():
    about = DATA_SETS["pgr"]
    statements = said(table_of())
    assert (
        statements["data set"].startswith(about.title)
        and statements["licence of the data"] == about.licence == "Apache-2.0"
    )
    assert statements["source"] == about.citation and "contact" not in statements


@pytest.mark.parametrize(
    ("task", "sites"),
    [({"path": "f"}, ()), ({"test": "official", "test_path": "f"}, ()), ({}, ("a", "b"))],
    ids=["a file", "a file for testing", "files of sites"],
)
@pytest.mark.parametrize("data", [None, {}, {"title": "Letters"}, STATED])
def test_of_other_files_the_recipe_speaks_or_nobody(task, sites, data):
    stated, statements = data or {}, said(table_of(**task, data=data), sites)
    assert statements == {
        "data set": stated.get("title", "not stated"),
        "licence of the data": stated.get("licence", "not stated"),
        "contact": stated.get("contact", "not stated"),
        "read in the form of": "pgr",
    }


def test_what_the_recipe_says_holds_of_files_in_the_catalogues_place_too():
    statements = said(table_of(data=STATED))
    assert statements["data set"] == STATED["title"] and "source" not in statements


def test_made_up_examples_have_no_source():
    table = text_recipe("unused") | {"task": {"name": "synthetic"}, "model": {"name": "logistic_regression"}}
    assert said(table) == {"data set": "synthetic"}


def test_it_only_labels_a_recipe():
    """Sites that allow a recipe allow it with any [data], and a recipe without it is written as before."""
    plain, labelled = (resolve(table_of(data=data), "r") for data in (None, STATED))
    assert recipe_digest(plain) == recipe_digest(labelled) and "[data]" not in plain.to_toml()
    assert resolve(table_of(data=STATED), "r").data.title == STATED["title"] and "[data]" in labelled.to_toml()


@pytest.mark.parametrize("value", ["", "  ", "two\nlines", "a\x1b[31m", "a\u2028b", 5])
def test_a_statement_is_one_line(value):
    with pytest.raises(UserError, match=r"^r: 'data\.licence' must be") as caught:
        resolve(table_of(data={"licence": value}), "r")
    assert "\n" not in str(caught.value)
