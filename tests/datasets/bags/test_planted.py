import collections

import attrs
import numpy as np
import pytest
from datasets_for_tests import refused

from datasets.bags.encoding import encode_bag_clients
from datasets.bags.planted import planted
from datasets.bags.planted_arrays import LONGEST, planted_arrays
from datasets.bags.planted_plan import PlantedOptions, draw_plan
from datasets.bags.selection import set_bags_apart
from datasets.partition import Iid, build_partition
from datasets.text.relation_encoding import RelationEncoding
from datasets.text.vocabulary import Vocabulary
from datasets.text.word_tokenizer import SPECIAL, word_tokenizer


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
    assert (
        np.mean(
            [made.truth[made.corpus.sentences[row].sentence_id] for row in first if made.corpus.sentences[row].label]
        )
        < 0.5
    )


def test_sizes_and_their_law():
    made = planted(500, 0.5, num_sentences=4000, num_triples=650, num_relations=7, unrelated_share=0.6)
    sizes = sorted(map(len, made.corpus.bags.values()), reverse=True)
    assert len(sizes) == 500 and sum(sizes) == 4000 and sizes[-1] >= 1 and sizes[0] > 20 * sizes[100]
    assert len(made.corpus.triples) == 650 and len({s.pair for s in related(made)}) == 200
    assert len(made.corpus.relation_names) == 8
    even = planted(500, 0.5, num_sentences=4000, zipf=0.0)
    assert set(map(len, even.corpus.bags.values())) == {8}
    assert len(planted(100, 0.5).corpus.triples) == 105 and len(planted(100, 0.5).corpus.sentences) == 300


def test_the_seed_makes_the_corpus_and_the_grammar_stays():
    made = planted(50, 0.5, seed=1)
    assert made == planted(50, 0.5, seed=1)
    other = planted(50, 0.5, seed=2)
    assert other.corpus != made.corpus and other.words == made.words
    assert len(set(made.words)) == len(made.words)


def test_a_cue_tells_its_relation_and_nothing_else_does():
    made = planted(400, 0.4, num_sentences=4000, num_relations=3)
    relations_of = {}
    for s in made.corpus.sentences:
        cue = [word for word in s.text.split() if len(word) == 6]
        assert len(cue) == 2, "a cue is two words of three syllables"
        relations_of.setdefault(tuple(cue), set()).add(made.expressed[s.sentence_id])
    assert all(len(stated) == 1 for stated in relations_of.values())
    assert len(relations_of) == 4 * 3 + 4 * 3
    for s in made.corpus.sentences[:200]:
        assert (s.head_text, s.tail_text) == s.pair and len(s.head_text) == 8


def cue_of(text):
    return tuple(word for word in text.split() if len(word) == 6)


def test_more_cues_are_shown_less_often():
    few, many = (planted(400, 0.4, num_sentences=4000, num_relations=3, cues=cues) for cues in (4, 40))
    counts = [collections.Counter(cue_of(s.text) for s in made.corpus.sentences) for made in (few, many)]
    assert [len(one) for one in counts] == [4 * 3 * 2, 40 * 3 * 2]
    assert few.corpus.bags == many.corpus.bags and few.expressed == many.expressed, "only the words differ"


def test_shared_words_tell_nothing_alone():
    made = planted(400, 0.4, num_sentences=4000, num_relations=3, cues=20, cues_of_word=6)
    relations_of, relations_of_word = {}, {}
    for s in made.corpus.sentences:
        cue = cue_of(s.text)
        relations_of.setdefault(cue, set()).add(made.expressed[s.sentence_id])
        for word in cue:
            relations_of_word.setdefault(word, set()).add(made.expressed[s.sentence_id])
    assert len(relations_of) == 120 and all(len(stated) == 1 for stated in relations_of.values())
    assert len(relations_of_word) == 2 * 120 / 6
    assert np.mean([len(stated) > 1 for stated in relations_of_word.values()]) > 0.9
    assert len({(second, first) for first, second in relations_of} & set(relations_of)) == 0


def test_parts_keep_their_truth():
    made = planted(60, 0.5)
    for part in set_bags_apart(made.corpus, 0.2, seed=0):
        assert all(s.sentence_id in made.truth for s in part.sentences)


@pytest.mark.parametrize(
    "change, expected",
    [
        ({"num_bags": 1}, "num_bags must be a whole number of at least 2, got 1"),
        ({"noise_rate": 1.1}, "noise_rate must be a number from 0 to 1"),
        ({"noise_rate": float("nan")}, "noise_rate must be a number from 0 to 1"),
        ({"num_sentences": 9}, "num_sentences is smaller than num_bags"),
        ({"num_sentences": 99.5}, "num_sentences must be a whole number"),
        ({"num_relations": 0}, "num_relations must be a whole number of at least 1, got 0"),
        ({"num_triples": 9}, "num_triples is not from 10 to 30"),
        ({"num_triples": 31}, "num_triples is not from 10 to 30"),
        ({"unrelated_share": 1.0}, "no pair is related"),
        ({"other_share": -0.1}, "other_share must be a number from 0 to 1"),
        ({"cues": 0}, "cues must be a whole number of at least 1, got 0"),
        ({"cues": 100_000}, "1000000 cues are more than there are words for; lower cues or num_relations"),
        ({"cues_of_word": 0}, "cues_of_word must be a whole number of at least 1, got 0"),
        ({"cues_of_word": 20}, "40 cues cannot be made of"),
        ({"zipf": -1.0}, "zipf must be a finite number of at least 0, got -1.0"),
        ({"seed": -1}, "the seed is not a whole number"),
    ],
)
def test_impossible_options(change, expected):
    arguments = {"num_bags": 10, "noise_rate": 0.5, **change}
    assert refused(planted, **arguments).startswith(expected)


def test_one_relation_and_all_relations():
    one = planted(20, 0.9, num_relations=1, other_share=1.0)
    assert set(one.expressed.values()) == {"NA", "relation 1"}
    every = planted(10, 1.0, num_relations=3, num_triples=10 + 2 * 5, at_least_one=False)
    assert {s.relations for s in related(every)} == {("relation 1", "relation 2", "relation 3")}
    assert {every.expressed[s.sentence_id] for s in related(every)} == {"NA"}, "there is no other relation to state"


def test_the_arrays_are_those_of_the_texts():
    options = PlantedOptions(40, 0.5, num_sentences=200, num_relations=3, num_triples=60, seed=5)
    fast = planted_arrays(options, 7, max_length=LONGEST + 3)
    made = planted(**attrs.asdict(options))
    encoding = RelationEncoding(word_tokenizer(Vocabulary((*made.words, *SPECIAL))), LONGEST + 3)
    partition = build_partition(made.corpus, Iid(7), seed=5, test_share=0.0)
    slow, report = encode_bag_clients(made.corpus, partition, encoding)
    assert report.cut == 0 and fast.examples.label_names == slow.label_names
    relation_of = made.corpus.relation_names
    for one, two, truth in zip(fast.examples.clients, slow.clients, fast.truth, strict=True):
        assert one.client_id == two.client_id and one.train.keys() == two.train.keys()
        for name, array in two.train.items():
            np.testing.assert_array_equal(one.train[name], array, name, strict=True)
        held = partition.clients[one.client_id].train
        sentences = {s.sentence_id: s for s in made.corpus.sentences}
        stated = [made.expressed[i] for i in held for _ in sentences[i].relations]
        assert truth.tolist() == [relation_of[y] == word for y, word in zip(one.train["y"], stated, strict=True)]
    assert fast.num_triples == len(made.corpus.triples) == 60
    assert fast.vocabulary_size == len(Vocabulary((*made.words, *SPECIAL)))


def test_arrays_that_cannot_be():
    options = PlantedOptions(10, 0.5)
    assert refused(planted_arrays, options, 2, max_length=25) == "max_length is smaller than 26; use at least 26"
    assert refused(planted_arrays, options, 31).startswith("31 clients cannot share 30 samples")


def test_a_plan_of_the_size_of_nyt10_is_quickly_drawn():
    options = PlantedOptions(
        251_928, 0.5, num_sentences=466_876, num_relations=52, num_triples=290_000, unrelated_share=0.94
    )
    plan = draw_plan(options)
    assert len(plan.bag) == 466_876 and sum(map(len, plan.labels)) == 290_000
    assert len(np.unique(plan.bag)) == 251_928
