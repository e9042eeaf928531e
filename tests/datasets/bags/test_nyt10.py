import json

import pytest
from bag_files import REL2ID, entity, line, write_bags
from datasets_for_tests import SECRET, refused
from hypothesis import given
from hypothesis import strategies as st

from datasets.bags import mirgene, nyt10
from datasets.errors import DataError
from datasets.text.relation_layout import as_text, marked


def read(folder, *lines, rel2id=REL2ID, **options):
    return nyt10.read(write_bags(folder, *lines, rel2id=rel2id)[0], **options)


def test_lines_of_a_pair_with_two_relations_are_one_sentence(tmp_path):
    other = line("Bonn bore Ann .", "born in", entity("Ann", 10), entity("Bonn", 0))
    corpus = read(
        tmp_path, line(relation="lives in"), line(), other, line("Ann is of Bonn .", "NA", tail=entity("is", 4))
    )
    assert [(s.sentence_id, s.head_text, s.tail_text, s.relations, s.label) for s in corpus.sentences] == [
        ("nyt10-train-1", "Ann", "Bonn", ("born in", "lives in"), 1),
        ("nyt10-train-3", "Ann", "Bonn", ("born in", "lives in"), 1),
        ("nyt10-train-4", "Ann", "is", ("NA",), 0),
    ]
    assert corpus.triples == ((0, 1), (0, 2), (1, 0))
    assert corpus.notes == ("1 lines repeat a sentence of their pair and are read once",)
    assert corpus.sentences[0].pair == ("id of Ann", "id of Bonn") and corpus.relation_names == tuple(REL2ID)


def test_what_is_the_same_and_what_is_not(tmp_path):
    text = "Ann of Bonn , Ann"
    lines = [line(text, head=entity("Ann", start), tail=entity("Bonn", 7)) for start in (0, 14)]
    assert [s.head for s in read(tmp_path, *lines).sentences] == [(0, 3), (14, 17)], "other positions"
    head = {"id": "1", "name": "New_York", "pos": [0, 9]}
    tail = {"id": "2", "name": "STRASSE", "pos": [15, 21]}
    record = line("new  york near Straße", head=head, tail=tail)
    assert read(tmp_path, record).sentences[0].head_text == "new  york", "case, underscores and blanks"
    corpus = read(tmp_path, line("Ann, Bonn", "NA", tail=entity("Bonn", 5)), line())
    assert {s.relations for s in corpus.sentences} == {("born in",)}
    assert corpus.notes == ("1 pairs have both a relation and NA; they count as related",)
    corpus = read(tmp_path, line(relation="b"), rel2id={"b": 9, "NA": 7, "a": 0})
    assert corpus.relation_names == ("NA", "a", "b") and corpus.sentences[0].label == 2


BROKEN = [
    ("{", f"byte {len(json.dumps(line())) + 2}: is not JSON"),
    ("", "is empty; remove the empty line"),
    ("[1]", "the line is not an object"),
    (json.dumps({"token": ["Ann"], "relation": "NA"}), 'has tokens and no text; give the text as "text"'),
    (json.dumps({"relation": "NA"}), 'has no "text"; add the key "text"'),
    (line(text=" \t"), "its bag is empty here: the text is blank; give the sentence"),
    (line(relation="eats"), "its relation is not in the file of relations; add it there, or correct the line"),
    ({key: value for key, value in line().items() if key != "relation"}, 'has no "relation"'),
    ({key: value for key, value in line().items() if key != "t"}, 'has no "t"'),
    (line(head={"name": "Ann", "pos": [0, 3]}), 'entity h: has no "id"'),
    (line(tail={"id": "", "name": "Bonn", "pos": [10, 14]}), 'entity t: "id" is not an id'),
    (line(head={"id": "1", "pos": [0, 3]}), 'entity h: has no "name"'),
    (line(head={"id": "1", "name": "Ann"}), 'entity h: has no "pos"'),
    (line(head={"id": "1", "name": "Ann", "pos": [0, True]}), 'entity h: "pos" is not two whole numbers'),
    (line(head={"id": "1", "name": "Ann", "pos": [0, 1, 3]}), 'entity h: "pos" is not two whole numbers'),
    (line(tail=entity("Bonn", 10, 17)), "entity t: its position 10:17 is empty or lies beyond the text"),
    (line(head=entity("Ann", -3, 3)), "entity h: its position -3:3 is empty or lies"),
    (line(tail=entity("Bonn", 9, 13)), "entity t: its name is not at its position; correct"),
    (line(head=entity(SECRET, 0, 3)), "entity h: its name is not at its position"),
    (line(text=SECRET), "entity h: its name is not at its position"),
]


@pytest.mark.parametrize("broken, expected", BROKEN)
def test_a_malformed_line_is_named(tmp_path, broken, expected):
    path, _ = write_bags(tmp_path, line(), broken, line())
    message = refused(nyt10.read, path)
    assert message.startswith(f"{path}: line 2: ") and expected in message


def test_misplaced_entities_left_out_are_counted(tmp_path):
    wrong = [line(tail=entity("Bonn", 9, 13)), line(tail=entity("Bonn", 10, 99))]
    corpus = read(tmp_path, line(), *wrong, misplaced="leave_out")
    assert len(corpus.sentences) == 1
    assert corpus.notes == ("2 lines left out, an entity is not in its sentence",)
    message = refused(read, tmp_path, *wrong, misplaced="leave_out")
    assert message.endswith("has no sentences; give it at least one line")
    assert "unknown way" in refused(read, tmp_path, line(), misplaced="skip")
    malformed = line(head={"id": "1", "name": "Ann", "pos": "0"})
    assert 'line 1: entity h: "pos" is not a list' in refused(read, tmp_path, malformed, misplaced="leave_out")


@pytest.mark.parametrize(
    "rel2id, expected",
    [
        ({"born in": 1}, 'has no relation "NA"; add it'),
        ({"NA": 0, "born in": 0}, "two relations have the same number"),
        ({"NA": "0"}, "the number of relation 1 is not a whole number"),
        ({"NA": 0, " ": 1}, "the name of relation 2 is blank"),
        (["NA"], "the file is not an object"),
    ],
)
def test_a_malformed_file_of_relations(tmp_path, rel2id, expected):
    path, relations = write_bags(tmp_path, line(), rel2id=rel2id)
    assert refused(nyt10.read, path).startswith(f"{relations}: {expected}")


def test_mirgene_has_two_relations_and_may_name_pairs_by_a_key(tmp_path):
    def write(*lines, rel2id=("NA", "regulates")):
        return write_bags(tmp_path, *lines, rel2id={name: n for n, name in enumerate(rel2id)}, name="mirgene")[0]

    nameless = {"name": "Ann", "pos": [0, 3]}, {"name": "Bonn", "pos": [10, 14]}
    named = line("Ann is of Bonn .", "regulates", *nameless, entity_pair="Ann#Bonn")
    corpus = mirgene.read(write(named, line(relation="NA")))
    assert corpus.pairs == (("Ann#Bonn", "Ann#Bonn"), ("id of Ann", "id of Bonn"))
    assert corpus.sentences[0].sentence_id == "mirgene-train-1" and corpus.sentences[0].head_type == "microRNA"
    path = write(named, rel2id=("NA", "regulates", "other"))
    assert refused(mirgene.read, path).startswith(f"{path}: its file of relations has 3; give it two")
    del named["entity_pair"]
    assert refused(mirgene.read, write(named)).startswith(f'{path}: line 1: has no "entity_pair"')


NAMES = st.text("abÉ頭𝄞 -", min_size=1, max_size=5).filter(str.strip)


@st.composite
def bag_lines(draw):
    """Lines of pairs whose names stand where they say, a pair with one set of relations."""
    relations_of, lines = {}, []
    for _ in range(draw(st.integers(1, 8))):
        head, tail = draw(NAMES), draw(NAMES)
        before, between, after = (draw(st.text('xyz é\n\\"', max_size=4)) for _ in range(3))
        pair = f"H{draw(st.integers(0, 2))}", f"T{draw(st.integers(0, 2))}"
        drawn = draw(st.sampled_from([("NA",), ("born in",), ("born in", "lives in")]))
        entities = (
            entity(head, len(before), identifier=pair[0]),
            entity(tail, len(before + head + between), identifier=pair[1]),
        )
        for relation in relations_of.setdefault(pair, drawn):
            lines.append(line(before + head + between + tail + after, relation, *entities))
    return relations_of, lines


@given(bag_lines())
def test_what_is_written_is_read(tmp_path_factory, case):
    relations_of, lines = case
    corpus = read(tmp_path_factory.mktemp("t"), *lines)
    expected = {}
    for record in lines:
        key = (record["h"]["id"], record["t"]["id"], record["text"], *record["h"]["pos"], *record["t"]["pos"])
        expected[key] = relations_of[key[:2]]
    spans_read = [(*s.pair, s.text, *s.head, *s.tail) for s in corpus.sentences]
    assert spans_read == list(expected) and [s.relations for s in corpus.sentences] == list(expected.values())
    assert {pair: corpus.sentences[rows[0]].relations for pair, rows in corpus.bags.items()} == relations_of
    assert all("<e1>" in as_text(marked(s)) for s in corpus.sentences)


JUNK = st.none() | st.booleans() | st.integers(-3, 30) | st.floats(allow_nan=False) | st.text("aé頭", max_size=3)
VALUES = st.recursive(JUNK, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("idnameposht"), inner))


@given(st.data())
def test_a_line_that_is_changed_anywhere_is_read_or_refused_by_its_number(tmp_path_factory, data):
    changed = json.loads(json.dumps(line()))
    target = changed
    if data.draw(st.booleans()):
        target = changed[data.draw(st.sampled_from("ht"))]
    key = data.draw(st.sampled_from(sorted(target)))
    if data.draw(st.booleans()):
        del target[key]
    else:
        target[key] = data.draw(VALUES)
    path, _ = write_bags(tmp_path_factory.mktemp("t"), line(), line(), changed)
    try:
        corpus = nyt10.read(path)
    except DataError as error:
        assert error.path == str(path) and error.line == 3 and error.remedy
    else:
        assert corpus.sentences[0].head_text == "Ann"


def test_older_forms_are_named(tmp_path):
    for first, problem in (
        (f"m.01\tm.02\tann\tbonn\t/people/born\t{SECRET} ann bonn . ###END###", "is NYT10's older form (columns"),
        (f'[{{"sentence": "{SECRET}"}}]', "is one JSON list, OpenNRE's older form"),
    ):
        path, _ = write_bags(tmp_path, first)
        text = refused(nyt10.read, path)
        assert text.startswith(f"{path}: line 1: {problem}") and text.endswith("download_nyt10.sh there gets")
