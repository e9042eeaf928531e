import pytest
from datasets_for_tests import SECRET, refused
from relation_files import mentions_of, write

from datasets.relations import ade, pgr

SENTENCE = f"{SECRET} EPS8L3 ë cancer"


def row(sentence=SENTENCE, gene="EPS8L3", phenotype="cancer", relation="True", document="19", **offsets):
    g, p = sentence.find(gene), sentence.find(phenotype)
    at = {"gs": g, "ge": g + len(gene), "ps": p, "pe": p + len(phenotype), **offsets}
    return "\t".join([document, sentence, gene, phenotype, "79574", "HP_0002664", *map(str, at.values()), relation])


HEADER = "\t".join(pgr.HEADER)
CURATED = HEADER + "\tCONFIRMATION (CORRECT(C) | INCORRECT(I) | UNCERTAIN(U))"


def test_pgr(tmp_path):
    path = write(tmp_path / "t.tsv", HEADER, row(), row(relation="False", phenotype="ë"), row(), end="\r\n")
    corpus = pgr.read(path, split="test")
    assert mentions_of(corpus) == [
        ("pgr-test-19/1", "EPS8L3", "cancer", "true"),
        ("pgr-test-19/2", "EPS8L3", "ë", "no_relation"),
        ("pgr-test-19/3", "EPS8L3", "cancer", "true"),
    ]
    assert corpus.negative == "no_relation" and corpus.relation_names == ("no_relation", "true")
    assert corpus.notes == ("1 duplicate lines are kept",)
    assert (corpus.mentions[0].head_type, corpus.mentions[0].tail_type) == ("gene", "phenotype")
    assert corpus.mentions[0].document_id == "19"


def test_pgr_leaves_a_few_misplaced_mentions_out(tmp_path):
    path = write(tmp_path / "t.tsv", HEADER, *[row(document=str(n)) for n in range(99)], row(gs=0, ge=2))
    corpus = pgr.read(path)
    assert len(corpus.mentions) == 99
    assert corpus.notes == ("1 lines left out, a mention is not at its offsets (lines 101)",)


@pytest.mark.parametrize(
    "line, expected",
    [
        (SECRET, "has 1 columns; give it 11"),
        (row() + "\t", "has 12 columns"),
        (row(document=" "), "has no FILE_ID"),
        (row(relation="true"), "unknown RELATION in column 11; use one of False, True, FALSE, TRUE"),
        (row(gs=0), "the gene is not at its offsets"),
        (row(ps=0, pe=1), "the phenotype is not at its offsets"),
        (row(gs=-1), "the gene's start is not a whole number of at least 0"),
        (row(ge="１"), "the gene's end is not a whole number"),
        (row(pe=900), "the phenotype 18:900 is empty or lies beyond the text of 24 characters"),
        (row(relation="False"), "the same pair is given as True and as False"),
    ],
)
def test_malformed_pgr(tmp_path, line, expected):
    path = write(tmp_path / "t.tsv", HEADER, row(), line)
    assert refused(pgr.read, path).startswith(f"{path}: line 3: {expected}")


def curated(relation, confirmation, document="19"):
    return f"{row(relation=relation, document=document)}\t{confirmation}"


def test_pgrs_test_file(tmp_path):
    lines = (("TRUE", "C"), ("True", "I", "20"), ("FALSE", "C", "21"), ("False", "U", "22"))
    path = write(tmp_path / "test.tsv", CURATED, *(curated(*line) for line in lines))
    corpus = pgr.read(path, split="test")
    assert [m.relation for m in corpus.mentions] == ["true", "true", "no_relation", "no_relation"]
    assert corpus.notes == ()
    confirmed = pgr.read(path, split="test", label="confirmed")
    assert [(m.document_id, m.relation) for m in confirmed.mentions] == [("19", "true"), ("21", "no_relation")]
    assert confirmed.notes == ("2 lines left out, the curators do not call them correct",)
    # An id does not depend on what is left out.
    assert {m.mention_id for m in confirmed.mentions} <= {m.mention_id for m in corpus.mentions}
    training = write(tmp_path / "train.tsv", HEADER, row())
    assert pgr.read(training, label="confirmed").notes == ("no column CONFIRMATION: all lines are kept",)
    expected = f'{training}: line 1: has no column CONFIRMATION, which the label choice "confirmed" needs; give PGR'
    assert refused(pgr.read, training, split="test", label="confirmed").startswith(expected)


@pytest.mark.parametrize(
    "lines, expected",
    [
        ((CURATED, curated("True", SECRET)), "line 2: unknown CONFIRMATION in column 12; use one of C, I, U"),
        ((CURATED, curated("true", "C")), "line 2: unknown RELATION in column 11; use one of False, True, FALSE, TRUE"),
        ((CURATED, row()), "line 2: has 11 columns; give it 12"),
        ((CURATED + "\tx",), "line 1: is not the header of PGR; give the eleven or twelve columns their names"),
        ((CURATED, curated("True", "C"), curated("FALSE", "I")), "line 3: the same pair is given as True and as False"),
        ((row(),), "line 1: is not the header of PGR"),
        ((), "line 1: is not the header of PGR"),
        ((HEADER,), "gives no pair"),
    ],
)
def test_malformed_files_of_pgr(tmp_path, lines, expected):
    path = write(tmp_path / "t", *lines)
    assert refused(pgr.read, path, label="confirmed").startswith(f"{path}: {expected}")


def test_not_utf8(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_bytes(HEADER.encode() + b"\n\xff")
    assert refused(pgr.read, path).startswith(f"{path}: line 2: byte {len(HEADER) + 1}: is not UTF-8")


def pair(sentence, effect, drug, start=100, effect_nth=0, drug_nth=0, document="7"):
    places = []
    for part, nth in ((effect, effect_nth), (drug, drug_nth)):
        at = [i for i in range(len(sentence)) if sentence.startswith(part, i)][nth]
        places.append((part, str(start + at), str(start + at + len(part))))
    return "|".join([document, sentence, *places[0], *places[1]])


def test_ade(tmp_path):
    sentence = f"{SECRET}: rash and itch by αA, rash by B."
    path = write(
        tmp_path / "r",
        pair(sentence, "rash", "αA"),
        pair(sentence, "rash", "B", effect_nth=1),
        pair(sentence, "itch", " αA", drug_nth=0),
        pair("Codeine intoxication", "Codeine intoxication", "Codeine", document="8"),
    )
    corpus = ade.read(path)
    first, second = sentence.index("rash"), sentence.rindex("rash")
    pairs = {(m.document_id, m.head_text, m.tail[0], m.relation) for m in corpus.mentions}
    assert pairs == {
        ("7", "αA", first, "adverse_effect"),
        ("7", "αA", sentence.index("itch"), "adverse_effect"),
        ("7", "B", second, "adverse_effect"),
        ("7", "αA", second, "no_relation"),
        ("7", "B", first, "no_relation"),
        ("7", "B", sentence.index("itch"), "no_relation"),
        ("8", "Codeine", 0, "adverse_effect"),
    }
    assert corpus.notes == (
        "1 mentions with blanks at their ends, which are left out of them",
        "1 pairs of overlapping mentions",
        "3 pairs that their sentence does not list are negatives",
    )
    assert corpus.mentions[-1].overlapping and corpus.negative == "no_relation"
    positives = ade.read(path, label="positives")
    assert positives.relation_names == ("adverse_effect",) and positives.negative is None
    assert len(positives.mentions) == 4 and {m.label for m in positives.mentions} == {0}


NAMED = "Codeine and αcodal made dry mouth, severe dry mouth, a rash, HIV and flux"
LISTED = (
    *(("dry mouth", "Codeine"), ("rash", "αcodal"), ("flux", "Codeine"), ("Codeine", "flux"), ("HIV", "αcodal")),
    ("severe dry mouth", "αcodal"),
)


def with_negative_sentences(folder, *lines):
    write(folder / "ADE-NEG.txt", *lines)
    path = write(folder / "DRUG-AE.rel", *(pair(NAMED, effect, drug) for effect, drug in LISTED))
    return path, {"label": "with_negative_sentences"}


def test_ade_finds_annotated_names_in_sentences_without_an_effect(tmp_path):
    # `codeine` and `flux` were annotated as both, HIV is too short: neither is looked for. The longest name counts.
    sentence = "A severe  dry mouth, no RASH: αCodal, αcodal."
    lines = (sentence, sentence, f"{SECRET} αcodal", "Rashes of αcodal; codeine, flux and HIV")
    path, options = with_negative_sentences(tmp_path, *(f"9 NEG {line}" for line in lines))
    corpus = ade.read(path, **options)
    mentions = [m for m in corpus.mentions if m.document_id == "9"]
    assert [(m.text, m.head, m.tail_text, m.relation, m.label) for m in mentions] == [
        (sentence, (30, 36), "severe  dry mouth", "no_relation", 0),
        (sentence, (30, 36), "RASH", "no_relation", 0),
    ]
    assert {(m.head_type, m.tail_type) for m in mentions} == {("drug", "adverse effect")}
    assert "2 pairs of annotated names in sentences without an adverse effect are negatives" in corpus.notes


def test_malformed_negative_sentences(tmp_path):
    path, options = with_negative_sentences(tmp_path, f"9 NEG {SECRET}")
    assert "has no sentence with an annotated drug and an annotated effect" in refused(ade.read, path, **options)
    path, options = with_negative_sentences(tmp_path, "9 NEG Codal: rash", SECRET)
    expected = f"{tmp_path}/ADE-NEG.txt: line 2: is not PMID NEG sentence"
    assert refused(ade.read, path, **options).startswith(expected)


def test_ade_places_a_repeated_mention_by_the_other_lines(tmp_path):
    sentence = "A rash, A rash, B itch"
    alone = write(tmp_path / "a", pair(sentence, "rash", "A", effect_nth=1, drug_nth=1))
    corpus = ade.read(alone)
    assert corpus.mentions[0].head == (0, 1)
    assert corpus.notes == ("1 pairs fit several places of their sentence; the first is used",)
    lines = (pair(sentence, "rash", "A", effect_nth=1, drug_nth=1), pair(sentence, "itch", "B"))
    both = ade.read(write(tmp_path / "b", *lines), label="positives")
    assert both.mentions[0].head == (8, 9) and both.notes == ()


def test_ade_tells_a_sentence_from_its_repetition_in_the_document(tmp_path):
    lines = [pair("A rash", "rash", "A"), pair("A rash", "rash", "A", start=500)]
    assert [m.mention_id for m in ade.read(write(tmp_path / "a", *lines)).mentions] == ["ade-7/1", "ade-7/2"]


@pytest.mark.parametrize(
    "line, expected",
    [
        (f"7|{SECRET}", "has 2 columns; give it 8"),
        (f"{SECRET}|A rash|rash|2|6|A|0|1", "has no PMID"),
        ("7|A rash|rash|2|7|A|0|1", "the effect's offsets do not fit its length"),
        ("7|A rash|rash|2|6|A|x|1", "the drug's start is not a whole number"),
        ("7|A rash||2|2|A|0|1", "the effect's offsets do not fit its length"),
        (
            f"7|{SECRET}|rash|3|7|A|0|1",
            "the mentions do not occur in the sentence at the distance that their offsets have",
        ),
        (pair("A rash", "rash", "A"), "is the same pair as line 1"),
    ],
)
def test_malformed_ade(tmp_path, line, expected):
    path = write(tmp_path / "r", pair("A rash", "rash", "A"), line)
    assert refused(ade.read, path).startswith(f"{path}: line 2: {expected}")


def test_ades_doses_are_no_effects(tmp_path):
    expected = f"{tmp_path}/DRUG-DOSE.rel: has drugs and doses, no adverse effects; give DRUG-AE.rel"
    assert refused(ade.read, tmp_path / "DRUG-DOSE.rel") == expected
