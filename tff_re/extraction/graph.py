"""The graph of all facts, as GraphML and as CSV: entities are nodes, a relation between two of them is an edge."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from datasets.files import csv_text, read_json_lines, write_atomically
from tff_re.extraction.records import UNLINKED

GRAPHML, NODES, EDGES = "graph.graphml", "nodes.csv", "edges.csv"

_NODE_KEYS = {"label": "string", "type": "string", "linked": "string", "name": "string"}
_EDGE_KEYS = {"relation": "string", "facts": "int", "documents": "int", "probability": "double"}
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold."""


@dataclass
class Edge:
    """Facts of one relation between two entities.

    Attributes:
      facts: How many.
      documents: In how many documents.
      probability: The highest.
      last_document: The document of the last one, which are in the order of documents.
    """

    facts: int = 0
    documents: int = 0
    probability: float = 0.0
    last_document: str | None = None

    def add(self, document_id: str, probability: float) -> None:
        """Counts a fact."""
        self.facts += 1
        self.documents += document_id != self.last_document
        self.probability, self.last_document = max(self.probability, probability), document_id


NodeKey = tuple[str, str]
"""Id and type of an entity."""


@dataclass(frozen=True)
class Graph:
    """Nodes with their attributes, and edges from (head, relation, tail).

    Its memory grows only with nodes and edges, not with the number of documents.
    """

    nodes: Mapping[NodeKey, Mapping[str, str]]
    edges: Mapping[tuple[NodeKey, str, NodeKey], Edge]

    @classmethod
    def read(cls, path: Path) -> Graph:
        """The graph of a file of facts, which is read line by line. Raises DataError."""
        return cls.of_facts(value for _, value in read_json_lines(path))

    @classmethod
    def of_facts(cls, facts: Iterable[Mapping[str, Any]]) -> Graph:
        """The graph of facts as their lines of JSON have them.

        A node's label is its id; of unlinked entities the words of the first mention, where the facts have the words.
        """
        nodes: dict[NodeKey, dict[str, str]] = {}
        edges: dict[tuple[NodeKey, str, NodeKey], Edge] = {}
        for fact in facts:
            ends = []
            for argument in (fact["head"], fact["tail"]):
                key = (argument["id"], argument["type"])
                ends.append(key)
                if key not in nodes:
                    nodes[key] = _node(argument)
            edge = edges.setdefault((ends[0], fact["relation"], ends[1]), Edge())
            edge.add(fact["document"], fact["probability"])
        return cls(nodes, edges)

    def write(self, target: Path) -> list[Path]:
        """Writes a GraphML file, if that is the target's ending, or all formats into a folder.

        Returns the files.

        Raises:
          DataError: A file cannot be written.
        """
        if target.suffix == ".graphml":
            write_atomically(target, "".join(self.graphml()).encode())
            return [target]
        target.mkdir(parents=True, exist_ok=True)
        texts = {
            GRAPHML: "".join(self.graphml()),
            NODES: csv_text(self._node_rows()),
            EDGES: csv_text(self._edge_rows()),
        }
        for name, text in texts.items():
            write_atomically(target / name, text.encode())
        return [target / name for name in texts]

    def graphml(self) -> Iterator[str]:
        """The lines of the GraphML form."""
        number_of = {key: f"n{number}" for number, key in enumerate(self.nodes)}
        yield '<?xml version="1.0" encoding="UTF-8"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
        yield from _keys("node", ("id", *_NODE_KEYS), {"id": "string", **_NODE_KEYS})
        yield from _keys("edge", tuple(_EDGE_KEYS), _EDGE_KEYS)
        yield '<graph id="facts" edgedefault="directed">\n'
        for key, node in self.nodes.items():
            yield f"<node id={quoteattr(number_of[key])}>{_data('node', {'id': key[0], **node})}</node>\n"
        for (head, relation, tail), edge in self.edges.items():
            ends = f"source={quoteattr(number_of[head])} target={quoteattr(number_of[tail])}"
            yield f"<edge {ends}>{_data('edge', {'relation': relation, **_values(edge)})}</edge>\n"
        yield "</graph>\n</graphml>\n"

    def _node_rows(self) -> Iterator[list[str]]:
        yield ["id", *_NODE_KEYS]
        for (entity_id, _), node in self.nodes.items():
            yield [entity_id, *(node.get(name, "") for name in _NODE_KEYS)]

    def _edge_rows(self) -> Iterator[list[Any]]:
        yield ["head", "head_type", "relation", "tail", "tail_type", *list(_EDGE_KEYS)[1:]]
        for (head, relation, tail), edge in self.edges.items():
            yield [*head, relation, *tail, *_values(edge).values()]


def _node(argument: Mapping[str, Any]) -> dict[str, str]:
    words = argument.get("text")
    unlinked = argument["linked"] == UNLINKED
    label = words if unlinked and words is not None else argument["id"]
    return {
        "label": label,
        "type": argument["type"],
        "linked": "no" if unlinked else "yes",
        **({} if words is None else {"name": words}),
    }


def _values(edge: Edge) -> dict[str, Any]:
    return {"facts": edge.facts, "documents": edge.documents, "probability": edge.probability}


def _keys(of_what: str, names: Iterable[str], kinds: Mapping[str, str]) -> Iterator[str]:
    for name in names:
        yield f'<key id="{of_what}_{name}" for="{of_what}" attr.name="{name}" attr.type="{kinds[name]}"/>\n'


def _data(of_what: str, values: Mapping[str, Any]) -> str:
    texts = {name: escape(_NO_XML.sub("\ufffd", str(value))) for name, value in values.items()}
    return "".join(f'<data key="{of_what}_{name}">{text}</data>' for name, text in texts.items())
