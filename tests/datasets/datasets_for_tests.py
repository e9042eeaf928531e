"""Small data sets that the tests write."""

import gzip
import json

import pytest

from datasets.dialogues.records import LabelledText, TextCorpus
from datasets.errors import DataError

SECRET = "宝宝昨晚高烧不退"


def sentence(number=1, text=SECRET, norm=("发热",), types=("1",), **more):
    return {
        "sentence_id": str(number),
        "speaker": "患者",
        "sentence": text,
        "symptom_norm": list(norm),
        "symptom_type": list(types),
        **more,
    }


def dialogue(*sentences, **more):
    return {"dialogue": list(sentences) or [sentence()], **more}


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return path


def write_gz(path, data: bytes):
    path.write_bytes(gzip.compress(data))
    return path


def message(error: DataError) -> str:
    """The error's one line; asserts that neither it nor its causes contain a patient's text."""
    text = str(error)
    assert "\n" not in text
    link = error
    while link is not None:
        assert SECRET not in str(link) and SECRET not in repr(vars(link)), "a patient's text in an error"
        link = link.__cause__ or link.__context__
    return text


def refused(read, *arguments, **options):
    """The message of the error that is raised."""
    with pytest.raises(DataError) as caught:
        read(*arguments, **options)
    return message(caught.value)


def corpus(labels, documents=None, fields=None, names=("a", "b", "c"), name="toy", prefix="s"):
    documents = documents or [f"d{i}" for i in range(len(labels))]
    return TextCorpus(
        name,
        tuple(
            LabelledText(f"{prefix}{i}", documents[i], f"text {i}", label, fields[i] if fields else {})
            for i, label in enumerate(labels)
        ),
        names,
    )
