import dataclasses
import itertools
import math
from collections import Counter

import numpy as np
import pytest
from datasets_for_tests import refused
from documents_for_tests import corpus, document
from hypothesis import given
from hypothesis import strategies as st

from datasets.dialogues.records import LabelledText, TextCorpus
from datasets.documents.graph import adjacency, sentences_of
from datasets.documents.statistics import ROW, document_statistics
from datasets.partition import StructuralEntropy, build_partition, read_partition, write_partition
from datasets.partition.structural_entropy import GRAPHS, entropies, structural_entropy


def small():
    """x y. | x: entities C1 (two mentions) and D1, three sentences."""
    return document(
        "1", "x y.", "And x too. End.", [("x", 0, "C1"), ("y", 0, "D1"), ("x", 1, "C1")], facts=[("C1", "D1")]
    )


DEGREES = {"released_code": (5, 2, 3, 2, 3, 5, 4, 1), "edge_oriented": (4, 2, 3, 2, 3, 6, 4, 2)}
"""Of the nodes of `small`, worked out by hand from its edges."""


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_graph_of_a_small_document(graph):
    """Nodes C1, D1, their mentions a, b (C1), c (D1), the sentences s, t, u; a and c in s, b in t."""
    sample = corpus(small()).samples[0]
    entities = [entity.mentions for entity in sample.entities]
    sentences = sentences_of(sample.document)
    assert [sample.document.text[a:b] for a, b in sentences] == ["x y.", "And x too.", "End."]
    names = ["C1", "D1", "a", "b", "c", "s", "t", "u"]
    both_ways = {"C1 a", "C1 b", "D1 c", "a c", "a s", "c s", "b t", "C1 s", "C1 t", "D1 s", "s t", "t u"}
    edges = both_ways | {" ".join(reversed(edge.split())) for edge in both_ways}
    edges |= {"C1 D1"} if graph == "released_code" else {"s u", "u s"}
    matrix = adjacency(entities, sentences, [(0, 1)], graph)
    assert {f"{names[i]} {names[j]}" for i, j in np.argwhere(matrix)} == edges
    assert sample.degrees[graph] == DEGREES[graph]


def test_an_unrelated_candidate_pair_has_an_edge_and_no_other_pair_has():
    mentions = [("x", 0, "C1"), ("y", 0, "D1"), ("z", 0, "D2"), ("w", 0, "C2")]
    sample = corpus(document("1", "x y.", "Also z and w.", mentions, facts=[("C1", "D1")])).samples[0]
    assert [sample.entities[pair.head].entity_id for pair in sample.pairs] == ["C1", "C1", "C2", "C2"]
    without = adjacency([entity.mentions for entity in sample.entities], sentences_of(sample.document), []).sum(axis=1)
    added = np.subtract(sample.degrees["released_code"], without)
    assert dict(zip((entity.entity_id for entity in sample.entities), added, strict=False)) == {
        "C1": 2,
        "D1": 0,
        "D2": 0,
        "C2": 2,
    }


def test_both_forms_by_hand():
    # Of eight nodes 1 has degree 1, 2 have 2, 2 have 3, 1 has 4, 2 have 5.
    degrees = DEGREES["released_code"]
    paper = -sum(share * math.log(share) for share in (1 / 8, 2 / 8, 2 / 8, 1 / 8, 2 / 8))
    assert structural_entropy(degrees) == pytest.approx(paper) == pytest.approx(1.5596, abs=1e-4)
    released = -sum(d / 8 * math.log2(d / 8) for d in degrees)
    assert structural_entropy(degrees, "released_code") == pytest.approx(released) == pytest.approx(3.7839, abs=1e-4)
    assert structural_entropy((3, 3)) == 0.0 and structural_entropy((0,), "released_code") == 0.0
    samples = corpus(small()).samples
    assert entropies(samples).tolist() == [structural_entropy(degrees)]
    assert entropies(samples, graph="edge_oriented").tolist() == [structural_entropy(DEGREES["edge_oriented"])]


OF_PUBLISHED_DOCUMENTS = {
    # CDR 10342929, CDR 2440413, CHR 4249782: of training documents the least, the greatest and the least entropy
    4.317657676193542: "4 5 3 3 3 3 5 6 1",
    24.289256154892264: "21 17 10 8 6 6 6 6 6 3 4 4 10 10 10 10 10 3 4 4 5 6 4 4 10 10 3 4 14 14 6 6 4 10 10 14 5 6 14"
    " 14 5 6 14 14 7 14 14 7 14 14 7 14 14 7 5 7 7 4 6 14 6 7 22 10 13 11 7",
    2.0262599019087846: "3 3 3 3 4",
}
"""Figures that the authors' program states, and the degrees of the graphs that they are of."""


@pytest.mark.parametrize("entropy", OF_PUBLISHED_DOCUMENTS)
def test_the_published_digits(entropy):
    degrees = [int(degree) for degree in OF_PUBLISHED_DOCUMENTS[entropy].split()]
    # Processors may differ in the last bit of a logarithm.
    assert structural_entropy(degrees, "released_code") == pytest.approx(entropy, rel=1e-15, abs=0)


def test_a_document_without_entities_has_its_sentences():
    sample = corpus(document("1", "One.", "Two here. Three here.", [])).samples[0]
    assert sample.degrees == {"released_code": (1, 2, 1), "edge_oriented": (2, 2, 2)}
    assert set(corpus(document("1", "", "Two", [])).samples[0].degrees.values()) == {(0,)}


def test_the_released_parts_include_their_upper_bound():
    made = corpus(small(), document("2", "One.", "Two.", []))
    values = entropies(made.samples, "released_code")  # 3.8 and 1
    released = StructuralEntropy(10, "released_code", "cdr")
    for bound in (values[0], np.nextafter(values[0], 0)):
        cuts = np.concatenate([[bound], np.linspace(50, 60, 8)])
        given_out = released.apply(cuts, made.samples, np.random.default_rng(0))
        assert (0 in given_out["client-0"]) == (bound == values[0]) and 1 in given_out["client-0"]


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
    st.one_of(
        st.builds(StructuralEntropy, st.integers(1, 12), graph=st.sampled_from(GRAPHS)),
        st.just(StructuralEntropy(10, "released_code", "cdr")),
    ),
)
def test_every_document_goes_to_the_client_of_its_part(made, partitioner):
    partition = build_partition(made, partitioner, seed=3, test_share=0.0)
    given_out = [i for client in partition.clients.values() for i in client.train]
    assert Counter(given_out) == Counter(sample.sample_id for sample in made.samples)
    assert partition.clients == build_partition(made, partitioner, seed=4, test_share=0.0).clients
    of_samples = entropies(made.samples, partitioner.form, partitioner.graph)
    value = dict(zip((s.sample_id for s in made.samples), of_samples, strict=True))
    ranges = [[value[i] for i in client.train] for client in partition.clients.values()]
    assert all(max(values_of_client) < min(next_values) for values_of_client, next_values in itertools.pairwise(ranges))
    low, high = min(value.values()), max(value.values())
    if partitioner.form == "paper" and high > low:
        width = (high - low) / partitioner.num_clients
        assert all(max(r) - min(r) <= width * (1 + 1e-9) for r in ranges)
    rows = document_statistics(partition, made).rows
    total = made.counts()
    for column in ("documents", "entities", "mentions", "pairs", "positive"):
        assert sum(row[column] for row in rows) == total[column]
    statistics = document_statistics(partition, made)
    assert (statistics.form, statistics.graph) == (partitioner.form, partitioner.graph) and statistics.rows == tuple(
        rows
    )
    assert statistics.histogram.sum(axis=1).tolist() == [row["documents"] for row in rows]
    for row, values_of_client, counts in zip(rows, ranges, statistics.histogram, strict=True):
        assert (row["entropy_least"], row["entropy_greatest"]) == (min(values_of_client), max(values_of_client))
        np.testing.assert_array_equal(counts, np.histogram(values_of_client, statistics.edges)[0])


def test_parts_without_documents_are_left_out_and_noted(tmp_path):
    crowded = document("2", "A. B.", "C. D. E. F.", [(w, 0, f"C{i}") for i, w in enumerate("ABCDEF")])
    made = corpus(small(), crowded, document("3", "One.", "Two.", []))
    partition = build_partition(made, StructuralEntropy(10, graph="edge_oriented"), test_share=0.0)
    values = entropies(made.samples, graph="edge_oriented")
    np.testing.assert_allclose(values, [1.3209, 1.1973, 0.0], atol=1e-4)
    assert {client: len(ids.train) for client, ids in partition.clients.items()} == {"client-0": 1, "client-9": 2}
    assert "8 of 10 clients got no sample and are left out" in partition.notes
    path = tmp_path / "partition.json"
    write_partition(partition, path)
    assert read_partition(path, made) == partition and partition.options["form"] == "paper"
    assert partition.options["graph"] == "edge_oriented"
    (row,) = [row for row in document_statistics(partition, made).rows if row["positive"]]
    assert tuple(row) == ROW and (row["documents"], row["entities"], row["mentions"], row["pairs"]) == (2, 8, 9, 1)
    assert row in document_statistics(partition, made).rows
    stored = dict(partition.options)
    del stored["graph"]  # as before there was a choice
    assert row in document_statistics(dataclasses.replace(partition, options=stored), made).rows
    assert [row["entropy_least"], row["entropy_greatest"]] == pytest.approx([values[1], values[0]])
    assert row["positive_share"] == 1.0 and row["entropy"] == pytest.approx((values[0] + values[1]) / 2)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"num_clients": 0}, "num_clients"),
        ({"num_clients": 3, "form": "other"}, "form must be one of"),
        ({"num_clients": 3, "cuts": "cdr"}, "no fixed cuts"),
        ({"num_clients": 10, "form": "released_code", "cuts": "ade"}, "needs the cuts"),
        ({"num_clients": 9, "form": "released_code", "cuts": "chr"}, "for 10 clients"),
        ({"num_clients": 3, "graph": "other"}, "graph must be one of"),
        ({"num_clients": 10, "form": "released_code", "graph": "edge_oriented"}, "for the released graph"),
    ],
)
def test_impossible_options(options, reason):
    assert reason in refused(StructuralEntropy, **options)
    texts = TextCorpus("toy", (LabelledText("s0", "d0", "x", 0),), ("a",))
    assert "sample s0: has no document graph" in refused(build_partition, texts, StructuralEntropy(2), test_share=0.0)
