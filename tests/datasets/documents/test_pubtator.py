import gzip
import string
from collections import Counter

import pytest
from datasets_for_tests import refused
from hypothesis import given
from hypothesis import strategies as st

from datasets.documents.pubtator import read_pubtator
from datasets.documents.records import Document, EntityMention, Fact
from datasets.errors import DataError

LINES = (
    "1|t|Ocular and auditory toxicity of µ-drug.",
    "1|a|Drug β | gave a toxicity.",
    "1\t0\t28\tOcular and auditory toxicity\tDisease\tD1|D2\tOcular toxicity|auditory toxicity",
    "1\t40\t46\tDrug β\tChemical\tC1",
    "1\t32\t38\tµ-drug\tChemical\t-1",
    "1\t7\t28\tand auditory toxicity\tDisease\tD2",
    "1\tCID\tC1\tD2",
)


def write(folder, *lines, name="some.pubtator"):
    path = folder / name
    path.write_text("".join(line + "\n" for line in lines), "utf-8")
    return path


def problem(folder, *lines, **options):
    with pytest.raises(DataError) as caught:
        read_pubtator(write(folder, *lines), **options)
    message = str(caught.value)
    assert "\n" not in message and caught.value.path and caught.value.remedy
    assert "oxicity" not in message and "drug" not in message.lower(), "texts are not shown"
    return caught.value


def test_a_document(tmp_path):
    tally = Counter()
    (document,) = read_pubtator(write(tmp_path, *LINES, ""), tally=tally)
    assert document == Document(
        "1",
        "Ocular and auditory toxicity of µ-drug. Drug β | gave a toxicity.",
        39,
        (
            EntityMention(0, 28, "Disease", ("D1", "D2")),
            EntityMention(7, 28, "Disease", ("D2",)),
            EntityMention(32, 38, "Chemical", ()),
            EntityMention(40, 46, "Chemical", ("C1",)),
        ),
        (Fact("C1", "CID", "D2"),),
    )
    assert +tally == {"mentions without an identifier": 1, "mentions name several entities": 1}
    assert "toxicity" not in repr(document)
    path = tmp_path / "packed"
    path.write_bytes(gzip.compress("\r\n".join(("", *LINES, " ", "", "2|t|", "2|a|x", "")).encode()))
    assert read_pubtator(path) == (document, Document("2", " x", 0, (), ()))


def test_what_is_irregular_but_clear_is_counted(tmp_path):
    tally = Counter()
    twice = "1\t40\t46\tdrug β\tChemical\tC1"
    (document,) = read_pubtator(write(tmp_path, *LINES, LINES[-1], twice, "1\tCID\tC1\tD9"), tally=tally)
    assert tally["duplicate relations are read once"] == 1
    assert tally["duplicate annotations are read once"] == 1
    assert tally["mentions differ from the text in case"] == 1
    assert tally["relations name an entity that the document does not mention"] == 1
    assert len(document.mentions) == 4 and document.facts[-1] == Fact("C1", "CID", "D9")


def test_aliases_are_one_entity(tmp_path):
    lines = (
        "1|t|ATP ADP AMP.",
        "1|a|atp amp.",
        "1\t0\t3\tATP\tChemMet\tHMDB:1|CHEBI:1",
        "1\t4\t7\tADP\tChemMet\tCHEBI:2",
        "1\t8\t11\tAMP\tChemMet\tCHEBI:3|HMDB:3",
        "1\t13\t16\tatp\tChemMet\tCHEBI:1|HMDB:1",
        "1\t17\t20\tamp\tChemMet\tHMDB:3|HMDB:4",
        "1\tReact\tHMDB:1|CHEBI:1\tCHEBI:2",
        "1\tReact\tCHEBI:2\tHMDB:4|HMDB:3",
        "1\tReact\tCHEBI:3|HMDB:3\tCHEBI:2",
    )
    tally = Counter()
    (document,) = read_pubtator(write(tmp_path, *lines), joined="aliases", tally=tally)
    atp, amp = "CHEBI:1|HMDB:1", "CHEBI:3|HMDB:3|HMDB:4"
    assert [mention.entity_ids for mention in document.mentions] == [(atp,), ("CHEBI:2",), (amp,), (atp,), (amp,)]
    assert document.facts == (
        Fact(atp, "React", "CHEBI:2"),
        Fact("CHEBI:2", "React", amp),
        Fact(amp, "React", "CHEBI:2"),
    )
    assert tally["entities known by different lists of identifiers"] == 1
    error = problem(tmp_path, *lines)
    assert error.line == 8 and "several entities" in error.reason


def test_other_separators(tmp_path):
    lines = ("1|t|p53 and p63", "1|a|", "1\t0\t3\tp53\tGene\t7157;8626")
    (document,) = read_pubtator(write(tmp_path, *lines), separators="|;,")
    assert document.mentions[0].entity_ids == ("7157", "8626")
    (document,) = read_pubtator(write(tmp_path, *lines))
    assert document.mentions[0].entity_ids == ("7157;8626",)


@pytest.mark.parametrize(
    ("position", "line", "reason"),
    [
        (0, "1|a|Drug gave a toxicity.", "has no title"),
        (1, "1|t|again", "has no abstract"),
        (1, "2|a|Drug gave a toxicity.", "id changes"),
        (2, "1\t0\t28\tOcular and auditory toxicity\tDisease", "has 5 columns"),
        (2, "1\t0\t6\tOcular\tDisease", "has 5 columns"),
        (2, "1\t0\t28\tOcular and visual toxicity\tDisease\tD1", "not at its offsets"),
        (2, "1\t60\t69\ttoxicity.\tDisease\tD1", "beyond the text"),
        (2, "1\t5\t5\t\tDisease\tD1", "is empty"),
        (2, "1\t-1\t5\tOcula\tDisease\tD1", "not a whole number"),
        (2, "1\t0\t6\tOcular\tDisease\tD1|", "identifier is empty"),
        (2, "1\t0\t6\tOcular\t \tD1", "no type"),
        (2, "1\t0\t6\tOcular\tDisease\tD1\ta|b", "2 parts has 1 identifiers"),
        (3, "2\t0\t6\tOcular\tDisease\tD1", "id changes"),
        (6, "1\tCID\tC1\t-1", "without an identifier"),
        (6, "1\tCID\tC1\tD1|D2", "several entities"),
        (6, "1\tCID\t\tD1", "identifier is empty"),
        (6, "1\t\tC1\tD1", "no name"),
        (6, "1|a|again", "has 1 columns"),
    ],
)
def test_malformed_lines(tmp_path, position, line, reason):
    error = problem(tmp_path, "", *LINES[:position], line, *LINES[position + 1 :])
    assert reason in error.reason and error.line == position + 2


def test_a_mention_without_an_identifier_is_named_where_relations_have_five_columns(tmp_path):
    error = problem(tmp_path, *LINES[:2], "1\t0\t6\tOcular\tDisease", *LINES[2:], novelty=True)
    assert (error.line, error.reason) == (3, "the mention has no identifier")
    assert error.remedy == "add a sixth column, -1 for none"


def test_malformed_files(tmp_path):
    assert "no documents" in problem(tmp_path, "", " ").reason
    assert "no abstract" in problem(tmp_path, LINES[0]).reason
    assert "no text" in problem(tmp_path, "1|t| ", "1|a|").reason
    error = problem(tmp_path, *LINES, "", *LINES)
    assert "duplicate document" in error.reason and error.line == 9 and error.record == "document 1"
    error = problem(tmp_path, *LINES, kinds=("Chemical",))
    assert str(error).endswith("line 3: unknown entity type in column 5; use one of Chemical")
    error = problem(tmp_path, *LINES[:-1], "1\tSmith\tC1\tD2", relations=("CID",))
    assert str(error).endswith("line 7: unknown relation in column 2; use one of CID")
    assert read_pubtator(write(tmp_path, *LINES), kinds=("Chemical", "Disease"), relations=("CID",))


def test_a_file_cut_within_a_line(tmp_path):
    """Wherever the last line is cut, an identifier that is shorter and well-formed included."""
    other = [line.replace("1", "2", 1) for line in LINES]
    whole = write(tmp_path, *LINES, "", *other)
    data = whole.read_bytes()
    for count in range(1, len(other[-1].encode()) + 1):
        whole.write_bytes(data[:-1][: -count + 1 or None])
        assert refused(read_pubtator, whole) == (
            f"{whole}: line 15: the file ends within this line, without a line feed; "
            "copy or download it again; if nothing is missing, end the line"
        )


def test_a_cut_relation_whose_line_was_ended_again(tmp_path):
    lines = [line.replace("C1", "CHEBI:15377").replace("D2", "D0002") for line in LINES]
    assert read_pubtator(write(tmp_path, *lines))
    for cut in range(1, 4):
        error = problem(tmp_path, *lines[:-1], lines[-1][:-cut], "", *[line.replace("1", "2", 1) for line in LINES])
        assert error.line == 7 and error.reason == "the relation names the beginning of an identifier: the line is cut"
    # One that is no part of a mention's is irregular and clear, and so is one before other lines.
    assert read_pubtator(write(tmp_path, *lines, "1\tCID\tC9\tD0002"))
    assert read_pubtator(write(tmp_path, *lines[:-1], lines[-1][:-1], lines[-1]))


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\t\ufeff"), min_size=1, max_size=30).filter(
    lambda text: bool(text.strip())
)
IDENTIFIERS = st.text(string.ascii_letters + string.digits + ":", min_size=1, max_size=6)


@st.composite
def documents(draw, number=1):
    title, abstract = draw(TEXTS), draw(TEXTS)
    text = f"{title} {abstract}"
    mentions = {}
    for _ in range(draw(st.integers(0, 5))):
        start = draw(st.integers(0, len(text) - 1))
        end = draw(st.integers(start + 1, len(text)))
        ids = tuple(draw(st.lists(IDENTIFIERS, max_size=3, unique=True)))
        mentions[start, end, draw(st.sampled_from("AB")), tuple(sorted(ids))] = ids
    listed = sorted((EntityMention(*k[:3], ids) for k, ids in mentions.items()), key=lambda m: (m.start, m.end))
    known = sorted({i for ids in mentions.values() for i in ids})
    pairs = draw(st.lists(st.tuples(*[st.sampled_from(known)] * 2), unique=True, max_size=3)) if known else []
    facts = tuple(Fact(head, "R", tail) for head, tail in pairs)
    return Document(f"d{number}", text, len(title), tuple(listed), facts)


def lines_of(document):
    text, length, name = document.text, document.title_length, document.document_id
    yield f"{name}|t|{text[:length]}"
    yield f"{name}|a|{text[length + 1 :]}"
    for m in document.mentions:
        yield "\t".join((name, str(m.start), str(m.end), text[m.start : m.end], m.kind, "|".join(m.entity_ids) or "-1"))
    for fact in document.facts:
        yield "\t".join((name, fact.relation, fact.head_id, fact.tail_id))
    yield ""


@given(st.integers(1, 3).flatmap(lambda n: st.tuples(*(documents(i) for i in range(n)))))
def test_documents_survive_a_file(tmp_path_factory, some):
    path = write(tmp_path_factory.mktemp("round"), *(line for document in some for line in lines_of(document)))
    read = read_pubtator(path)
    assert read == some
