import pytest
from datasets_for_tests import SECRET, refused
from relation_files import shown, write

from datasets.relations import biobert_tsv
from datasets.relations import semeval2010_task8 as semeval

BLOCK = (f'1\t"{SECRET} <e1>ä</e1><e2>b c</e2>."', "Cause-Effect(e2,e1)", "Comment: x", "")


def test_semeval(tmp_path):
    path = write(tmp_path / "t", *BLOCK, '2\t"<e2>x</e2> "of" <e1>y</e1>"', "Other", "Comment:", end="\r\n")
    corpus = semeval.read_sentences(path)
    assert shown(corpus) == [
        ("semeval2010_task8-train-1", "ä", "b c", "Cause-Effect(e2,e1)"),
        ("semeval2010_task8-train-2", "y", "x", "Other"),
    ]
    assert corpus.mentions[1].text == 'x "of" y' and corpus.mentions[1].head_type == "entity"
    assert len(corpus.relation_names) == 19 and corpus.negative == "Other" and 0 not in corpus.positive_labels
    undirected = semeval.read_sentences(path, directed=False)
    assert len(undirected.relation_names) == 10 and undirected.mentions[0].relation == "Cause-Effect"


@pytest.mark.parametrize(
    "block, expected",
    [
        ((SECRET, *BLOCK[1:]), 'line 5: is not number, tab, "sentence"'),
        ((f'2\t"{SECRET}"', *BLOCK[1:]), "line 5: the mark <e1> occurs 0 times"),
        (('2\t"<e1>a</e1> <e1>b</e1>"', *BLOCK[1:]), "line 5: the mark <e1> occurs 2 times"),
        (('2\t"<e1>a</e1> <e2>b"', *BLOCK[1:]), "line 5: the mark </e2> occurs 0 times"),
        (('2\t"</e1>a<e1> <e2>b</e2>"', *BLOCK[1:]), "line 5: the mention e1 is empty or ends before it starts"),
        (('2\t"<e1>a</e1> <e2> </e2>"', *BLOCK[1:]), "line 5: the mention e2 is empty or ends before it starts"),
        (BLOCK, "line 5: duplicate number 1, also in line 1"),
        (('2\t"<e1>a</e1> <e2>b</e2>"', "Likes(e1,e2)", *BLOCK[2:]), "line 6: unknown label"),
        (('2\t"<e1>a</e1> <e2>b</e2>"', "Other(e1,e2)", *BLOCK[2:]), "line 6: unknown label"),
        (('2\t"<e1>a</e1> <e2>b</e2>"', "Other", SECRET), "line 7: is not a comment"),
        (('2\t"<e1>a</e1> <e2>b</e2>"', "Other", "Comment:", SECRET), "line 8: is not empty"),
        (('2\t"<e1>a</e1> <e2>b</e2>"', "Other"), "line 6: the last block is cut off"),
    ],
)
def test_malformed_semeval(tmp_path, block, expected):
    path = write(tmp_path / "t", *BLOCK, *block)
    assert refused(semeval.read_sentences, path).startswith(f"{path}: {expected}")


def test_an_empty_file(tmp_path):
    assert "gives no pair" in refused(semeval.read_sentences, write(tmp_path / "t", "", ""))
    assert "gives no pair" in refused(biobert_tsv.read_pairs, write(tmp_path / "t"), name="gad")


ROWS = ((f"{SECRET} @DISEASE$ @GENE$.", "1"), ("@GENE$ in @DISEASE$", "0"), ("@GENE$ in @DISEASE$", "0"))


@pytest.mark.parametrize("header, index", [(False, False), (True, True), (False, True), (True, False)])
def test_biobert(tmp_path, header, index):
    lines = ["\t".join([*([str(n)] if index else []), *row]) for n, row in enumerate(ROWS)]
    first = ["\t".join((["index"] if index else []) + ["sentence", "label"])] if header else []
    corpus = biobert_tsv.read_pairs(write(tmp_path / "t.tsv", *first, *lines), name="gad", split="test")
    assert shown(corpus) == [
        ("gad-test-00001/1", "@GENE$", "@DISEASE$", "associated"),
        ("gad-test-00002/1", "@GENE$", "@DISEASE$", "no_relation"),
        ("gad-test-00002/2", "@GENE$", "@DISEASE$", "no_relation"),
    ]
    assert (corpus.mentions[0].head_type, corpus.mentions[0].tail_type) == ("gene", "disease")
    assert corpus.notes == ("1 duplicate lines are kept",) and corpus.negative == "no_relation"


def test_blues_chemprot(tmp_path):
    path = write(tmp_path / "t.tsv", "index\tsentence\tlabel", "1.T1.T2\t@CHEMICAL$ and @GENE$\tCPR:3")
    relations = {"false": "no_relation", "CPR:3": "CPR:3"}
    corpus = biobert_tsv.read_pairs(path, name="chemprot", head="CHEMICAL", tail="GENE", relations=relations)
    assert corpus.mentions[0].head_type == "chemical" and corpus.mentions[0].label == 1


def test_contradictions_are_noted(tmp_path):
    corpus = biobert_tsv.read_pairs(write(tmp_path / "t", "@GENE$ @DISEASE$\t0", "@GENE$ @DISEASE$\t1"), name="gad")
    assert corpus.notes == ("1 sentences have several labels",)


@pytest.mark.parametrize(
    "line, expected",
    [
        (SECRET, "has 1 columns; give it 3"),
        ("@GENE$ @DISEASE$\t1", "has 2 columns; give it 3"),
        (f"1\t{SECRET} @DISEASE$\t1", "@GENE$ occurs 0 times in the sentence"),
        ("1\t@GENE$ @DISEASE$ @GENE$\t1", "@GENE$ occurs 2 times in the sentence"),
        ("1\t@GENE$ @DISEASE$\t2", "unknown label in column 3; use one of 0, 1"),
        ("0\t@GENE$ @DISEASE$\t1", "duplicate index"),
        ("index\tsentence\tlabel", "@GENE$ occurs 0 times"),
    ],
)
def test_malformed_biobert(tmp_path, line, expected):
    path = write(tmp_path / "t", "0\t@GENE$ @DISEASE$\t1", line)
    assert refused(biobert_tsv.read_pairs, path, name="gad").startswith(f"{path}: line 2: {expected}")
