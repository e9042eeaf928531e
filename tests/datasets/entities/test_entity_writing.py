"""What is written in a form is read again as the same samples."""

import itertools

import pytest
from datasets_for_tests import SECRET, refused
from entity_files import text_with, write
from hypothesis import given
from hypothesis import strategies as st

from datasets.entities.neutral import read
from datasets.entities.records import EntitySample, EntitySpan, label_of
from datasets.entities.writing import to_brat, to_conll, to_json_lines, to_pubtator

TYPES = ("a", "adverse-effect", "药")
LINE = st.characters(blacklist_categories=["Cs"], blacklist_characters="\t\n\r\ufeff")
ANY = st.characters(blacklist_categories=["Cs"], blacklist_characters="\ufeff") | st.sampled_from("\n\r\t 😀.")
IDS = st.text("ab 7.-药", min_size=1).map(str.strip).filter(lambda name: name and not name.startswith("."))


def flat_spans(draw, borders):
    """Spans between some of these borders of a text."""
    chosen = sorted(draw(st.sets(st.sampled_from(borders), max_size=6))) if len(borders) > 1 else []
    return tuple(
        EntitySpan(start, end, draw(st.sampled_from(TYPES)))
        for start, end in itertools.pairwise(chosen)
        if draw(st.booleans())
    )


@st.composite
def samples(draw, characters, more=None):
    """Samples with different ids, as a reader of the split `dev` gives them."""
    result = []
    for sample_id in draw(st.lists(IDS, min_size=1, max_size=4, unique=True)):
        text = draw(st.text(characters, min_size=1, max_size=30).filter(str.strip))
        spans = flat_spans(draw, range(len(text) + 1))
        fields = {} if more is None else draw(more)
        document = sample_id if more is None else draw(IDS)
        result.append(EntitySample(f"dev-{sample_id}", document, text, spans, label_of(spans, TYPES), fields))
    return tuple(result)


FIELDS = st.dictionaries(st.sampled_from(["group", "ward", "year_2"]), st.sampled_from(["x", "1 = 2", "# 药"]))


def read_again(path):
    return read(path, split="dev", entity_types=TYPES).samples


@given(samples(ANY, more=FIELDS))
def test_json_lines(tmp_path_factory, drawn):
    path = write(tmp_path_factory.mktemp("own") / "a.jsonl", to_json_lines(drawn, "dev"))
    assert read_again(path) == drawn


@given(samples(LINE))
def test_pubtator(tmp_path_factory, drawn):
    path = write(tmp_path_factory.mktemp("own") / "a.pubtator.gz", to_pubtator(drawn, "dev"))
    assert read_again(path) == drawn


@given(samples(ANY))
def test_brat(tmp_path_factory, drawn):
    folder = tmp_path_factory.mktemp("own") / "new"
    files = to_brat(folder, drawn, "dev")
    assert len(files) == 2 * len(drawn) and all(file.exists() for file in files)
    assert read_again(folder) == tuple(sorted(drawn, key=lambda sample: f"{sample.document_id}.txt"))


@st.composite
def sentences(draw):
    """Samples whose text is tokens joined by one blank, and the tokens."""
    word = st.text(LINE, min_size=1, max_size=4).filter(lambda word: word.strip())
    drawn, tokens = [], []
    for sample in draw(samples(st.just("a"), more=FIELDS)):
        words, places = draw(st.lists(word, min_size=1, max_size=6)), []
        for text in words:
            start = places[-1][1] + 1 if places else 0
            places.append((start, start + len(text)))
        borders = sorted(draw(st.sets(st.integers(0, len(words)), max_size=6)))
        spans = tuple(
            EntitySpan(places[first][0], places[last - 1][1], draw(st.sampled_from(TYPES)))
            for first, last in itertools.pairwise(borders)
        )
        drawn.append(
            EntitySample(
                *(sample.sample_id, sample.document_id, " ".join(words)), spans, label_of(spans, TYPES), sample.more
            )
        )
        tokens.append(places)
    return tuple(drawn), tokens


@given(sentences())
def test_conll(tmp_path_factory, drawn):
    sentences, tokens = drawn
    path = write(tmp_path_factory.mktemp("own") / "a.conll", to_conll(sentences, tokens, "dev"))
    assert read_again(path) == sentences


def test_what_the_files_look_like(tmp_path):
    sample = text_with("given-1", "Ab\ncd e.", (0, 5, "a"), (6, 7, "b"), document="d", more={"ward": "north"})
    assert to_json_lines([sample]) == (
        '{"ward": "north", "id": "given-1", "document": "d", "text": "Ab\\ncd e.", '
        '"entities": [[0, 5, "a"], [6, 7, "b"]]}\n'
    )
    assert to_pubtator([sample, text_with("x", "c")], "given") == (
        "1|t|Ab\n1|a|cd e.\n1\t0\t5\tAb cd\ta\t-1\n1\t6\t7\te\tb\t-1\n\nx|t|c\nx|a|\n"
    )
    assert to_conll([sample], [[(0, 2), (3, 5), (6, 7), (7, 8)]], "given") == (
        "# id = 1\n# document = d\n# ward = north\nAb\tB-a\ncd\tI-a\ne\tB-b\n.\tO\n\n"
    )
    texts, annotations = to_brat(tmp_path / "brat", [sample], "given")
    assert texts.read_bytes() == b"Ab\ncd e." and annotations.read_bytes() == b"T1\ta 0 2;3 5\tAb cd\nT2\tb 6 7\te\n"
    names = {file.name for file in to_brat(tmp_path, [text_with(i, "x") for i in ("a/b", "a%2Fb", ".c", "药 1")])}
    assert {"a%2Fb.txt", "a%252Fb.txt", "%2Ec.txt", "药 1.ann"} <= names


TOKENS = [[(0, 2), (3, 5)]]


def test_what_a_form_cannot_hold_is_refused(tmp_path):
    sample = text_with("s", f"ab cd {SECRET}", (0, 4, "a"))
    message = refused(to_conll, [sample], TOKENS)
    assert (
        message == "sample s: the entity 0:4 does not begin and end with a token; write another form, which has offsets"
    )
    for reason, text, tokens in (
        ("has no tokens", "ab", [[]]),
        ("a token is blank, or has a tab or a line's end", "a\tb", [[(0, 3)]]),
        ("a token is blank", "a b", [[(0, 1), (1, 2)]]),
        ("a token is -DOCSTART-, or begins with a byte order mark", "-DOCSTART-", [[(0, 10)]]),
        ("a token is -DOCSTART-, or begins with", "\ufeffa", [[(0, 2)]]),
    ):
        assert f"sample s: {reason}" in refused(to_conll, [text_with("s", text)], tokens)
    for more in ({"ward": "a\nb"}, {"ward": " a"}, {"my ward": "a"}, {"ward": ""}):
        message = refused(to_conll, [text_with("s", "ab cd", more=more)], TOKENS)
        assert "cannot be written as # key = value; write JSON lines" in message
    with pytest.raises(ValueError, match="zip"):
        to_conll([sample], [])
    for sample_id in ("a|b", "a\tb", "\n"):
        assert "its id has a tab, a line's end or |; rename it" in refused(to_pubtator, [text_with(sample_id, "x")])
    spaced = text_with("s", "ab", (0, 1, "my type"), types=("my type",))
    assert to_pubtator([spaced]).endswith("\tmy type\t-1\n")
    assert "sample s: the type of an entity has a blank; rename the type, or" in refused(
        to_brat, tmp_path / "new", [spaced]
    )
    assert "its text begins with a byte order mark" in refused(to_brat, tmp_path, [text_with("s", "\ufeffab")])
    to_brat(tmp_path, [text_with("s", "ab")])
    assert refused(to_brat, tmp_path, [text_with("r", "ab"), text_with("s", "ab")]) == (
        f"{tmp_path / 's.txt'}: already exists; name a new folder"
    )
    assert not (tmp_path / "new").exists() and not (tmp_path / "r.txt").exists(), "nothing is written"
