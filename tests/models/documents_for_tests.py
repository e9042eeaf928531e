"""Small documents with entities, mentions and pairs, as the data side encodes them."""

from __future__ import annotations

import numpy as np

from tests.models.encoders_for_tests import PIECES
from tff_re.models.inputs import DocumentInput

LENGTH, MENTIONS, ENTITIES, PAIRS, RELATIONS = 48, 8, 4, 6, 2
CLS, SEP = PIECES.index("[CLS]"), PIECES.index("[SEP]")


def inputs(length=LENGTH, relations=RELATIONS, tokenizer=None):
    return DocumentInput(len(PIECES), length, MENTIONS, ENTITIES, PAIRS, relations, tokenizer)


def blank(count, length=LENGTH, relations=RELATIONS):
    """Arrays of documents with nothing in them but padding."""
    arrays = {name: np.zeros([count, length], np.int32) for name in ("input_ids", "attention_mask")}
    arrays |= {name: np.full([count, MENTIONS], -1, np.int32) for name in ("mention_place", "mention_entity")}
    arrays |= {name: np.full([count, PAIRS], -1, np.int32) for name in ("pair_head", "pair_tail")}
    return {**arrays, "pair_labels": np.zeros([count, PAIRS, relations], np.float32)}


def write_document(arrays, row, *, pieces, mentions, pairs):
    """Puts a document at a row: pieces without [CLS] and [SEP], (place, entity) and (head, tail, labels) of each."""
    ids = [CLS, *pieces, SEP]
    arrays["input_ids"][row, : len(ids)] = ids
    arrays["attention_mask"][row, : len(ids)] = 1
    for column, (position, entity) in enumerate(mentions):
        arrays["mention_place"][row, column], arrays["mention_entity"][row, column] = position, entity
    for column, (head, tail, labels) in enumerate(pairs):
        arrays["pair_head"][row, column], arrays["pair_tail"][row, column] = head, tail
        arrays["pair_labels"][row, column] = labels


def documents(count, seed=0, length=LENGTH, longest=None, relations=RELATIONS, max_pairs=PAIRS):
    """Documents at random: two to ENTITIES entities, each with a mention at least, and up to `max_pairs` pairs."""
    generator = np.random.default_rng(seed)
    arrays = blank(count, length, relations)
    for row in range(count):
        size = int(generator.integers(12, (longest or length) - 1))
        entities = int(generator.integers(2, ENTITIES + 1))
        entity_of_mention = [
            *range(entities),
            *generator.integers(0, entities, int(generator.integers(0, MENTIONS - entities + 1))),
        ]
        positions = generator.choice(np.arange(1, size + 1), len(entity_of_mention), replace=False)
        all_pairs = [(s, t) for s in range(entities) for t in range(entities) if s != t]
        chosen = generator.permutation(len(all_pairs))[
            : int(generator.integers(0 if max_pairs < 2 else 1, max_pairs + 1))
        ]
        write_document(
            arrays,
            row,
            pieces=generator.integers(5, len(PIECES), size),
            mentions=list(zip(positions, entity_of_mention, strict=True)),
            pairs=[(*all_pairs[i], generator.integers(0, 2, relations)) for i in chosen],
        )
    arrays["y"] = (arrays["pair_labels"].max(axis=(1, 2)) > 0).astype(np.int32)
    return arrays


def select_rows(arrays, rows):
    """Some of the documents."""
    return {name: value[rows] for name, value in arrays.items()}
