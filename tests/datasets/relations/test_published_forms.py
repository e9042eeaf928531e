"""The splits of relation corpora in the form in which they are given out, each in a small made-up file."""

import pytest
from datasets_for_tests import SECRET, refused
from relation_files import shown, write

from datasets.relations import chemprot, chemprot_release, i2b2_2010, pgr
from datasets.relations import semeval2010_task8 as semeval
from datasets.relations.loading import load_relations
from datasets.relations.reading import one_of, read_lines
from datasets.text.relation_layout import from_inline_markers, with_inline_markers

HEADER = "\t".join((*pgr.HEADER, "CONFIRMATION (CORRECT(C) | INCORRECT(I) | UNCERTAIN(U))"))


def pgr_row(relation, confirmation, document="19"):
    sentence = f"{SECRET} G and warts"
    g, p = sentence.index("G"), sentence.index("warts")
    row = [document, sentence, "G", "warts", "7", "HP_2", g, g + 1, p, p + 5, relation, confirmation]
    return "\t".join(map(str, row))


PGR_TEST = (HEADER, *(pgr_row(*row) for row in (("TRUE", "C"), ("True", "I", "20"), ("FALSE", "C", "21"))))


def test_pgrs_test_file(tmp_path):
    path = write(tmp_path / "test.tsv", *PGR_TEST, pgr_row("False", "U", "22"))
    corpus = pgr.read_pairs(path, split="test")
    assert [m.relation for m in corpus.mentions] == ["true", "true", "no_relation", "no_relation"]
    assert corpus.notes == ()
    confirmed = pgr.read_pairs(path, split="test", confirmed=True)
    assert [(m.document_id, m.relation) for m in confirmed.mentions] == [("19", "true"), ("21", "no_relation")]
    assert confirmed.notes == ("2 lines left out, the curators do not call them correct",)
    # An id does not depend on what is left out.
    assert {m.mention_id for m in confirmed.mentions} <= {m.mention_id for m in corpus.mentions}


def test_pgrs_label_choices(tmp_path):
    path = write(tmp_path / "test.tsv", *PGR_TEST)
    assert len(load_relations("pgr", path=path, split="test").mentions) == 3
    assert len(load_relations("pgr", path=path, split="test", label="confirmed").mentions) == 2
    lines = [line.rpartition("\t")[0] for line in PGR_TEST]
    training = write(tmp_path / "train.tsv", *lines)
    assert load_relations("pgr", path=training, label="confirmed").notes == (
        "no column CONFIRMATION: all lines are kept",
    )
    assert refused(load_relations, "pgr", path=training, split="test", label="confirmed") == (
        f'{training}: line 1: has no column CONFIRMATION, which the label choice "confirmed" needs; '
        'give PGR\'s test file, or use the label choice "relation"'
    )


@pytest.mark.parametrize(
    "lines, expected",
    [
        ((HEADER, pgr_row("True", "X")), "line 2: unknown CONFIRMATION in column 12; use one of C, I, U"),
        ((HEADER, pgr_row("True", SECRET)), "line 2: unknown CONFIRMATION in column 12; use one of C, I, U"),
        ((HEADER, pgr_row("true", "C")), "line 2: unknown RELATION in column 11; use one of False, True, FALSE, TRUE"),
        ((HEADER, pgr_row("True", "C").rpartition("\t")[0]), "line 2: has 11 columns; give it 12"),
        ((HEADER + "\tx",), "line 1: is not the header of PGR; give the eleven or twelve columns their names"),
        ((HEADER, pgr_row("True", "C"), pgr_row("FALSE", "I")), "line 3: the same pair is given as True and as False"),
    ],
)
def test_malformed_test_files_of_pgr(tmp_path, lines, expected):
    path = write(tmp_path / "t", *lines)
    for confirmed in (False, True):
        message = refused(pgr.read_pairs, path, split="test", confirmed=confirmed)
        assert message.startswith(f"{path}: {expected}")


SENTENCES = tuple(f'{number}\t"{SECRET} <e1>a</e1> <e2>b</e2>."' for number in (8001, 8002, 8003))


def test_semevals_test_files(tmp_path):
    full = [
        line
        for sentence in SENTENCES
        for line in (sentence, "Message-Topic(e1,e2)", "Comment: Assuming an audit = a document.", "")
    ]
    corpus = semeval.read_sentences(write(tmp_path / "TEST_FILE_FULL.TXT", *full, end="\r\n"), split="test")
    assert [m.mention_id for m in corpus.mentions] == [f"semeval2010_task8-test-800{n}" for n in (1, 2, 3)]
    path = write(tmp_path / "TEST_FILE.txt", *SENTENCES, end="\r\n")
    assert refused(semeval.read_sentences, path) == (
        f"{path}: has sentences and no labels, as the task's TEST_FILE.txt; give TEST_FILE_FULL.TXT, which has both"
    )
    for labels in (("8001\tMessage-Topic", "8002\tOther"), ("8001\tMessage-Topic(e2,e1)", "8002\tOther")):
        path = write(tmp_path / "TEST_FILE_KEY.TXT", *labels, end="\r\n")
        assert refused(semeval.read_sentences, path) == (
            f"{path}: has labels and no sentences, as the task's TEST_FILE_KEY.TXT; "
            "give TEST_FILE_FULL.TXT, which has both"
        )


def test_ades_doses_are_no_effects(tmp_path):
    path = write(tmp_path / "DRUG-DOSE.rel", "7|A 5 mg|5 mg|2|6|A|0|1")
    assert refused(load_relations, "ade", path=path) == (
        f"{path}: has drugs and doses, no adverse effects; give DRUG-AE.rel"
    )


DRUG, RASH = 'c="drug" 1:0 1:0', 'c="rash" 1:2 1:2'
RECORD = {
    "txt": ["Drug for rash ."],
    "con": [f'{DRUG}||t="treatment"', f'{RASH}||t="problem"'],
    "rel": [f'{DRUG}||r="TrAP"||{RASH}'],
}


def put_records(**folders):
    """Writes a record's parts: ending to (folder, the record's id)."""
    for kind, (folder, name) in folders.items():
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / f"{name}.{kind}", *RECORD[kind])


def test_the_folders_of_i2b2s_release(tmp_path):
    training = tmp_path / "concept_assertion_relation_training_data"
    for hospital, name in (("beth", "record-1"), ("partners", "record-2")):
        at = training / hospital
        put_records(txt=(at / "txt", name), con=(at / "concept", name), rel=(at / "rel", name))
    assert [m.document_id for m in load_relations("i2b2_2010", path=training).mentions] == ["record-1", "record-2"]
    standard = tmp_path / "reference_standard_for_test_data"
    put_records(
        txt=(tmp_path / "test_data", "0001"), con=(standard / "concepts", "0001"), rel=(standard / "rel", "0001")
    )
    corpus = load_relations("i2b2_2010", path=standard, split="test")
    assert shown(corpus) == [("i2b2_2010-test-0001/1", "Drug", "rash", "TrAP")]
    (standard / "rel" / "0001.rel").unlink()
    assert refused(load_relations, "i2b2_2010", path=standard).startswith(f"{standard}/rel/0001.rel: no such file")
    (tmp_path / "test_data").rename(tmp_path / "elsewhere")
    assert refused(i2b2_2010.find_split, standard).startswith(f"{standard}/txt: cannot be read")


# Mentions of ChemProt that lie one in the other, or cross.

OVERLAPPING = {
    "nested": ("<< NMDA [[ R ]] >> x", "NMDA R x", (0, 6), (5, 6)),
    "nested the other way": ("[[ << NMDA >> R ]] x", "NMDA R x", (0, 4), (0, 6)),
    "crossed": ("<< a [[ b >> c ]] x", "a b c x", (0, 3), (2, 5)),
    "crossed the other way": ("[[ a << b ]] c >> x", "a b c x", (2, 5), (0, 3)),
    "the same": ("<< [[ a ]] >> x", "a x", (0, 1), (0, 1)),
}


@pytest.mark.parametrize("text, plain, head, tail", OVERLAPPING.values(), ids=OVERLAPPING)
def test_overlapping_mentions_of_the_sentence_form(tmp_path, text, plain, head, tail):
    (tmp_path / "t").write_text(f'{{"text": "{text}", "label": "INHIBITOR"}}\n', "utf-8")
    corpus = chemprot.read_sentences(tmp_path / "t")
    (mention,) = corpus.mentions
    assert (mention.text, mention.head, mention.tail) == (plain, head, tail) and mention.overlapping
    assert corpus.notes[1:] == ("1 pairs of overlapping mentions",)
    marked = from_inline_markers(with_inline_markers(mention))
    assert (marked.text, marked.head, marked.tail) == (plain, head, tail)


@pytest.mark.parametrize("head, tail", [case[2:] for case in OVERLAPPING.values()], ids=OVERLAPPING)
def test_overlapping_mentions_of_the_release(tmp_path, head, tail):
    text = "NMDA R x"
    entities = [
        "\t".join(("11", name, kind, str(start), str(end), text[start:end]))
        for name, kind, (start, end) in (("T1", "CHEMICAL", head), ("T2", "GENE-Y", tail))
    ]
    files = (
        write(tmp_path / "abstracts.tsv", f"11\t{text}\t{SECRET}"),
        write(tmp_path / "entities.tsv", *entities),
        write(tmp_path / "relations.tsv", "11\tCPR:4\tY \tINHIBITOR\tArg1:T1\tArg2:T2"),
    )
    corpus = chemprot_release.read_release(*files)
    assert [(m.text, m.head, m.tail) for m in corpus.mentions] == [(text, head, tail)]
    assert corpus.notes == ("1 pairs of overlapping mentions",)


def test_a_relation_of_the_release_that_stands_twice_is_read_once(tmp_path):
    relation = "11\tCPR:4\tY \tINHIBITOR\tArg1:T1\tArg2:T2"
    files = (
        write(tmp_path / "abstracts.tsv", "11\tA cuts B.\tx"),
        write(tmp_path / "entities.tsv", "11\tT1\tCHEMICAL\t0\t1\tA", "11\tT2\tGENE\t7\t8\tB"),
        write(tmp_path / "relations.tsv", relation, relation),
    )
    corpus = chemprot_release.read_release(*files)
    assert len(corpus.mentions) == 1 and corpus.notes == ("1 duplicate relations are read once",)
    files[2].write_bytes(files[2].read_bytes()[:-2])  # Arg2:T12 cut to Arg2:T1 would be another entity
    assert refused(chemprot_release.read_release, *files).startswith(
        f"{files[2]}: line 2: the file ends within this line, without a line feed"
    )


def test_a_value_of_a_file_is_never_shown(tmp_path):
    from datasets.errors import DataError

    for value in ("Smith", "AIDS", SECRET):
        assert value not in refused(one_of, value, ("a",), "label", DataError, column=3)
    assert list(read_lines(write(tmp_path / "t", "a", " "), ended=True)) == [(1, "a"), (2, " ")]
