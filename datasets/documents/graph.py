"""The graph of a document for FedLCC's structural entropy (Section 3.5), as degrees of its nodes.

Nodes: entities, mentions (a composite mention is a node for each entity) and sentences. Edges: MM, two mentions in a
sentence; ME, a mention and its entity; MS, a mention and its sentence; ES, an entity and a sentence with a mention of
it; SS, two sentences; EE, two entities. The paper names no edges; it points to edge-oriented relation extraction
(Christopoulou et al., EMNLP 2019). Two forms, `GRAPHS` of
`datasets.partition.structural_entropy`:

- ``released_code``: the graph of FedLCC's program. SS joins neighbouring sentences only, and a directed edge EE goes
  from the head to the tail of every candidate pair, related or not; it counts for its head alone.
- ``edge_oriented``: the graph of the cited paper. SS joins any two sentences, and there is no EE, because the cited
  model infers these edges.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import numpy as np

from datasets.documents.records import Document, EntityMention
from datasets.relations.records import Span
from datasets.relations.sentences import sentences_of_document


def sentences_of(document: Document) -> list[Span]:
    """Return the sentences of a document, at least one.

    They are the corpus's own, or found by a rule that cuts no mention.
    """
    if document.sentences:
        return list(document.sentences)
    spans = [(mention.start, mention.end) for mention in document.mentions]
    return sentences_of_document(document.text, document.title_length, spans) or [(0, len(document.text))]


def sentence_index(mention: EntityMention, sentences: Sequence[Span]) -> int:
    """Return the index of the sentence in which a mention begins."""
    return max(0, bisect.bisect_right([start for start, _ in sentences], mention.start) - 1)


def adjacency(
    entities: Sequence[Sequence[EntityMention]],
    sentences: Sequence[Span],
    pairs: Sequence[tuple[int, int]],
    graph: str = "released_code",
) -> np.ndarray:
    """Return the graph's adjacency matrix, bool [N, N], with entities first, then mentions, then sentences.

    It is symmetric but for the edges EE.

    Args:
      entities: The mentions of each entity.
      sentences: The document's sentences.
      pairs: Head and tail of each candidate pair, as indices of `entities`.
      graph: ``released_code`` or ``edge_oriented``.
    """
    owner = np.array([e for e, mentions in enumerate(entities) for _ in mentions], np.int64)
    sentence_of = np.array([sentence_index(m, sentences) for mentions in entities for m in mentions], np.int64)
    belongs = owner[None, :] == np.arange(len(entities))[:, None]  # [entities, mentions]
    within = sentence_of[:, None] == np.arange(len(sentences))[None, :]  # [mentions, sentences]
    named_in = belongs.astype(int) @ within.astype(int) > 0  # [entities, sentences]
    between_entities = np.zeros((len(entities),) * 2, bool)
    distance = np.abs(np.subtract.outer(np.arange(len(sentences)), np.arange(len(sentences))))
    if graph == "released_code":
        for head, tail in pairs:
            between_entities[head, tail] = True
        between_sentences = distance == 1
    else:
        between_sentences = distance > 0
    result = np.block(
        [
            [between_entities, belongs, named_in],
            [belongs.T, sentence_of[:, None] == sentence_of[None, :], within],
            [named_in.T, within.T, between_sentences],
        ]
    )
    np.fill_diagonal(result, False)
    return result
