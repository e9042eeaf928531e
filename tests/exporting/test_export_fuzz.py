"""Exports whose JSON files were edited by hand: they work or say what is wrong, and nothing else."""

from __future__ import annotations

import functools
import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datasets.errors import DataError
from datasets.text.relation_layout import MARKERS
from tests.bags_for_tests import data_folder as bags_folder
from tests.documents_for_tests import data_folder as documents_folder
from tests.exports_for_tests import LABELS, export_of
from tff_re.errors import UserError
from tff_re.exporting import prediction
from tff_re.exporting.kinds import KINDS as KINDS_OF_INPUT
from tff_re.exporting.kinds.documents import DocumentPredictor
from tff_re.exporting.prediction import load_export
from tff_re.exporting.predictors import PredictionError

FILES = ("export.json", "labels.json", "encoding.json")
_SIGNATURE = prediction._signature

RELATIONS, ENTITIES = "blinded relations of words", "entities of characters"
OWN_FILE = "own.jsonl"
WORDS = "<e1>drug</e1> binds <e2>gene</e2>"


@functools.cache
def signature_of(kind):
    source = json.loads(text_of(kind, "export.json"))["input"]
    return _SIGNATURE(export_of(kind) / "saved_model", KINDS_OF_INPUT[source["kind"]], source)


@functools.cache
def text_of(kind, name):
    return (export_of(kind) / name).read_text("utf-8")


def use(kind, folder, monkeypatch):
    """All that predict and evaluate read of an export, but for loading its graph, which is done once."""
    monkeypatch.setattr(prediction, "_signature", lambda *_: signature_of(kind))
    predictor = load_export(folder, trust=True)  # whatever the digests say
    if kind == "vectors":
        return repr(predictor), predictor.predict_vectors([[0.0, 1.0]])
    if kind == "bags":
        file = bags_folder() / "nyt10" / "nyt10_test.txt"
        return predictor.predict_file(file), predictor.score(file)
    if kind == "documents":
        file = documents_folder() / "cdr" / "dev.pubtator"
        return predictor.predict_file(file), predictor.score(file)
    if kind == ENTITIES:
        return predictor.predict_each(["咳嗽", WORDS]), predictor.predict_file(folder.parent / OWN_FILE)
    return predictor.predict_each(["发热", WORDS])


def places(value, here=()):
    """All places in a JSON value, but few of a long list or object, such as a vocabulary."""
    yield here
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    for key, item in items if len(items) <= 40 else (*items[:2], *items[-2:]):
        yield from places(item, (*here, key))


OTHERS = (None, True, False, 0, 1, -1, 7, 10**400, 0.5, 1e308, "", "a", "words", [], [None], ["a"], {}, {"a": None})
DELETED = "this key is taken out"


def changed(text, path, new):
    """The JSON text with another value in a place, or without it."""
    if not path:
        return "" if new is DELETED else json.dumps(new)
    value = json.loads(text)
    parent = functools.reduce(lambda part, key: part[key], path[:-1], value)
    if new is DELETED:
        del parent[path[-1]]
    else:
        parent[path[-1]] = new
    return json.dumps(value)


def prepare(kind, folder):
    folder.mkdir(exist_ok=True)
    (folder / "saved_model").symlink_to(export_of(kind) / "saved_model")
    for name in FILES:
        (folder / name).write_text(text_of(kind, name), "utf-8")
    (folder.parent / OWN_FILE).write_text('{"id": "a", "text": "咳嗽"}\n', "utf-8")
    return folder


KINDS = ("words", "characters", "vectors", RELATIONS, "bags", ENTITIES, "documents", "text pieces")


@pytest.mark.parametrize("kind", [*KINDS[:6], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[6:])])
def test_any_value_of_any_other_type(kind, tmp_path, monkeypatch):
    folder = prepare(kind, tmp_path / "export")
    assert use(kind, folder, monkeypatch)
    everywhere = {name: list(places(json.loads(text_of(kind, name)))) for name in FILES}

    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def edit(data):
        name = data.draw(st.sampled_from(FILES))
        path = data.draw(st.sampled_from(everywhere[name]))
        new = data.draw(st.sampled_from((DELETED, *OTHERS)))
        (folder / name).write_text(changed(text_of(kind, name), path, new), "utf-8")
        try:
            use(kind, folder, monkeypatch)
        except (UserError, DataError) as error:
            assert "\n" not in str(error) and "; " in str(error), "one line with a remedy"
        finally:
            (folder / name).write_text(text_of(kind, name), "utf-8")

    edit()


EDITS = (
    ("words", "export.json", (), [], "export.json: is not the description of an export"),
    ("words", "export.json", ("input",), None, '"input" is not an object'),
    ("words", "encoding.json", (), {}, "encoding.json: is not the JSON of an encoding"),
    ("words", "encoding.json", (), None, "encoding.json: does not fit export.json"),
    ("words", "export.json", ("classes",), True, '"classes" is not a whole number'),
    ("words", "export.json", ("classes",), 2, "has 3 labels for 2 classes"),
    ("words", "export.json", ("input", "name"), ["text"], '"name" is not a string'),
    ("words", "export.json", ("input", "name"), "x", "saved_model: takes text, but export.json says x"),
    ("words", "export.json", ("input", "kind"), ["words"], '"kind" is not a string'),
    ("words", "export.json", ("input", "kind"), "vectors", '"width"'),
    ("words", "export.json", ("forms",), 3, '"forms" is not an object'),
    ("words", "export.json", ("details",), [1], '"details" is not an object'),
    ("words", "export.json", ("details", "dataset"), 3, '"dataset" is not a string'),
    ("words", "export.json", ("format_version",), True, "has another version"),
    ("words", "export.json", ("format_version",), [1], "has another version"),
    ("words", "encoding.json", ("max_length",), 9, 'does not fit export.json: "max_length" differs'),
    ("words", "labels.json", (), [LABELS[0], *LABELS[:2]], "labels.json: has a label twice"),
    ("words", "labels.json", (), [*LABELS[:2], ""], "labels.json: is not a list of labels"),
    ("vectors", "export.json", ("input", "width"), "2", '"width" is not a whole number'),
    ("vectors", "export.json", ("input", "width"), 3, "the vectors have shape (1, 2), but the model takes [n, 3]"),
    (RELATIONS, "export.json", ("input", "markers"), None, '"markers" is not a list'),
    (
        RELATIONS,
        "export.json",
        ("input", "markers"),
        list(MARKERS[:3]),
        "list of 4 different strings",
    ),
    (RELATIONS, "export.json", ("input", "blind"), "no", '"input.blind" is not true or false'),
    (RELATIONS, "export.json", ("input", "blind"), False, "takes head, head_type, tail"),
    ("bags", "export.json", ("arrays",), DELETED, 'has no "arrays"'),
    ("bags", "export.json", ("arrays",), ["bag", "bag"], '"arrays" is not a list of different strings'),
    ("bags", "export.json", ("details", "reading"), {"path": "/etc/passwd"}, '"details.reading" must have only '),
    ("bags", "encoding.json", ("markers",), 4, '"markers" is not a list of strings'),
    ("bags", "encoding.json", ("blind",), "x", '"blind" is not true or false'),
    ("bags", "encoding.json", ("tokenizer", "model", "vocab", "</e1>"), 1, "is not the JSON of a tokenizer"),
    ("bags", "encoding.json", ("tokenizer", "model", "vocab", "[UNK]"), DELETED, "is not the JSON of a tokenizer"),
    (ENTITIES, "export.json", ("input", "scheme"), "IOB", '"input.scheme" is not one of BIO, BIOES'),
    (ENTITIES, "export.json", ("input", "scheme"), "BIOES", "labels.json: is not a list of the tags of BIOES"),
    (ENTITIES, "export.json", ("input", "scheme"), DELETED, 'has no "scheme"'),
    (ENTITIES, "export.json", ("details", "reading"), {"path": "/etc"}, '"details.reading" must have only nested'),
    (ENTITIES, "export.json", ("details", "reading"), {"unit": 3}, '"unit" is not a string'),
    (ENTITIES, "export.json", ("details", "reading"), {"entity_types": ["a", "a"]}, "list of different strings"),
    (ENTITIES, "labels.json", (2,), "I-other", "labels.json: is not a list of the tags of BIO: O, B-<type>"),
    (ENTITIES, "encoding.json", ("scheme",), "BIOES", "encoding.json: does not fit export.json"),
    (ENTITIES, "encoding.json", ("encoding",), "tagged pieces", 'encoding.json: has no "max_length"'),
    (ENTITIES, "encoding.json", ("entity_types",), "symptom", '"entity_types" is not a list of strings'),
    (ENTITIES, "encoding.json", ("text", "encoding"), "words", "has no list of strings"),
    (ENTITIES, "encoding.json", ("text", "max_length"), 5, "encoding.json: does not fit export.json"),
    ("documents", "encoding.json", (), {}, "is not the JSON of an encoding of documents"),
    ("documents", "encoding.json", ("marker",), DELETED, 'has no "marker"'),
    ("documents", "encoding.json", ("tokenizer",), 3, "is not the JSON of a tokenizer"),
)


@pytest.mark.parametrize(("kind", "name", "path", "new", "message"), EDITS, ids=str)
def test_an_edit_is_named(kind, name, path, new, message, tmp_path, monkeypatch):
    folder = prepare(kind, tmp_path / "export")
    (folder / name).write_text(changed(text_of(kind, name), path, new), "utf-8")
    with pytest.raises(PredictionError) as caught:
        use(kind, folder, monkeypatch)
    assert message in str(caught.value) and "; " in str(caught.value)


def test_a_threshold_of_infinity_which_json_has_not():
    predictor = DocumentPredictor(None, ["CID"], None, {"input": {"kind": "documents"}, "details": {"threshold": None}})
    assert predictor.threshold == math.inf
