"""The document graph of edge-oriented relation extraction (Christopoulou et al., EMNLP 2019), as degrees of its nodes.

Nodes: entities, mentions (a composite mention is a node for each entity) and sentences. Edges: MM, two mentions in a
sentence; ME, a mention and its entity; MS, a mention and its sentence; ES, an entity and a sentence with a mention of
it; SS, any two sentences (direct and indirect neighbours). FedLCC (Section 3.5) builds on that graph. Edges EE between
entities are not in the graph that the authors build: their model infers them; `entity_edges` adds them all.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import numpy as np

from datasets.document_records import Document, EntityMention
from datasets.relation_records import Span
from datasets.relations.sentences import sentences_of_document


def sentences_of(document: Document) -> list[Span]:
    """The sentences of a document, at least one; no boundary cuts a mention."""
    spans = [(mention.start, mention.end) for mention in document.mentions]
    return sentences_of_document(document.text, document.title_length, spans) or [(0, len(document.text))]


def sentence_index(mention: EntityMention, sentences: Sequence[Span]) -> int:
    """The sentence in which a mention begins."""
    return max(0, bisect.bisect_right([start for start, _ in sentences], mention.start) - 1)


def adjacency(
    entities: Sequence[Sequence[EntityMention]], sentences: Sequence[Span], *, entity_edges: bool = False
) -> np.ndarray:
    """The graph's adjacency matrix, bool [N, N], symmetric, with entities first, then mentions, then sentences.

    Args:
      entities: The mentions of each entity.
      sentences: The document's sentences.
      entity_edges: Whether any two entities are joined (EE).
    """
    owner = np.array([e for e, mentions in enumerate(entities) for _ in mentions], np.int64)
    place = np.array([sentence_index(m, sentences) for mentions in entities for m in mentions], np.int64)
    belongs = owner[None, :] == np.arange(len(entities))[:, None]  # [entities, mentions]
    within = place[:, None] == np.arange(len(sentences))[None, :]  # [mentions, sentences]
    blocks = [
        [np.full((len(entities),) * 2, entity_edges), belongs, belongs.astype(int) @ within.astype(int) > 0],
        [belongs.T, place[:, None] == place[None, :], within],
        [(belongs.astype(int) @ within.astype(int) > 0).T, within.T, np.ones((len(sentences),) * 2, bool)],
    ]
    result = np.block(blocks)
    np.fill_diagonal(result, False)
    return result


def node_degrees(
    entities: Sequence[Sequence[EntityMention]], sentences: Sequence[Span], *, entity_edges: bool = False
) -> tuple[int, ...]:
    """The degree of every node of `adjacency`."""
    return tuple(adjacency(entities, sentences, entity_edges=entity_edges).sum(axis=1).tolist())
