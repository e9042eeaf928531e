"""Entities of IMCS-V2's sentences: from tags of characters, by dialogue and by line; the shipped ones; refusals."""

import json
from collections import Counter

import pytest
from datasets_for_tests import SECRET, dialogue, refused, sentence, write_gz, write_json

from datasets.dialogues.loading import load_corpus
from datasets.entities.dialogues import ENTITY_TYPES
from datasets.entities.encoding import TaggedPieceEncoding, TaggedTokenEncoding
from datasets.entities.loading import load_entities
from datasets.entities.records import EntitySpan
from datasets.entities.scoring import SpanCounts, dictionary, score_spans, tag_with_dictionary
from datasets.entities.tags import spans_of
from datasets.text import CharacterEncoding

TAGS = "O O O O B-Symptom I-Symptom O B-Operation"
"""Of the eight characters of `SECRET`; the last one is none that a tagger would make."""


def spans_in(corpus):
    return [[(span.start, span.end, span.type) for span in sample.spans] for sample in corpus.samples]


def test_dialogues(tmp_path):
    path = write_json(
        tmp_path / "dev.json",
        {
            "7": dialogue(
                sentence(1, BIO_label=TAGS, dialogue_act="Inform-Symptom"),
                sentence(2, "", BIO_label=""),
                diagnosis="小儿发热",
            ),
            "8": dialogue(sentence(1, "吃药", BIO_label=" O I-Drug\n", speaker="医生")),
        },
    )
    corpus = load_entities("imcs_v2_entities", path=path, split="dev")
    assert corpus.name == "imcs_v2_entities" and corpus.entity_types == ENTITY_TYPES
    assert spans_in(corpus) == [[(4, 6, "Symptom"), (7, 8, "Operation")], [], [(1, 2, "Drug")]]
    assert [(s.sample_id, s.document_id, s.label) for s in corpus.samples] == [
        ("7/1", "7", 1),
        ("7/2", "7", 0),
        ("8/1", "8", 3),
    ]
    assert corpus.samples[0].fields == {
        "speaker": "患者",
        "diagnosis": "小儿发热",
        "dialogue_act": "Inform-Symptom",
        "document": "7",
    }
    assert dict(corpus.samples[2].more) == {"speaker": "医生"} and SECRET not in repr(corpus)
    chosen = load_entities("imcs_v2_entities", path=path, entity_types=["Operation", "Drug"])
    assert spans_in(chosen) == [[(7, 8, "Operation")], [], [(1, 2, "Drug")]]
    assert chosen.label_names == ("no entity", "Operation", "Drug") and [s.label for s in chosen.samples] == [1, 0, 2]


@pytest.mark.parametrize(
    "tags, expected",
    [
        (TAGS[:-12], '"BIO_label" has 7 tags, the sentence 8 characters; give every character of the sentence a tag'),
        (
            TAGS.replace("I-Symptom", "X-Symptom"),
            'tag number 6 of "BIO_label" is unknown; use O, B- or I- and one of Symptom, Medical_Examination, Drug, '
            "Drug_Category, Operation",
        ),
        (None, 'has no "BIO_label"; use a file with the tags of named entities'),
        ("", 'has no "BIO_label"; use a file with the tags of named entities'),
        (TAGS.split(), '"BIO_label" is not a string; make it a string'),
    ],
)
def test_malformed_tags_are_refused_with_file_and_id(tmp_path, tags, expected):
    more = {} if tags is None else {"BIO_label": tags}
    path = write_json(tmp_path / "f.json", {"7": dialogue(sentence("x2", **more))})
    message = refused(load_entities, "imcs_v2_entities", path=path)
    where = "dialogue 7, sentence number 1" if isinstance(tags, list) else "sentence 7/x2"
    assert message == f"{path}: {where}: {expected}"


def test_other_tasks_read_the_same_file_without_looking_at_its_tags(tmp_path):
    path = write_json(tmp_path / "f.json", {"7": dialogue(sentence(BIO_label="B-Wrong"))})
    assert len(load_corpus("imcs_v2", path=path).samples) == 1


def test_sentences_without_dialogues(tmp_path):
    lines = [{"sentence": SECRET, "BIO_label": TAGS}, {"sentence": "好", "BIO_label": "O"}]
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    corpus = load_entities("imcs_v2_sentences", path=write_gz(tmp_path / "f.gz", data))
    assert spans_in(corpus) == [[(4, 6, "Symptom"), (7, 8, "Operation")], []]
    ids = ["imcs_v2_sentences-train-1", "imcs_v2_sentences-train-2"]
    assert [s.sample_id for s in corpus.samples] == [s.document_id for s in corpus.samples] == ids


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", "has no sentences; give it at least one"),
        ('{"sentence": "好"}', 'line 1: has no "BIO_label"; add the key "BIO_label"'),
        (
            '{"sentence": "好", "BIO_label": "O O"}',
            'line 1: "BIO_label" has 2 tags, the sentence 1 characters; give every',
        ),
        ("[1]", "line 1: it is not an object; make it an object"),
        ("{", "line 1: byte 1: is not JSON"),
    ],
)
def test_malformed_lines(tmp_path, text, expected):
    path = tmp_path / "f.jsonl"
    path.write_text(text, encoding="utf-8")
    assert refused(load_entities, "imcs_v2_sentences", path=path).startswith(f"{path}: {expected}")


def test_unknown_types_and_options():
    message = refused(load_entities, "shipped_entities", entity_types=["Drugs"])
    assert message == "type Drugs: there is no such type; did you mean 'Drug'?"
    assert "has no entity type" in refused(load_entities, "shipped_entities", entity_types=[])
    message = refused(load_entities, "shipped_entities", nested="outermost")
    assert message == "data set shipped_entities: has no use for nested; leave nested out"


@pytest.mark.parametrize("split, counts", [("train", (172, 33, 29, 17, 9)), ("dev", (41, 18, 4, 1, 1))])
def test_the_shipped_entities_are_what_their_readme_says(split, counts):
    corpus = load_entities("shipped_entities", split=split)
    counted = Counter(span.type for sample in corpus.samples for span in sample.spans)
    assert tuple(counted[name] for name in ENTITY_TYPES) == counts
    texts = load_corpus("shipped", split=split)
    assert [(s.sample_id, s.text) for s in corpus.samples] == [(s.sample_id, s.text) for s in texts.samples]
    for sample in corpus.samples:
        mentions = [sample.text[span.start : span.end] for span in sample.spans]
        assert not any(c in "，。？！、 " for mention in mentions for c in mention)


def test_a_shipped_sentence():
    samples = {sample.sample_id: sample for sample in load_entities("shipped_entities").samples}
    assert samples["20260001/7"].spans == (EntitySpan(6, 9, "Drug_Category"), EntitySpan(20, 23, "Drug_Category"))


@pytest.mark.real_data
def test_imcs_v2(data_dir):
    corpus = load_entities("imcs_v2_entities", data_dir, split="dev")
    assert (len(corpus.samples), len({s.document_id for s in corpus.samples})) == (26_800, 679)
    counts = Counter(span.type for sample in corpus.samples for span in sample.spans)
    assert [counts[name] for name in ENTITY_TYPES] == [12_136, 1_888, 2_495, 1_332, 856]
    assert sum(bool(sample.spans) for sample in corpus.samples) == 11_283


@pytest.mark.real_data
def test_tokens_of_imcs_v2(data_dir):
    """Each character is a token; pieces of a Chinese encoder are characters but for a few numbers and Latin words."""
    from transformers import AutoTokenizer

    corpus = load_entities("imcs_v2_entities", data_dir, split="dev")
    characters = CharacterEncoding.build({"all": [sample.text for sample in corpus.samples]}, max_length=128)
    report = TaggedTokenEncoding(characters, corpus.entity_types).encode(corpus.samples).report
    assert (report.entities, report.cut, report.cut_off, report.inside, report.unknown) == (18_707, 13, 15, 0, 0)
    tokenizer = AutoTokenizer.from_pretrained(str(data_dir / "encoders" / "e5_small_zh"))
    encoding = TaggedPieceEncoding(tokenizer, corpus.entity_types, max_length=128)
    encoded = encoding.encode(corpus.samples)
    assert (encoded.report.cut, encoded.report.cut_off, encoded.report.inside) == (14, 16, 6)
    _, offsets = encoding.encode_texts([sample.text for sample in corpus.samples])
    tags = encoded.arrays["tags"]
    decoded = [
        spans_of(row[row >= 0].tolist(), where[row >= 0].tolist(), corpus.entity_types)
        for row, where in zip(tags, offsets, strict=True)
    ]
    micro = score_spans([sample.spans for sample in corpus.samples], decoded, corpus.entity_types).micro
    assert micro == SpanCounts(18_685, 18_685, 18_707, 18_685, 18_685)


@pytest.mark.real_data
def test_the_dictionary_baseline_of_imcs_v2(data_dir):
    train, dev = load_entities("imcs_v2_sentences", data_dir), load_entities("imcs_v2_entities", data_dir, split="dev")
    predicted = tag_with_dictionary([sample.text for sample in dev.samples], dictionary(train.samples))
    scores = score_spans([sample.spans for sample in dev.samples], predicted, dev.entity_types)
    assert scores.micro == SpanCounts(14_738, 27_602, 18_707, 17_943, 17_716)
    assert (round(scores.micro.f1, 4), round(scores.micro.lenient_f1, 4)) == (0.6365, 0.7709)


@pytest.mark.real_data
def test_imcs_v2_sentences(data_dir):
    corpus = load_entities("imcs_v2_sentences", data_dir)
    assert len(corpus.samples) == len({s.document_id for s in corpus.samples}) == 98_529
    counts = Counter(span.type for sample in corpus.samples for span in sample.spans)
    assert [counts[name] for name in ENTITY_TYPES] == [46_657, 6_381, 8_143, 5_167, 2_924]
