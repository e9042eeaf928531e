import numpy as np
import pytest
from datasets_for_tests import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.bags.planted import PlantedOptions, _sizes, planted


def related(made):
    return [s for s in made.corpus.sentences if s.label]


@pytest.mark.parametrize("noise", [0.0, 0.3, 0.8, 1.0])
def test_the_rate_of_the_truth(noise):
    made = planted(1000, noise, num_sentences=8000, at_least_one=False, seed=2)
    truth = [made.truth[s.sentence_id] for s in related(made)]
    # 4,000 or so sentences: a standard deviation of the mean is below 0.008
    assert abs(np.mean(truth) - (1 - noise)) < (0.03 if 0 < noise < 1 else 1e-9)
    assert all(made.truth[s.sentence_id] for s in made.corpus.sentences if not s.label)


def test_noise_is_of_no_relation_or_of_another():
    made = planted(1000, 0.5, num_sentences=6000, other_share=0.3, at_least_one=False)
    noisy = [(s, made.expressed[s.sentence_id]) for s in related(made) if not made.truth[s.sentence_id]]
    assert all(stated not in s.relations for s, stated in noisy)
    assert abs(np.mean([stated != "NA" for _, stated in noisy]) - 0.3) < 0.05
    true = [(s, made.expressed[s.sentence_id]) for s in related(made) if made.truth[s.sentence_id]]
    assert all(stated in s.relations for s, stated in true)


def test_at_least_one_true_sentence_of_each_relation():
    made = planted(300, 1.0, num_sentences=3000, num_triples=420)
    for rows in made.corpus.bags.values():
        sentences = [made.corpus.sentences[row] for row in rows]
        if sentences[0].label:
            stated = {made.expressed[s.sentence_id] for s in sentences} & set(sentences[0].relations)
            assert len(stated) == min(len(sentences), len(sentences[0].relations))
            assert sum(made.truth[s.sentence_id] for s in sentences) == len(stated), "all others are noisy"
    positions = [i for i, s in enumerate(made.corpus.sentences) if s.label and made.truth[s.sentence_id]]
    assert abs(np.mean(positions) / 3000 - 0.5) < 0.1, "true ones do not stand first"
    first = [rows[0] for rows in made.corpus.bags.values() if len(rows) > 3]
    first = [made.corpus.sentences[row] for row in first]
    assert np.mean([made.truth[s.sentence_id] for s in first if s.label]) < 0.5


def test_sizes_and_their_law():
    made = planted(500, 0.5, num_sentences=4000, num_triples=650, num_relations=7, unrelated_share=0.6)
    sizes = sorted(map(len, made.corpus.bags.values()), reverse=True)
    assert len(sizes) == 500 and sum(sizes) == 4000 and sizes[-1] >= 1 and sizes[0] > 20 * sizes[100]
    assert len(made.corpus.triples) == 650 and len({s.pair for s in related(made)}) == 200
    assert len(made.corpus.relation_names) == 8
    even = planted(500, 0.5, num_sentences=4000, zipf=0.0)
    assert set(map(len, even.corpus.bags.values())) == {8}
    assert len(planted(100, 0.5).corpus.triples) == 105 and len(planted(100, 0.5).corpus.sentences) == 300


@settings(max_examples=200, deadline=None)
@given(bags=st.integers(2, 400), share=st.floats(0, 0.99), more=st.integers(0, 3000), zipf=st.floats(0, 3))
def test_the_share_of_bags_of_one_sentence(bags, share, more, zipf):
    single = round(share * bags)
    sentences = single if single == bags else 2 * bags - single + more
    sizes = _sizes(PlantedOptions(bags, 0.5, num_sentences=sentences, single_share=share, zipf=zipf))
    assert len(sizes) == bags and sizes.sum() == sentences
    assert (sizes == 1).sum() == single, "neither more nor fewer"
    assert (np.diff(sizes) <= 0).all()
    ranks = np.arange(1, bags - single + 1)
    law = more * ranks**-zipf / (ranks**-zipf).sum()
    assert (np.abs(sizes[: bags - single] - 2 - law) < 1).all(), "Zipf's law, rounded, of what is above two"


def test_bags_as_long_as_those_of_nyt10():
    """FedDS, Section 4.1: 466,876 sentences of 251,928 pairs; Li et al., AAAI 2020: up to 80 % have one sentence."""
    corpus = planted(2000, 0.5, num_sentences=round(2000 * 466_876 / 251_928), single_share=0.8, zipf=1.0).corpus
    sizes = np.array([len(rows) for rows in corpus.bags.values()])
    assert sizes.sum() == 3706 and (sizes == 1).sum() == 1600
    assert sizes.max() > 100, "the tail is long"
    related = np.array([corpus.sentences[rows[0]].label > 0 for rows in corpus.bags.values()])
    assert abs((sizes[related] == 1).mean() - 0.8) < 0.04, "no other for related pairs"


def test_the_seed_makes_the_corpus_and_the_grammar_stays():
    made = planted(50, 0.5, seed=1)
    assert made == planted(50, 0.5, seed=1)
    other = planted(50, 0.5, seed=2)
    assert other.corpus != made.corpus and other.words == made.words
    assert len(set(made.words)) == len(made.words)
    for s in made.corpus.sentences:
        assert (s.head_text, s.tail_text) == s.pair and len(s.head_text) == 8


@pytest.mark.parametrize("cues, cues_of_word", [(4, 1), (40, 1), (20, 6)])
def test_a_cue_tells_its_relation_and_nothing_else_does(cues, cues_of_word):
    few = planted(400, 0.4, num_sentences=4000, num_relations=3)
    made = planted(400, 0.4, num_sentences=4000, num_relations=3, cues=cues, cues_of_word=cues_of_word)
    assert few.corpus.bags == made.corpus.bags and few.expressed == made.expressed, "only the words differ"
    relations_of, relations_of_word = {}, {}
    for s in made.corpus.sentences:
        first, second = cue = tuple(word for word in s.text.split() if len(word) == 6)
        for relations, key in ((relations_of, cue), (relations_of_word, first), (relations_of_word, second)):
            relations.setdefault(key, set()).add(made.expressed[s.sentence_id])
    assert len(relations_of) == 2 * cues * 3 and all(len(stated) == 1 for stated in relations_of.values())
    assert len(relations_of_word) == 2 * len(relations_of) / cues_of_word
    assert not {(second, first) for first, second in relations_of} & relations_of.keys()
    shared = np.mean([len(stated) > 1 for stated in relations_of_word.values()])
    assert shared > 0.9 if cues_of_word > 1 else shared == 0, "a shared word tells nothing alone"


@pytest.mark.parametrize(
    "change, expected",
    [
        ({"num_bags": 1}, "num_bags must be a whole number of at least 2, got 1"),
        ({"noise_rate": 1.1}, "noise_rate must be a number from 0 to 1"),
        ({"num_sentences": 9}, "num_sentences is smaller than num_bags"),
        ({"num_sentences": 99.5}, "num_sentences must be a whole number"),
        ({"num_relations": 0}, "num_relations must be a whole number of at least 1, got 0"),
        ({"num_triples": 9}, "num_triples is not from 10 to 30"),
        ({"unrelated_share": 1.0}, "no pair is related"),
        ({"other_share": -0.1}, "other_share must be a number from 0 to 1"),
        ({"cues": 0}, "cues must be a whole number of at least 1, got 0"),
        ({"cues": 100_000}, "1000000 cues are more than there are words for; lower cues or num_relations"),
        ({"cues_of_word": 0}, "cues_of_word must be a whole number of at least 1, got 0"),
        ({"cues_of_word": 20}, "40 cues cannot be made of"),
        ({"zipf": -1.0}, "zipf must be a finite number of at least 0, got -1.0"),
        ({"single_share": 1.0}, "no bag has more than one sentence; lower single_share or num_sentences"),
        ({"single_share": 0.5, "num_sentences": 14}, "14 sentences are too few for 5 bags of one and 5 of two; raise"),
        ({"single_share": 1.5}, "single_share must be a number from 0 to 1"),
        ({"seed": -1}, "the seed is not a whole number"),
    ],
)
def test_impossible_options(change, expected):
    arguments = {"num_bags": 10, "noise_rate": 0.5, **change}
    assert refused(planted, **arguments).startswith(expected)


def test_one_relation_and_all_relations():
    single = planted(20, 0.9, num_relations=1, other_share=1.0)
    assert set(single.expressed.values()) == {"NA", "relation 1"}
    every = planted(10, 1.0, num_relations=3, num_triples=10 + 2 * 5, at_least_one=False)
    assert {s.relations for s in related(every)} == {("relation 1", "relation 2", "relation 3")}
    assert {every.expressed[s.sentence_id] for s in related(every)} == {"NA"}, "there is no other relation to state"
