"""A graph of entities as a picture: where its nodes stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from tff_re.pages.page import Network, NetworkEdge, NetworkNode

WIDTH, HEIGHT, MARGIN = 1000, 620, 70
_STEPS = 200
_GRAVITY = 1.0
"""Pulls to the middle, so that parts of the graph that no edge joins stay near each other."""
_LONGEST_LABEL = 28


def network(
    edges: Sequence[tuple[int, str, int]], nodes: Mapping[int, tuple[str, str, str]], most_nodes: int
) -> Network | None:
    """The picture of a graph, or None if it has no edge.

    Args:
      edges: (node, relation, node); an edge that is there several times is drawn once.
      nodes: Node -> (label, note, colour).
      most_nodes: The maximum number of nodes; those with the most edges are drawn.
    """
    degrees = Counter(node for head, _, tail in edges for node in (head, tail))
    drawn = [node for node, _ in degrees.most_common(most_nodes)]
    index = {node: number for number, node in enumerate(drawn)}
    relations: dict[tuple[int, int], dict[str, None]] = {}
    for head, relation, tail in edges:
        if head in index and tail in index:
            relations.setdefault((head, tail), {})[relation] = None
    if not relations:
        return None
    positions = positions_of(len(drawn), [(index[head], index[tail]) for head, tail in relations])
    at = {node: tuple(np.round(positions[number], 1).tolist()) for node, number in index.items()}
    pictured = [NetworkNode(node, *at[node], _short(nodes[node][0]), *nodes[node][1:]) for node in drawn]
    lines = [NetworkEdge(*pair, *at[pair[0]], *at[pair[1]], ", ".join(names)) for pair, names in relations.items()]
    left_out = len(degrees) - len(drawn)
    caption = (
        f"Shows the {len(drawn)} entities with the most facts; {left_out} others are left out." if left_out else ""
    )
    return Network(pictured, lines, WIDTH, HEIGHT, caption)


def positions_of(nodes: int, edges: Sequence[tuple[int, int]]) -> np.ndarray:
    """Where nodes stand, float64 [nodes, 2] in the picture: the force-directed placement of Fruchterman and Reingold
    (Software: Practice and Experience 21, 1991), from a circle on, so that the same graph looks the same."""
    angles = 2 * np.pi * np.arange(nodes) / nodes
    points, distance = np.stack([np.cos(angles), np.sin(angles)], axis=1), 1.5 / np.sqrt(nodes)
    heads, tails = np.array(edges).T
    for step in range(_STEPS):
        between = points[:, None] - points[None]
        lengths = np.maximum(np.linalg.norm(between, axis=-1), 1e-3)
        moves = (between * (distance / lengths)[..., None] ** 2).sum(axis=1) - _GRAVITY * points
        along = points[heads] - points[tails]
        pulls = along * np.linalg.norm(along, axis=1, keepdims=True) / distance
        np.add.at(moves, heads, -pulls)
        np.add.at(moves, tails, pulls)
        sizes = np.maximum(np.linalg.norm(moves, axis=1, keepdims=True), 1e-9)
        points = points + moves / sizes * np.minimum(sizes, 0.2 * (1 - step / _STEPS))
    low, high = points.min(axis=0), points.max(axis=0)
    room = np.array([WIDTH, HEIGHT]) - 2 * MARGIN
    return MARGIN + (points - low) / np.maximum(high - low, 1e-9) * room


def _short(label: str) -> str:
    words = " ".join(label.split())
    return words if len(words) <= _LONGEST_LABEL else f"{words[: _LONGEST_LABEL - 1]}…"
