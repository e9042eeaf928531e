"""The graph of facts: nodes are ids, unlinked ones keyed numbers unless the text may be shown."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ElementTree

import pytest

import tff_re
from tests.extraction.stubs import Recogniser, Sentences, json_lines, write

NAMESPACE = "{http://graphml.graphdrawing.org/xmlns}"
TEXTS = ("Aspirin inhibits EGFR. ASA inhibits EGFR.", "Aspirin inhibits EGFR. Aspirin binds COX-2.")


def read_graphml(path):
    """(nodes, edges) of a file: attributes by name."""
    root = ElementTree.parse(path).getroot()
    names = {key.get("id"): key.get("attr.name") for key in root.iter(f"{NAMESPACE}key")}
    values = {
        tag: [
            dict(element.items()) | {names[data.get("key")]: data.text for data in element}
            for element in root.iter(f"{NAMESPACE}{tag}")
        ]
        for tag in ("node", "edge")
    }
    return values["node"], values["edge"]


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def files(tmp_path):
    return {
        "file": json_lines(tmp_path / "notes.jsonl", *TEXTS),
        "out": tmp_path / "facts.jsonl",
        "terminology": write(tmp_path / "names.tsv", "Aspirin\tD1\nASA\tD1\nEGFR\tG<1>\n"),
    }


def test_graphml_and_csv_without_text(files, tmp_path):
    result = tff_re.extract(Recogniser(), Sentences(), **files, graph=tmp_path / "graph")
    assert [path.name for path in result.files] == ["facts.jsonl", "graph.graphml", "nodes.csv", "edges.csv"]
    nodes, edges = read_graphml(tmp_path / "graph" / "graph.graphml")
    assert [(node["label"], node["type"], node["linked"]) for node in nodes[:2]] == [
        ("D1", "Drug", "yes"),
        ("G<1>", "Gene", "yes"),
    ]
    assert nodes[2]["label"].startswith("unlinked:") and nodes[2]["linked"] == "no"
    assert all("name" not in node for node in nodes)
    assert [(e["source"], e["relation"], e["target"], e["facts"], e["documents"]) for e in edges] == [
        ("n0", "inhibits", "n1", "3", "2"),
        ("n0", "binds", "n2", "1", "1"),
    ]
    assert [row["id"] for row in rows(tmp_path / "graph" / "nodes.csv")] == [node["label"] for node in nodes]
    edge, _ = rows(tmp_path / "graph" / "edges.csv")
    assert edge == {
        **{"head": "D1", "head_type": "Drug", "relation": "inhibits", "tail": "G<1>", "tail_type": "Gene"},
        **{"facts": "3", "documents": "2", "probability": "0.5"},
    }
    for path in (tmp_path / "graph").iterdir():
        assert "COX" not in path.read_text("utf-8")


def test_one_file_with_the_words(files, tmp_path):
    target = tmp_path / "g.graphml"
    result = tff_re.extract(Recogniser(), Sentences(), **files, graph=target, show_text=True)
    assert result.files[-1] == target
    nodes, _ = read_graphml(target)
    assert [(node["label"], node["name"]) for node in nodes] == [
        ("D1", "Aspirin"),
        ("G<1>", "EGFR"),
        ("COX-2", "COX-2"),
    ]


def test_characters_that_xml_cannot_hold(tmp_path):
    words = {"a\x00&<b>": "Drug", "EGFR": "Gene"}
    file, target = json_lines(tmp_path / "n.jsonl", "a\x00&<b> inhibits EGFR"), tmp_path / "g.graphml"
    tff_re.extract(Recogniser(words), Sentences(), file, tmp_path / "f.jsonl", graph=target, show_text=True)
    assert read_graphml(target)[0][0]["name"] == "a\ufffd&<b>"
