import json

import pytest
from datasets_for_tests import SECRET, dialogue, message, sentence, write_gz, write_json

from datasets.dialogues.imcs_v2 import DIALOGUE_ACTS, labelled_sentences, read_dialogues, read_symptom_vocabulary
from datasets.errors import DataError


def refused(path, value) -> str:
    with pytest.raises(DataError) as caught:
        read_dialogues(write_json(path, value))
    return message(caught.value)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "train.json"


def test_reading(path):
    value = {
        "10001003": dialogue(
            sentence(1, dialogue_act="Inform-Symptom", BIO_label="O"),
            sentence(2, "吃药了吗", (), (), speaker="医生"),
            sentence(3, "不咳嗽", ("咳嗽",), (0,)),
            diagnosis="小儿支气管炎",
            self_report=SECRET,
            report=[{}],
        )
    }
    for file in (write_json(path, value), write_gz(path.with_suffix(".gz"), json.dumps(value).encode())):
        (read,) = read_dialogues(file)
        assert (read.example_id, read.diagnosis, read.self_report) == ("10001003", "小儿支气管炎", SECRET)
        assert [u.sentence_id for u in read.utterances] == ["1", "2", "3"]
        assert [u.dialogue_act for u in read.utterances] == ["Inform-Symptom", None, None]
        assert [u.symptom_type for u in read.utterances] == [("1",), (), ("0",)]
        assert SECRET not in repr(read) and SECRET not in repr(read.utterances[0])


NO_SENTENCES = "has no sentences; remove it or give it at least one sentence"


@pytest.mark.parametrize(
    "value, expected",
    [
        ([], "the file is not an object; map example_id to dialogue"),
        ({}, "has no dialogues; give it at least one dialogue"),
        ({"7": []}, "dialogue 7: it is not an object; make it an object"),
        ({"7": {"self_report": SECRET}}, 'dialogue 7: has no "dialogue"; add the key "dialogue"'),
        ({SECRET: {"dialogue": []}}, f"dialogue number 1: {NO_SENTENCES}"),
        ({"7": dialogue(SECRET)}, "dialogue 7, sentence number 1: it is not an object; make it an object"),
        ({"7": dialogue(diagnosis=4)}, 'dialogue 7: "diagnosis" is not a string; make it a string'),
    ],
)
def test_malformed_dialogues(path, value, expected):
    assert refused(path, value) == f"{path}: {expected}"


UNKNOWN_TYPE = "unknown symptom type; use 0 (absent), 1 (present) or 2 (unclear)"
UNKNOWN_ACT = "its dialogue act is not one of the 16 IMCS intents; use the names of the release"
NO_ID = '"sentence_id" is not an id; make it a string that is not empty'


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"symptom_type": ["3"]}, UNKNOWN_TYPE),
        ({"symptom_type": [True]}, UNKNOWN_TYPE),
        ({"symptom_type": []}, "has 1 symptom names but 0 symptom types; give every symptom one type"),
        ({"symptom_norm": ""}, '"symptom_norm" is not a list; make it a list'),
        ({"symptom_norm": [None]}, "a symptom name is not a string; make it a string"),
        ({"speaker": SECRET}, "unknown speaker; use 患者 or 医生"),
        ({"dialogue_act": SECRET}, UNKNOWN_ACT),
        ({"sentence": 5}, '"sentence" is not a string; make it a string'),
        ({"sentence_id": None}, NO_ID),
        *(({key: ...}, f'has no "{key}"; add the key "{key}"') for key in sentence()),
    ],
)
def test_malformed_sentences(path, changes, expected):
    broken = {key: value for key, value in {**sentence(), **changes}.items() if value is not ...}
    assert refused(path, {"7": dialogue(broken)}) == f"{path}: dialogue 7, sentence number 1: {expected}"


def test_duplicates(path):
    text = refused(path, {"7": dialogue(sentence(1), sentence(1))})
    assert text == (
        f"{path}: dialogue 7: sentence number 2 repeats the id of another; give every sentence an id of its own"
    )


def labelled(path, label, *sentences, **more):
    return labelled_sentences(read_dialogues(write_json(path, {"7": dialogue(*sentences, **more)})), label)


def test_symptom_presence(path):
    corpus = labelled(
        path, "symptom_presence", sentence(1), sentence(2, " ", (), ()), sentence(3, types=("0",)), diagnosis="肺炎"
    )
    assert [(s.sample_id, s.label) for s in corpus.samples] == [("7/1", 1), ("7/2", 0), ("7/3", 1)]
    assert corpus.label_names == ("no_symptom", "symptom")
    assert corpus.samples[0].fields == {"diagnosis": "肺炎", "speaker": "患者"}
    assert corpus.notes == ("1 sentences hold no text",)
    assert SECRET not in repr(corpus) and SECRET not in repr(corpus.samples[0])


def test_symptom_type_counts_what_it_leaves_out(path):
    corpus = labelled(
        path,
        "symptom_type",
        sentence(1, types=("0",)),
        sentence(2, norm=("咳嗽", "发热"), types=("2", 2)),
        sentence(3, norm=("咳嗽", "发热"), types=("1", "0")),
        sentence(4, norm=(), types=()),
        sentence(5, norm=(), types=()),
    )
    assert [(s.sample_id, s.label) for s in corpus.samples] == [("7/1", 0), ("7/2", 2)]
    assert corpus.label_names == ("absent", "present", "unclear")
    assert corpus.notes == (
        "2 sentences without a symptom left out",
        "1 sentences with symptoms of several types left out",
    )
    with pytest.raises(DataError, match="has no sentences with the label symptom_type"):
        labelled(path, "symptom_type", sentence(4, norm=(), types=()))


def test_dialogue_act(path):
    corpus = labelled(path, "dialogue_act", sentence(dialogue_act="Other"))
    assert corpus.samples[0].label == 15 and corpus.label_names == DIALOGUE_ACTS and len(DIALOGUE_ACTS) == 16
    with pytest.raises(DataError) as caught:
        labelled(path, "dialogue_act", sentence(dialogue_act=""))
    assert message(caught.value).startswith("sentence 7/1: has no dialogue act; choose the label symptom_presence")


def test_symptom_vocabulary(tmp_path):
    path = tmp_path / "symptom_norm.csv"
    path.write_bytes("\ufeffnorm\r\n咳嗽\r\n发热\r\n咳嗽\r\n".encode())
    assert read_symptom_vocabulary(path) == ("咳嗽", "发热")
    for content, expected in (
        ("咳嗽\n", 'line 1: the header is not "norm"'),
        ("norm\n咳嗽\n\n发热\n", "line 3: is not one symptom name"),
        ("norm\n咳 嗽\n", "line 2: is not one symptom name"),
    ):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(DataError) as caught:
            read_symptom_vocabulary(path)
        assert expected in message(caught.value)


def test_the_test_file_without_labels(tmp_path):
    plain = {key: value for key, value in sentence().items() if key in ("sentence_id", "speaker", "sentence")}
    path = tmp_path / "IMCS-V2_test.json"
    text = refused(path, {str(n): {"self-report": SECRET, "dialogue": [plain]} for n in range(2)})
    assert text == (
        f"{path}: has sentences without labels, as the test file that is given out; "
        "use the train or dev file; predict takes its sentences as lines of text"
    )
    # The whole test file has labels and is read; where some lack them the sentence is named.
    text = refused(path, {"1": dialogue(), "2": {"dialogue": [plain]}})
    assert text.startswith(f'{path}: dialogue 2, sentence number 1: has no "symptom_norm"')
