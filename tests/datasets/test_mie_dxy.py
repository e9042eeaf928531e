import json

import pytest
from datasets_for_tests import SECRET, message, write_gz, write_json

from datasets import dxy, mie
from datasets.errors import DataError


def window(*utterances, label=()):
    padded = [""] * (5 - len(utterances)) + list(utterances)
    return {"utterances": padded, "label": list(label)}


def test_windows(tmp_path):
    value = [
        [
            window("患者:头晕", label=["症状:头晕-状态:阳性"]),
            window("患者:头晕", "医生:做心电图了吗", label=["症状:头晕-状态:阳性", "检查:心电图-状态:未知"]),
        ],
        [window("患者:你好")],
    ]
    path = write_gz(tmp_path / "dev.windows.json.gz", json.dumps(value).encode())
    windows = mie.read_windows(path)
    assert windows[1].facts == (("症状", "头晕", "阳性"), ("检查", "心电图", "未知"))
    assert "头晕" not in repr(windows[0])
    corpus = mie.labelled_windows(windows, "test_mentioned")
    assert [(s.sample_id, s.document_id, s.text, s.label) for s in corpus.samples] == [
        ("mie-dev-000/1", "mie-dev-000", "患者:头晕", 0),
        ("mie-dev-000/2", "mie-dev-000", "患者:头晕\n医生:做心电图了吗", 1),
        ("mie-dev-001/1", "mie-dev-001", "患者:你好", 0),
    ]
    for label, expected in zip(mie.LABELS, ([1, 1, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0]), strict=True):
        assert [s.label for s in mie.labelled_windows(windows, label).samples] == expected
    with pytest.raises(DataError, match="unknown label choice"):
        mie.labelled_windows(windows, "mood")


@pytest.mark.parametrize(
    "value, expected",
    [
        ({}, "{p}: the file is not a list; make it a list"),
        ([], "{p}: has no dialogues; give it at least one dialogue"),
        ([[]], "{p}: dialogue mie-dev-000: has no windows; remove it or give it at least one window"),
        ([[{"utterances": [SECRET], "label": []}]], "{p}: window mie-dev-000/1: has 1 utterances; a window has 5"),
        ([[window()]], "{p}: window mie-dev-000/1: all its utterances are empty; remove it or give it an utterance"),
        ([[window(3)]], "{p}: window mie-dev-000/1: an utterance is not a string; make it a string"),
        ([[{"utterances": [""] * 5}]], "{p}: window mie-dev-000/1: all its utterances are empty; remove it or give it"),
        ([[{"utterances": [SECRET] * 5}]], '{p}: window mie-dev-000/1: has no "label"; add the key "label"'),
        (
            [[window(SECRET)], [window(SECRET, label=["症状:头晕-状态:阳性", f"症状:{SECRET}"])]],
            "{p}: window mie-dev-001/1: label number 2 is not of the form 类:项-状态:值; use the categories",
        ),
        ([[window(SECRET, label=["症状:头晕-状态:也许"])]], "{p}: window mie-dev-000/1: label number 1 is not of the"),
        ([[window(SECRET, label=[None])]], "{p}: window mie-dev-000/1: label number 1 is not a string; make it a"),
    ],
)
def test_malformed_windows(tmp_path, value, expected):
    path = write_json(tmp_path / "w.json", value)
    with pytest.raises(DataError) as caught:
        mie.read_windows(path)
    assert message(caught.value).startswith(expected.format(p=path))


def consultation(consult_id="1", disease="肺炎", report=SECRET, **more):
    return {"consult_id": consult_id, "disease_tag": disease, "self_repo": report, **more}


def lines(path, *values):
    path.write_text("".join(json.dumps(v, ensure_ascii=False) + "\n" for v in values), encoding="utf-8")
    return path


def test_consultations(tmp_path):
    path = lines(
        tmp_path / "a.jsonl",
        consultation("5", report=SECRET + "\n"),
        consultation(6, "小儿腹泻"),
        consultation("5", "小儿腹泻"),
    )
    read = dxy.read_consultations(path)
    assert SECRET not in repr(read)
    corpus = dxy.self_reports(read)
    assert corpus.label_names == ("小儿腹泻", "肺炎")
    assert [(s.sample_id, s.document_id, s.label) for s in corpus.samples] == [
        ("5/1", "5", 1),
        ("6/1", "6", 0),
        ("5/2", "5", 0),
    ]
    assert corpus.samples[0].text == SECRET and corpus.samples[1].fields == {"disease": "小儿腹泻"}
    assert corpus.notes == ("1 consultations stand in the file more than once",)


def test_a_disease_that_training_never_saw(tmp_path):
    read = dxy.read_consultations(lines(tmp_path / "a.jsonl", consultation("5"), consultation("6", "小儿腹泻")))
    with pytest.raises(DataError) as caught:
        dxy.self_reports(read, ("肺炎",), path="dev.jsonl")
    assert message(caught.value) == (
        "dev.jsonl: consultation 6: its disease is none of the training split's classes; "
        "train on data with this disease, or remove the consultation"
    )


@pytest.mark.parametrize(
    "values, expected",
    [
        ([], "{p}: has no consultations; give it at least one line"),
        ([[SECRET]], "{p}: line 1: it is not an object; make it an object"),
        ([consultation(), consultation("2", report=" ")], '{p}: line 2: consultation 2: "self_repo" is empty; remove'),
        ([consultation(disease="")], '{p}: line 1: consultation 1: "disease_tag" is empty; give it a disease'),
        ([{"consult_id": "1"}], '{p}: line 1: consultation 1: has no "disease_tag"; add the key "disease_tag"'),
        ([{"self_repo": SECRET}], '{p}: line 1: has no "consult_id"; add the key "consult_id"'),
        ([consultation(), consultation()], "{p}: line 2: consultation 1: is the same record as line 1; remove one"),
        ([consultation(report=[SECRET])], '{p}: line 1: consultation 1: "self_repo" is not a string; make it a string'),
    ],
)
def test_malformed_consultations(tmp_path, values, expected):
    path = lines(tmp_path / "a.jsonl", *values)
    with pytest.raises(DataError) as caught:
        dxy.read_consultations(path)
    assert message(caught.value).startswith(expected.format(p=path))
