import json

import pytest
from datasets_for_tests import SECRET, refused, write_gz, write_json

from datasets.dialogues import dxy, mie
from datasets.dialogues.loading import load_corpus


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


@pytest.mark.parametrize(
    "value, expected",
    [
        ([], "{p}: has no dialogues; give it at least one dialogue"),
        ([[]], "{p}: dialogue mie-dev-000: has no windows; remove it or give it at least one window"),
        ([[{"utterances": [SECRET], "label": []}]], "{p}: window mie-dev-000/1: has 1 utterances; a window has 5"),
        ([[window()]], "{p}: window mie-dev-000/1: all its utterances are empty; remove it or give it an utterance"),
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
    assert refused(mie.read_windows, path).startswith(expected.format(p=path))


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
    assert corpus.notes == ("1 consultations occur more than once in the file",)


def test_a_disease_that_training_never_saw(tmp_path):
    read = dxy.read_consultations(lines(tmp_path / "a.jsonl", consultation("5"), consultation("6", "小儿腹泻")))
    assert refused(dxy.self_reports, read, ("肺炎",), path="dev.jsonl") == (
        "dev.jsonl: consultation 6: its disease is not one of the training split's classes; "
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
        ([consultation(), consultation()], "{p}: line 2: consultation 1: is the same record as line 1; remove one"),
        ([consultation(report=[SECRET])], '{p}: line 1: consultation 1: "self_repo" is not a string; make it a string'),
    ],
)
def test_malformed_consultations(tmp_path, values, expected):
    path = lines(tmp_path / "a.jsonl", *values)
    assert refused(dxy.read_consultations, path).startswith(expected.format(p=path))


RELEASED = [
    consultation("5", report="\\d 'x'"),
    consultation("6", "小儿腹泻", goal={"咳嗽": True}, dialog=[["患者", None]]),
]


def released(path, **splits):
    path.write_text("".join(f"{split} {records!r}\n" for split, records in splits.items()), encoding="utf-8")
    return path


def test_the_released_text_has_both_splits(tmp_path):
    path = released(tmp_path / "v2.txt", test=RELEASED[1:], train=RELEASED)
    assert [c.consult_id for c in dxy.read_consultations(path)] == ["5", "6"]
    assert [(c.consult_id, c.disease) for c in dxy.read_consultations(path, split="test")] == [("6", "小儿腹泻")]
    assert load_corpus("dxy", path=path, split="test").samples[0].sample_id == "6/1"
    packed = write_gz(tmp_path / "v2.txt.gz", path.read_bytes())
    assert dxy.read_consultations(packed) == dxy.read_consultations(path)
    (tmp_path / "dxy").mkdir()
    for split in ("train", "test"):
        (tmp_path / "dxy" / f"{split}.jsonl").write_bytes(path.read_bytes())
    loaded = load_corpus("dxy", tmp_path, split="test")
    assert loaded.label_names == ("小儿腹泻", "肺炎") and len(loaded.samples) == 1, "the classes of the training split"


NO_LIST = "{p}: line 1: its records are not a list as Python writes it; copy or download"


@pytest.mark.parametrize(
    "content, expected",
    [
        ("test []\n", "{p}: has no split train; use one of test, or another file"),
        ("train []\n", "{p}: has no consultations"),
        (f"train [{{'a': '{SECRET}'\n", NO_LIST),
        (f"train [open('{SECRET}')]\n", NO_LIST),
        (f"train [{RELEASED[0]!r}] * 2\n", NO_LIST),
        (f"test []\n{SECRET}\n", "{p}: line 2: is not a split's name and its records; copy or download it again"),
        (f"train ['{SECRET}']\n", "{p}: line 1: record number 1: it is not an object; make it an object"),
        (f"train {[RELEASED[0]] * 2!r}\n", "{p}: line 1: consultation 5: is the same record as record number 1"),
    ],
)
def test_malformed_released_text(tmp_path, content, expected):
    path = tmp_path / "v2.txt"
    path.write_text(content, encoding="utf-8")
    assert refused(dxy.read_consultations, path).startswith(expected.format(p=path))
