"""Counts of the published corpora, from the folder that TFF_RE_DATA names."""

from collections import Counter

import pytest

from datasets.dialogues.imcs_v2 import read_dialogues
from datasets.dialogues.loading import load_corpus, symptom_vocabulary
from datasets.text import Segmenter

pytestmark = pytest.mark.real_data


def label_counts_of(corpus):
    counts = Counter(s.label for s in corpus.samples)
    return [counts[c] for c in range(len(corpus.label_names))]


def test_mie(data_dir):
    assert len(read_dialogues(data_dir / "mie" / "dev.imcs_v2.json.gz")) == 160
    presence = load_corpus("mie", data_dir, split="dev")
    assert label_counts_of(presence) == [1898, 796]
    assert len({s.document_id for s in presence.samples}) == 160 and len(presence.samples) == 2694
    kinds = load_corpus("mie", data_dir, split="dev", label="symptom_type")
    assert label_counts_of(kinds) == [41, 329, 375]
    assert kinds.notes[:2] == (
        "1898 sentences without a symptom left out",
        "51 sentences with symptoms of several types left out",
    )
    words = symptom_vocabulary("mie", data_dir)
    assert len(words) == 45
    segmented = Segmenter(words).segment(s.text for s in presence.samples)
    assert len(segmented) == 2694 and any("心肌缺血" in words for words in segmented)


def test_mie_windows(data_dir):
    expected = {
        "symptom_mentioned": [537, 2157],
        "test_mentioned": [1537, 1157],
        "surgery_mentioned": [2473, 221],
        "general_information_mentioned": [2421, 273],
    }
    for label, counts in expected.items():
        corpus = load_corpus("mie_windows", data_dir, split="dev", label=label)
        assert label_counts_of(corpus) == counts
    assert len({s.document_id for s in corpus.samples}) == 160 and corpus.samples[-1].document_id == "mie-dev-159"


def test_dxy(data_dir):
    corpus = load_corpus("dxy", data_dir)
    assert corpus.label_names == ("上呼吸道感染", "小儿手足口病", "小儿腹泻", "肺炎", "过敏性鼻炎")
    assert label_counts_of(corpus) == [98, 81, 82, 80, 82] and len(corpus.samples) == 423
    assert corpus.notes == ("7 consultations occur more than once in the file",)


def test_mie_sentences_are_the_windows_last_utterances(data_dir):
    sentences = load_corpus("mie", data_dir, split="dev").samples
    windows = load_corpus("mie_windows", data_dir, split="dev").samples
    assert [s.sample_id for s in sentences] == [w.sample_id for w in windows]
    assert all(w.text.endswith(s.text) for s, w in zip(sentences, windows, strict=True))
