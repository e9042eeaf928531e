import itertools
import math
from collections import Counter

import numpy as np
import pytest
from documents_for_tests import corpus, document, worked
from hypothesis import given
from hypothesis import strategies as st

from datasets.documents.graph import adjacency, node_degrees, sentence_index, sentences_of
from datasets.documents.statistics import ROW, client_rows, document_statistics, entropy_histogram
from datasets.errors import DataError
from datasets.partition import StructuralEntropy, build_partition, make_partitioner, read_partition, write_partition
from datasets.partition.structural_entropy import RELEASED_CUTS, entropies, structural_entropy
from datasets.records import LabelledText, TextCorpus


def small():
    """x y. | x: entities C1 (two mentions) and D1, two sentences."""
    return document("1", "x y.", "And x too.", [("x", 0, "C1"), ("y", 0, "D1"), ("x", 1, "C1")], facts=[("C1", "D1")])


def test_the_graph_of_a_small_document():
    """Nodes C1, D1, their mentions a, b (C1), c (D1), the sentences s, t; a and c in s, b in t."""
    sample = corpus(small()).samples[0]
    entities = [entity.mentions for entity in sample.entities]
    sentences = sentences_of(sample.document)
    assert [sample.document.text[a:b] for a, b in sentences] == ["x y.", "And x too."]
    names = ["C1", "D1", "a", "b", "c", "s", "t"]
    edges = {"C1 a", "C1 b", "D1 c", "a c", "a s", "c s", "b t", "C1 s", "C1 t", "D1 s", "s t"}
    matrix = adjacency(entities, sentences)
    found = {f"{names[i]} {names[j]}" for i in range(7) for j in range(i, 7) if matrix[i, j]}
    assert found == edges and (matrix == matrix.T).all()
    assert sample.degrees == (4, 2, 3, 2, 3, 5, 3)
    assert node_degrees(entities, sentences, entity_edges=True) == (5, 3, 3, 2, 3, 5, 3)


def test_both_forms_by_hand():
    degrees = (4, 2, 3, 2, 3, 5, 3)
    # Of seven nodes 1 has degree 4, 2 have 2, 3 have 3, 1 has 5.
    paper = -sum(share * math.log(share) for share in (1 / 7, 2 / 7, 3 / 7, 1 / 7))
    assert structural_entropy(degrees) == pytest.approx(paper) == pytest.approx(1.2770, abs=1e-4)
    released = -sum(d / 7 * math.log2(d / 7) for d in degrees)
    assert structural_entropy(degrees, "released_code") == pytest.approx(released) == pytest.approx(3.4125, abs=1e-4)
    assert structural_entropy((3, 3)) == 0.0 and structural_entropy((0,), "released_code") == 0.0
    assert entropies(corpus(small()).samples).tolist() == [structural_entropy(degrees)]


def test_a_document_without_entities_has_its_sentences():
    sample = corpus(document("1", "One.", "Two here. Three here.", [])).samples[0]
    assert sample.degrees == (2, 2, 2)
    assert corpus(document("1", "", "Two", [])).samples[0].degrees == (0,)


def test_mentions_are_in_the_sentence_in_which_they_begin():
    some = document("1", "A b", "c d. E f.", [("b c", 0, "C1"), ("E", 0, "C2")])
    sentences = sentences_of(some)
    assert [sentence_index(mention, sentences) for mention in some.mentions] == [0, 2]


@st.composite
def corpora(draw, name="toy", split="train"):
    """Documents of some sentences, each with mentions of a few entities."""
    documents = []
    for number in range(draw(st.integers(1, 12))):
        sentences = draw(st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=4))
        words, mentions = [], []
        for sentence in sentences:
            for entity in sentence:
                words.append(f"W{len(words)}x")
                mentions.append((words[-1], 0, ("C" if entity % 2 else "D") + str(entity)))
            words.append("End.")
        documents.append(document(f"{split}{number}", "Title.", " ".join(words), mentions))
    return corpus(*documents, name=name, split=split)


@given(
    corpora(),
    st.one_of(st.builds(StructuralEntropy, st.integers(1, 12)), st.just(StructuralEntropy(10, "released_code", "cdr"))),
)
def test_every_document_goes_to_the_client_of_its_part(made, partitioner):
    partition = build_partition(made, partitioner, seed=3, test_share=0.0)
    given_out = [i for client in partition.clients.values() for i in client.train]
    assert Counter(given_out) == Counter(sample.sample_id for sample in made.samples)
    assert partition.clients == build_partition(made, partitioner, seed=4, test_share=0.0).clients
    value = dict(zip((s.sample_id for s in made.samples), entropies(made.samples, partitioner.form), strict=True))
    ranges = [[value[i] for i in client.train] for client in partition.clients.values()]
    assert all(max(one) < min(other) for one, other in itertools.pairwise(ranges))
    low, high = min(value.values()), max(value.values())
    if partitioner.form == "paper" and high > low:
        width = (high - low) / partitioner.num_clients
        assert all(max(r) - min(r) <= width * (1 + 1e-9) for r in ranges)
    rows = client_rows(partition, made, form=partitioner.form)
    total = made.counts()
    for column in ("documents", "entities", "mentions", "pairs", "positive"):
        assert sum(row[column] for row in rows) == total[column]
    assert entropy_histogram(made, 4, form=partitioner.form)[0].sum() == len(made.samples)
    found = document_statistics(partition, made)
    assert found.form == partitioner.form and found.rows == tuple(rows)
    assert found.histogram.sum(axis=1).tolist() == [row["documents"] for row in rows]
    for row, one, counts in zip(rows, ranges, found.histogram, strict=True):
        assert (row["entropy_least"], row["entropy_greatest"]) == (min(one), max(one))
        np.testing.assert_array_equal(counts, np.histogram(one, found.edges)[0])


@given(corpora(), corpora(split="dev"))
def test_dev_documents_follow_the_training_range(made, dev):
    partition = build_partition(made, StructuralEntropy(3), dev_corpus=dev)
    assert {i for c in partition.clients.values() for i in c.test} == {s.sample_id for s in dev.samples}


def test_parts_without_documents_are_left_out_and_noted(tmp_path):
    crowded = document("2", "A. B.", "C. D. E. F.", [(w, 0, f"C{i}") for i, w in enumerate("ABCDEF")])
    made = corpus(small(), crowded, document("3", "One.", "Two.", []))
    partition = build_partition(made, StructuralEntropy(10), test_share=0.0)
    values = entropies(made.samples)
    np.testing.assert_allclose(values, [1.2770, 1.1973, 0.0], atol=1e-4)
    assert {client: len(ids.train) for client, ids in partition.clients.items()} == {"client-0": 1, "client-9": 2}
    assert "8 of 10 clients got no sample and are left out" in partition.notes
    path = tmp_path / "partition.json"
    write_partition(partition, path)
    assert read_partition(path, made) == partition and partition.options["form"] == "paper"
    (row,) = [row for row in client_rows(partition, made) if row["positive"]]
    assert tuple(row) == ROW and (row["documents"], row["entities"], row["mentions"], row["pairs"]) == (2, 8, 9, 1)
    assert [row["entropy_least"], row["entropy_greatest"]] == pytest.approx([values[1], values[0]])
    assert row["positive_share"] == 1.0 and row["entropy"] == pytest.approx((values[0] + values[1]) / 2)


def test_released_cuts():
    for cuts in RELEASED_CUTS.values():
        assert len(cuts) == 9 and np.allclose(np.diff(cuts), cuts[1] - cuts[0])
    assert [(cuts[0], cuts[-1]) for cuts in RELEASED_CUTS.values()] == [(6, 22), (3.5, 15.5), (4.8, 27.2)]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"num_clients": 0}, "num_clients"),
        ({"num_clients": 3, "form": "other"}, "unknown form"),
        ({"num_clients": 3, "cuts": "cdr"}, "no fixed cuts"),
        ({"num_clients": 10, "form": "released_code"}, "needs the cuts"),
        ({"num_clients": 10, "form": "released_code", "cuts": "ade"}, "needs the cuts"),
        ({"num_clients": 9, "form": "released_code", "cuts": "chr"}, "for 10 clients"),
    ],
)
def test_impossible_options(options, reason):
    with pytest.raises(DataError, match=reason):
        make_partitioner("structural_entropy", **options)


def test_samples_without_a_graph_are_refused():
    texts = TextCorpus("toy", (LabelledText("s0", "d0", "x", 0), LabelledText("s1", "d1", "y", 0)), ("a",))
    with pytest.raises(DataError, match="sample s0: has no document graph"):
        build_partition(texts, StructuralEntropy(2), test_share=0.0)
    with pytest.raises(DataError, match="unknown form"):
        entropies(corpus(worked()).samples, "other")
    with pytest.raises(DataError, match="no nodes"):
        structural_entropy(())
