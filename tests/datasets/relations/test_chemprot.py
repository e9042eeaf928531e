import pytest
from datasets_for_tests import SECRET, refused
from hypothesis import given
from hypothesis import strategies as st
from relation_files import mentions_of, write, write_objects

from datasets.relations import chemprot, chemprot_release
from datasets.relations.sentences import split_sentences
from datasets.text.relation_layout import from_inline_markers, with_inline_markers


def line(text=f"{SECRET} << α >> [[ b ]].", label="INHIBITOR"):
    return {"text": text, "label": label, "metadata": []}


def test_sentence_form(tmp_path):
    path = write_objects(
        tmp_path / "t.jsonl",
        line("<< A >> inhibits ([[ B ]]) and C."),
        line("<< A >> inhibits (B) and [[ C ]].", "ANTAGONIST"),
        line("a >> << 4-[4-[[(1,1)amino]x >> of [[ y-[[(2) ]] >> 3 ]] ε", "PRODUCT-OF"),
        *[line("<< A >> inhibits (B) and [[ C ]].", "AGONIST")] * 2,
    )
    corpus = chemprot.read(path)
    assert mentions_of(corpus) == [
        ("chemprot-train-00001/1", "A", "B", "CPR:4"),
        ("chemprot-train-00001/2", "A", "C", "CPR:6"),
        ("chemprot-train-00002/1", "4-[4-[[(1,1)amino]x", "y-[[(2)", "CPR:9"),
        ("chemprot-train-00001/3", "A", "C", "CPR:5"),
        ("chemprot-train-00001/4", "A", "C", "CPR:5"),
    ]
    assert corpus.mentions[0].text == "A inhibits (B) and C." and corpus.negative is None
    assert corpus.mentions[2].text == "a >> 4-[4-[[(1,1)amino]x of y-[[(2) >> 3 ]] ε"
    assert corpus.relation_names == tuple(f"CPR:{n}" for n in (3, 4, 5, 6, 9))
    assert corpus.notes[1:] == ("1 duplicate lines are kept", "1 pairs have several relations")
    names = chemprot.read(path, label="names", split="dev")
    assert len(names.relation_names) == 13 and names.mentions[2].relation == "PRODUCT-OF"
    assert names.mentions[0].sample_id == "chemprot-dev-00001/1"


OVERLAPPING = {
    "nested": ("<< NMDA [[ R ]] >> x", "NMDA R x", (0, 6), (5, 6)),
    "nested the other way": ("[[ << NMDA >> R ]] x", "NMDA R x", (0, 4), (0, 6)),
    "crossed": ("<< a [[ b >> c ]] x", "a b c x", (0, 3), (2, 5)),
    "crossed the other way": ("[[ a << b ]] c >> x", "a b c x", (2, 5), (0, 3)),
    "the same": ("<< [[ a ]] >> x", "a x", (0, 1), (0, 1)),
}


@pytest.mark.parametrize("text, plain, head, tail", OVERLAPPING.values(), ids=OVERLAPPING)
def test_overlapping_mentions(tmp_path, text, plain, head, tail):
    corpus = chemprot.read(write_objects(tmp_path / "t", line(text)))
    (mention,) = corpus.mentions
    assert (mention.text, mention.head, mention.tail) == (plain, head, tail) and mention.overlapping
    assert corpus.notes[1:] == ("1 pairs of overlapping mentions",)
    marked = from_inline_markers(with_inline_markers(mention))
    assert (marked.text, marked.head, marked.tail) == (plain, head, tail)


@pytest.mark.parametrize(
    "value, expected",
    [
        ([SECRET], "it is not an object"),
        ({"text": SECRET}, "the mark << >> opens 0 times"),
        (line(f"{SECRET} << a >> b"), "the mark [[ ]] opens 0 times"),
        (line(f"{SECRET} << a >> << b >> [[ c ]]"), "the mark << >> opens 2 times"),
        (line(f"{SECRET} << a [[ c ]]"), "the mark << >> is never closed"),
        (line(f"]] >> {SECRET} << a >> [[ c"), "the mark [[ ]] is never closed"),
        (line(f"{SECRET} <<  >> [[ c ]]"), "a marked mention is empty or has blanks at its ends"),
        (line(f"{SECRET} <<  a >> [[ c ]]"), "a marked mention is empty or has blanks at its ends"),
        ({"text": "<< a >> [[ b ]]"}, 'has no "label"'),
        (line(label=SECRET), 'unknown "label"; use one of'),
    ],
)
def test_malformed_sentences(tmp_path, value, expected):
    path = write_objects(tmp_path / "t", line(), value)
    assert refused(chemprot.read, path).startswith(f"{path}: line 2: {expected}")


TITLE = "Effect of α-drug on GeneA."
ABSTRACT = f"We show, e.g. in rats, that aspirin vs. placebo blocks COX-1 (p < 0.5). Ibuprofen blocks COX-1? {SECRET}."
TEXT = f"{TITLE}\t{ABSTRACT}"


def entity(identifier, kind, surface, start=0):
    start = TEXT.index(surface, start)
    return "\t".join(["11", identifier, kind, str(start), str(start + len(surface)), surface])


ENTITIES = (
    entity("T1", "CHEMICAL", "α-drug"),
    entity("T2", "GENE-Y", "GeneA"),
    entity("T3", "CHEMICAL", "aspirin"),
    entity("T4", "GENE-N", "COX-1"),
    entity("T5", "CHEMICAL", "Ibuprofen"),
    entity("T6", "GENE", "COX-1", TEXT.index("Ibuprofen")),
    entity("T7", "GENE-N", "drug on GeneA"),
)


def relation(head, tail, group="CPR:4", name="INHIBITOR", mark="Y "):
    return "\t".join(["11", group, mark, name, f"Arg1:{head}", f"Arg2:{tail}"])


def release(folder, relations, entities=ENTITIES, abstracts=(f"11\t{TITLE}\t{ABSTRACT}",)):
    write(folder / "c_abstracts.tsv", *abstracts)
    write(folder / "c_entities.tsv", *entities)
    return write(folder / "c_relations.tsv", *relations)


def test_release(tmp_path):
    relations = (
        relation("T1", "T2", "CPR:9", "SUBSTRATE"),
        relation("T1", "T7", "CPR:9", "SUBSTRATE"),
        *[relation("T3", "T4")] * 2,
        relation("T3", "T4", "CPR:3", "ACTIVATOR"),
        relation("T3", "T6"),
        relation("T5", "T6", "CPR:10", "NOT", "N "),
    )
    path = release(tmp_path, relations)
    corpus = chemprot_release.read(path)
    assert mentions_of(corpus) == [
        ("chemprot-train-11/1", "α-drug", "GeneA", "CPR:9"),
        ("chemprot-train-11/2", "α-drug", "drug on GeneA", "CPR:9"),
        ("chemprot-train-11/3", "aspirin", "COX-1", "CPR:4"),
        ("chemprot-train-11/4", "aspirin", "COX-1", "CPR:3"),
    ]
    first, _, third, _ = corpus.mentions
    assert (first.text, first.document_id, first.head_type, first.tail_type) == (TITLE, "11", "chemical", "gene")
    assert third.text == ABSTRACT[: ABSTRACT.index(" Ibuprofen")]
    assert set(corpus.notes) == {
        "1 relations of groups that are not evaluated left out",
        "1 related pairs in two sentences left out",
        "1 pairs have several relations",
        "1 pairs of overlapping mentions",
        "1 duplicate relations are read once",
    }
    full = chemprot_release.read(path, label="names_with_negatives")
    assert mentions_of(full)[-1] == ("chemprot-train-11/5", "Ibuprofen", "COX-1", "no_relation")
    assert full.negative == "no_relation" and full.label_names[0] == "no_relation" and len(full.label_names) == 14


def test_the_release_under_its_names(tmp_path):
    path = release(tmp_path, [relation("T3", "T4")])
    corpus = chemprot_release.read(path)
    gold = write(tmp_path / "c_gold_standard.tsv", "11\tCPR:4\tArg1:T3\tArg2:T4")
    assert chemprot_release.read(gold) == corpus
    assert "has the group and no relation" in refused(chemprot_release.read, gold, label="names")
    path.write_bytes(path.read_bytes()[:-2])  # Arg2:T12 cut to Arg2:T1 would be another entity
    expected = f"{path}: line 1: the file ends within this line, without a line feed"
    assert refused(chemprot_release.read, path).startswith(expected)
    release(tmp_path, [relation("T3", "T4")])
    # In the test split the tables end in _gs, the gold standard does not.
    for kind in ("abstracts", "entities", "relations"):
        (tmp_path / f"c_{kind}.tsv").rename(tmp_path / f"c_{kind}_gs.tsv")
    assert chemprot_release.read(gold) == chemprot_release.read(tmp_path / "c_relations_gs.tsv") == corpus
    (tmp_path / "c_entities_gs.tsv").unlink()
    missing = f"{tmp_path}/c_entities.tsv: no such file"
    assert refused(chemprot_release.read, gold).startswith(missing)
    for name in ("pairs.tsv", "c_relations.txt", "c_relations_old.tsv"):
        assert refused(chemprot_release.read, tmp_path / name).startswith(
            f"{tmp_path / name}: is not named as the release names it; use *_relations.tsv, *_relations_gs.tsv or"
        )


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"abstracts": (f"11\t{SECRET}",)}, "c_abstracts.tsv: line 1: has 2 columns; give it 3"),
        ({"abstracts": (f"{SECRET}\ta\tb",)}, "c_abstracts.tsv: line 1: has no PMID"),
        ({"abstracts": ("11\ta\tb", "11\ta\tb")}, "c_abstracts.tsv: line 2: document 11: duplicate document"),
        ({"entities": (entity("T1", "DRUG", "aspirin"),)}, "c_entities.tsv: line 1: entity 11/T1: unknown type"),
        ({"entities": ("12\tT1\tGENE\t0\t1\tx",)}, "c_entities.tsv: line 1: its document is not among the abstracts"),
        ({"entities": ("11\tT1\tGENE\t0\t1\tx",)}, "c_entities.tsv: line 1: entity 11/T1: the entity is not at its"),
        ({"entities": (ENTITIES[0],) * 2}, "c_entities.tsv: line 2: entity 11/T1: duplicate entity"),
        ({"relations": (relation("T3", "T9"),)}, "c_relations.tsv: line 1: argument 2 is not in its document"),
        ({"relations": (relation("T4", "T3"),)}, "c_relations.tsv: line 1: argument 1 is not a chemical"),
        ({"relations": (relation("T3", "T4", "CPR:11"),)}, "c_relations.tsv: line 1: unknown group in column 2"),
        ({"relations": (relation("T3", "T4", name="EATS"),)}, "c_relations.tsv: line 1: unknown relation of CPR:4"),
        ({"relations": (relation("T3", "T4", mark="?"),)}, "c_relations.tsv: line 1: unknown evaluation mark"),
        ({"entities": (f"11\t{SECRET}\tGENE\t0\t1\tx",)}, "c_entities.tsv: line 1: column 2 is not an entity's id"),
        ({"relations": (relation("T3", "T6"),)}, "c_relations.tsv: gives no pair of mentions"),
    ],
)
def test_malformed_release(tmp_path, changes, expected):
    path = release(tmp_path, **{"relations": (relation("T3", "T4"),), **changes})
    assert refused(chemprot_release.read, path).startswith(f"{tmp_path}/{expected}")


def test_sentences():
    text = "A (i.e. B) is. 5 of E. coli grew! [X] binds Y. "
    assert [text[a:b] for a, b in split_sentences(text)] == ["A (i.e. B) is.", "5 of E. coli grew!", "[X] binds Y."]
    assert len(split_sentences("a. B", [(0, 4)])) == 1 and split_sentences(" ") == []


@given(st.text("aB1 .?!(\n", max_size=40))
def test_sentences_lose_nothing_but_blanks(text):
    spans = split_sentences(text)
    assert "".join("".join(text[a:b].split()) for a, b in spans) == "".join(text.split())
    assert all(text[a:b] == text[a:b].strip() != "" for a, b in spans)
