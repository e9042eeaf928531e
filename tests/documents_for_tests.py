"""Tiny runs on whole documents: files in PubTator's form, an encoder with random weights, runs trained once."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from types import SimpleNamespace

from tests.bags_for_tests import HIDDEN, train_table
from tests.built_once import temporary_folder
from tests.models.encoders_for_tests import PIECES, copy_encoder

DISEASES = ("D000001", "D000002", "D000003")
"""Of these the first shares a sentence with the drug."""

MEASURES = ("f1", "precision", "recall", "f1_intra", "f1_inter")


# Files


def pubtator_block(number: int) -> list[str]:
    """A document's lines: a drug, a disease in its sentences, up to two others in sentences of their own.

    The number determines the sentences and the facts: every second document states the first disease, every third the
    second.
    """
    title = f"{HIDDEN} drug binds gene."
    abstract = " ".join(
        [*["The drug inhibits the gene."] * (number % 3), "The rash.", *["The pain."] * (number % 4 == 0)]
    )
    text = f"{title} {abstract}"
    lines = [f"{number}|t|{title}", f"{number}|a|{abstract}"]
    for name, kind, identifier in (
        ("drug", "Chemical", f"C{number}"),
        *zip(("gene", "rash", "pain"), ["Disease"] * 3, DISEASES, strict=True),
    ):
        start = -1
        while (start := text.find(name, start + 1)) >= 0:
            lines.append(f"{number}\t{start}\t{start + len(name)}\t{name}\t{kind}\t{identifier}")
    return lines + [f"{number}\tCID\tC{number}\t{disease}" for disease in stated(number)]


def stated(number: int) -> list[str]:
    """The diseases that the document says are induced."""
    return [disease for every, disease in zip((2, 3), DISEASES, strict=False) if number % every == 1]


def write_documents(path: Path, numbers) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    blocks = ["\n".join(pubtator_block(number)) for number in numbers]
    path.write_text("\n\n".join(blocks) + "\n", "utf-8")
    return path


def biored_block(number: int) -> list[str]:
    """A document's lines in BioRED's form, of a drug, a gene and a rash; the number gives sentences and facts."""
    title, more = f"{HIDDEN} drug binds gene.", "The gene inhibits the gene. " * (number % 3)
    text = f"{title} {more}The rash."
    lines = [f"{number}|t|{title}", f"{number}|a|{text[len(title) + 1 :]}"]
    for name, (kind, identifier) in BIORED_ENTITIES.items():
        start = -1
        while (start := text.find(name, start + 1)) >= 0:
            lines.append(f"{number}\t{start}\t{start + len(name)}\t{name}\t{kind}\t{identifier}")
    for every, relation, head, tail in (
        (2, "Association", "7", "C1"),
        (3, "Bind", "C1", "7"),
        (4, "Comparison", "D1", "7"),
    ):
        if number % every == 1:
            lines.append(f"{number}\t{relation}\t{head}\t{tail}\tNovel")
    return lines


BIORED_ENTITIES = {
    "drug": ("ChemicalEntity", "C1"),
    "gene": ("GeneOrGeneProduct", "7"),
    "rash": ("DiseaseOrPhenotypicFeature", "D1"),
}


def docred_value(number: int) -> dict:
    """A document in DocRED's form: one of two drugs, a gene, a rash in a sentence of its own."""
    drug = ("drug", "pain")[number % 5 == 0]
    tokens = [
        [HIDDEN, drug, "binds", "gene", "."],
        *[["The", "gene", "binds", "."]] * (number % 3),
        ["The", "rash", "."],
    ]
    places = [
        [(0, 1, drug)],
        [(s, 3 if s == 0 else 1, "gene") for s in range(1 + number % 3)],
        [(len(tokens) - 1, 1, "rash")],
    ]
    entities = [
        [{"name": name, "sent_id": s, "pos": [token, token + 1], "type": kind} for s, token, name in mentions]
        for mentions, kind in zip(places, ("DRUG", "GENE", "ILL"), strict=True)
    ]
    stated = ((2, 0, "P1", 1), (3, 1, "P1", 0), (4, 0, "P20", 2))
    labels = [{"h": h, "t": t, "r": r, "evidence": []} for every, h, r, t in stated if number % every == 1]
    return {"title": f"{number}", "sents": tokens, "vertexSet": entities, "labels": labels}


def write_biored(path: Path, numbers) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join("\n".join(biored_block(number)) for number in numbers) + "\n", "utf-8")
    return path


def write_docred(path: Path, numbers) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([docred_value(number) for number in numbers]), "utf-8")
    return path


@functools.cache
def data_folder() -> Path:
    """Twelve documents for training and ten for dev, from which those to be tested on come; written once a session."""
    folder = temporary_folder("documents") / "data" / "cdr"
    write_documents(folder / "train.pubtator", range(12))
    write_documents(folder / "dev.pubtator", range(100, 110))
    return folder.parent


@functools.cache
def marking_encoder(layers: int = 1) -> Path:
    """The tiny BERT with the marker of mentions in its vocabulary, which replaces an unused letter."""
    from transformers import BertTokenizerFast

    folder = copy_encoder(temporary_folder("documents") / f"encoder-{layers}", layers=layers)
    (folder / "vocab.txt").write_text("\n".join("*" if p == "##q" else p for p in PIECES) + "\n", "utf-8")
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


# Recipes


def document_table(**sections) -> dict:
    """Tables of a recipe on the tiny documents; `task`, `model` and `algorithm` add to theirs, others replace."""
    train, test = (str(data_folder() / "cdr" / f"{name}.pubtator") for name in ("train", "dev"))
    task = {"dataset": "cdr", "path": train, "test_path": test, "tokenizer": str(marking_encoder())}
    task = {"name": "document_relations", **task, **sections.pop("task", {})}
    model = {"name": "document_encoder", "block_size": 8, "encoder_dropout": 0.1, **sections.pop("model", {})}
    algorithm = {"name": "fedlcc", "learning_rate": 0.01, "batch_size": 3, **sections.pop("algorithm", {})}
    return {
        "name": "tiny-documents",
        "task": {key: value for key, value in task.items() if value is not None},
        "partition": {"name": "structural_entropy", "num_clients": 3},
        "model": model,
        "algorithm": algorithm,
        "training": {"rounds": 3, "client_fraction": 0.67, "checkpoint_every": 2},
        "evaluation": {"train_split": False},
        **sections,
    }


# Runs


@functools.cache
def trained(runtime) -> SimpleNamespace:
    """A run of FedLCC, trained once in a session: folder, experiment, result, table."""
    folder, table = temporary_folder("documents") / "run", document_table()
    experiment, result = train_table(table, folder, runtime)
    return SimpleNamespace(folder=folder, experiment=experiment, result=result, table=table)
