"""A data folder with a few made-up samples of every data set that a shipped recipe reads, in the published forms."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from tests.built_once import temporary_folder
from tests.documents_for_tests import write_biored, write_docred, write_documents

CHEMPROT = ("ACTIVATOR", "INHIBITOR", "AGONIST", "ANTAGONIST", "SUBSTRATE")
I2B2 = ("TrIP", "TrWP", "TrCP", "TrAP", "TrNAP", "PIP", "TeRP", "TeCP")
"""Every relation of the task; the first letters tell the types of its two concepts."""

_TYPES = {"Tr": "treatment", "Te": "test", "P": "problem"}


def _lines(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def _json(path: Path, value) -> None:
    _lines(path, json.dumps(value, ensure_ascii=False))


def _chemprot(data: Path) -> None:
    for first, split in enumerate(("train", "dev", "test")):
        values = []
        for number in range(20):
            label = (number + first) % len(CHEMPROT)
            text = f"<< drug >> {'abcde'[label]} inhibits {'the ' * (number % 4)}[[ gene ]] . {number + 100 * first}"
            values.append(json.dumps({"text": text, "label": CHEMPROT[label], "metadata": []}))
        _lines(data / "chemprot" / f"{split}.jsonl", *values)


def _ade(data: Path) -> None:
    pairs, without = [], []
    for number in range(40):
        # Two pairs in a sentence make two negatives.
        sentence = f"The fever{number} of drug{number} and the rash{number} of gene{number} binds."
        for effect, drug in ((f"fever{number}", f"drug{number}"), (f"rash{number}", f"gene{number}")):
            offsets = [
                str(offset)
                for word in (effect, drug)
                for offset in (sentence.index(word), sentence.index(word) + len(word))
            ]
            pairs.append("|".join([str(number), sentence, effect, *offsets[:2], drug, *offsets[2:]]))
        without.append(f"{1000 + number} NEG The drug{number} binds fever{number} .")
    _lines(data / "ade" / "DRUG-AE.rel", *pairs)
    _lines(data / "ade" / "ADE-NEG.txt", *without)


def _biobert(data: Path, name: str) -> None:
    def sentence(number: int) -> str:
        return f"@GENE$ {'binds' if number % 2 else 'inhibits'} {'the ' * (number % 3)}@DISEASE$ {number} ."

    folder = data / name / "1"
    _lines(folder / "train.tsv", *(f"{sentence(number)}\t{number % 2}" for number in range(40)))
    test = (f"{number}\t{sentence(100 + number)}\t{number % 2}" for number in range(10))
    _lines(folder / "test.tsv", "index\tsentence\tlabel", *test)


def _i2b2(data: Path) -> None:
    for split, first in (("train", 0), ("test", 50)):
        folder = data / "i2b2_2010" / split
        for number in range(first, first + 5):
            texts, concepts, relations = [], [], []
            for line, relation in enumerate(I2B2, 1):
                texts.append(f"The drug {relation.lower()} {'the ' * (number % 3)}gene .")
                last = len(texts[-1].split()) - 2
                head_kind = _TYPES["P" if relation == "PIP" else relation[:2]]
                concept_texts = [f'c="drug" {line}:1 {line}:1', f'c="gene" {line}:{last} {line}:{last}']
                concepts += [f'{concept_texts[0]}||t="{head_kind}"', f'{concept_texts[1]}||t="problem"']
                relations.append(f'{concept_texts[0]}||r="{relation}"||{concept_texts[1]}')
            _lines(folder / "txt" / f"record-{number}.txt", *texts)
            _lines(folder / "concept" / f"record-{number}.con", *concepts)
            _lines(folder / "rel" / f"record-{number}.rel", *relations)


def _mie(data: Path) -> None:
    for split in ("train", "dev"):
        dialogues, windows = {}, []
        for d in range(24):
            sentences, window = [], [""] * 5
            for number in range(6):
                ill = number % 2
                text = f"第{number}天{'头晕' if ill else '好了'}{'也' * (d % 3)}"
                sentence = {"sentence_id": str(number), "speaker": "患者", "sentence": text}
                sentences.append({**sentence, "symptom_norm": ["头晕"] * ill, "symptom_type": ["1"] * ill})
                window = [*window[1:], f"患者:{text}"]
                label = ["症状:头晕-状态:阳性"] if ill else []
                windows += [[]] * (number == 0)
                windows[-1] = [*windows[-1], {"utterances": window, "label": label}]
            dialogues[f"mie-{split}-{d:03}"] = {"diagnosis": "", "dialogue": sentences}
        _json(data / "mie" / f"{split}.imcs_v2.json", dialogues)
        _json(data / "mie" / f"{split}.windows.json", windows)
    _lines(data / "mie" / "symptom_norm.csv", "norm", "头晕")


def _imcs(data: Path) -> None:
    """Tags of symptoms and drugs, a character each; the word before it tells which of the two it is."""
    dialogues = {}
    for d in range(12):
        sentences = []
        for number in range(5):
            parts = [
                *(("第", None), (str(number), None), ("天", None), ("有", None), (("头晕", "咳嗽")[d % 2], "Symptom")),
                *((("吃", None), (("布洛芬", "感冒灵")[number % 2], "Drug")) if number % 3 else (("没吃药", None),)),
            ]
            tags = [f"{'I' if i else 'B'}-{kind}" if kind else "O" for text, kind in parts for i in range(len(text))]
            sentence = {"sentence_id": str(number), "speaker": "患者", "sentence": "".join(text for text, _ in parts)}
            sentence |= {"symptom_norm": ["头晕"], "symptom_type": ["1"]}
            sentences.append({**sentence, "BIO_label": " ".join(tags)})
        dialogues[f"{10_000 + d}"] = {"diagnosis": ("小儿感冒", "小儿发热")[d % 2], "dialogue": sentences}
    _json(data / "imcs_v2" / "IMCS-V2_dev.json", dialogues)


def _dxy(data: Path) -> None:
    for split in ("train", "dev"):
        values = []
        for number in range(40):
            disease, report = (("肺炎", "咳嗽发烧"), ("小儿腹泻", "拉肚子"))[number % 2]
            value = {
                "consult_id": str(number),
                "disease_tag": disease,
                "self_repo": f"宝宝{report}{number}天",
                "dialog": [],
            }
            values.append(json.dumps({**value, "goal": {}}, ensure_ascii=False))
        _lines(data / "dxy" / f"{split}.jsonl", *values)


def _cdr(data: Path) -> None:
    for first, split in ((0, "train"), (100, "dev"), (200, "test")):
        write_documents(data / "cdr" / f"{split}.pubtator", range(first, first + 12))


def _documents(data: Path) -> None:
    for split, first in (("train", 0), ("dev", 100)):
        write_biored(data / "biored" / f"{split}.pubtator", range(first, first + 12))
        write_docred(data / "re_docred" / f"{split}_revised.json", range(first, first + 12))


@functools.cache
def data_folder() -> Path:
    """Written once in a session."""
    data = temporary_folder("recipes")
    for write in (_chemprot, _ade, _i2b2, _imcs, _mie, _dxy, _cdr, _documents):
        write(data)
    for name in ("gad", "euadr"):
        _biobert(data, name)
    return data
