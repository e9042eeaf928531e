import pytest
from datasets_for_tests import SECRET, refused
from relation_files import mentions_of, write

from datasets.relations import biobert_tsv
from datasets.relations import semeval2010_task8 as semeval

BLOCK = (f'1\t"{SECRET} <e1>ä</e1><e2>b c</e2>."', "Cause-Effect(e2,e1)", "Comment: x", "")


def test_semeval(tmp_path):
    path = write(tmp_path / "t", *BLOCK, '2\t"<e2>x</e2> "of" <e1>y</e1>"', "Other", "Comment:", end="\r\n")
    corpus = semeval.read(path)
    assert mentions_of(corpus) == [
        ("semeval2010_task8-train-1", "ä", "b c", "Cause-Effect(e2,e1)"),
        ("semeval2010_task8-train-2", "y", "x", "Other"),
    ]
    assert corpus.mentions[1].text == 'x "of" y' and corpus.mentions[1].head_type == "entity"
    assert len(corpus.relation_names) == 19 and corpus.negative == "Other" and 0 not in corpus.positive_labels
    undirected = semeval.read(path, label="undirected")
    assert len(undirected.relation_names) == 10 and undirected.mentions[0].relation == "Cause-Effect"


def block(sentence='2\t"<e1>a</e1> <e2>b</e2>"', label="Other", *more):
    return *BLOCK, sentence, label, *(more or ("Comment:", ""))


SENTENCES = tuple(f'{number}\t"{SECRET} <e1>a</e1> <e2>b</e2>."' for number in (8001, 8002, 8003))


@pytest.mark.parametrize(
    "lines, expected",
    [
        (block(SECRET), 'line 5: is not number, tab, "sentence"'),
        (block(f'2\t"{SECRET}"'), "line 5: the mark <e1> occurs 0 times"),
        (block('2\t"<e1>a</e1> <e1>b</e1>"'), "line 5: the mark <e1> occurs 2 times"),
        (block('2\t"<e1>a</e1> <e2>b"'), "line 5: the mark </e2> occurs 0 times"),
        (block('2\t"</e1>a<e1> <e2>b</e2>"'), "line 5: the mention e1 is empty or ends before it starts"),
        (block('2\t"<e1>a</e1> <e2> </e2>"'), "line 5: the mention e2 is empty or ends before it starts"),
        (BLOCK * 2, "line 5: duplicate number 1, also in line 1"),
        (block(label="Likes(e1,e2)"), "line 6: unknown label"),
        (block(label="Other(e1,e2)"), "line 6: unknown label"),
        (block(BLOCK[0].replace("1", "2", 1), "Other", SECRET), "line 7: is not a comment"),
        (block(BLOCK[0].replace("1", "2", 1), "Other", "Comment:", SECRET), "line 8: is not empty"),
        (block()[:6], "line 6: the last block is cut off"),
        (("", ""), "gives no pair"),
        (SENTENCES, "has sentences and no labels, as the task's TEST_FILE.txt; give TEST_FILE_FULL.TXT"),
        (
            ("8001\tMessage-Topic(e2,e1)", "8002\tOther"),
            "has labels and no sentences, as the task's TEST_FILE_KEY.TXT; give",
        ),
    ],
)
def test_malformed_semeval(tmp_path, lines, expected):
    path = write(tmp_path / "t", *lines, end="\r\n")
    assert refused(semeval.read, path).startswith(f"{path}: {expected}")


ROWS = ((f"{SECRET} @DISEASE$ @GENE$.", "1"), ("@GENE$ in @DISEASE$", "0"), ("@GENE$ in @DISEASE$", "0"))


@pytest.mark.parametrize("header, index", [(False, False), (True, True), (False, True), (True, False)])
def test_biobert(tmp_path, header, index):
    lines = ["\t".join([*([str(n)] if index else []), *row]) for n, row in enumerate(ROWS)]
    first = ["\t".join((["index"] if index else []) + ["sentence", "label"])] if header else []
    corpus = biobert_tsv.read(write(tmp_path / "t.tsv", *first, *lines), name="gad", split="test")
    assert mentions_of(corpus) == [
        ("gad-test-00001/1", "@GENE$", "@DISEASE$", "associated"),
        ("gad-test-00002/1", "@GENE$", "@DISEASE$", "no_relation"),
        ("gad-test-00002/2", "@GENE$", "@DISEASE$", "no_relation"),
    ]
    assert (corpus.mentions[0].head_type, corpus.mentions[0].tail_type) == ("gene", "disease")
    assert corpus.notes == ("1 duplicate lines are kept",) and corpus.negative == "no_relation"


def test_blues_chemprot(tmp_path):
    lines = ("1.T1.T2\t@CHEMICAL$ and @GENE$\tCPR:3", "1.T1.T3\t@CHEMICAL$ and @GENE$\tfalse")
    relations = {"false": "no_relation", "CPR:3": "CPR:3"}
    path = write(tmp_path / "t.tsv", "index\tsentence\tlabel", *lines)
    corpus = biobert_tsv.read(path, name="chemprot", head="CHEMICAL", tail="GENE", relations=relations)
    assert corpus.mentions[0].head_type == "chemical" and corpus.mentions[0].label == 1
    assert corpus.notes == ("1 sentences have several labels",)


@pytest.mark.parametrize(
    "line, expected",
    [
        (SECRET, "has 1 columns; give it 3"),
        ("@GENE$ @DISEASE$\t1", "has 2 columns; give it 3"),
        (f"1\t{SECRET} @DISEASE$\t1", "@GENE$ occurs 0 times in the sentence"),
        ("1\t@GENE$ @DISEASE$ @GENE$\t1", "@GENE$ occurs 2 times in the sentence"),
        ("1\t@GENE$ @DISEASE$\t2", "unknown label in column 3; use one of 0, 1"),
        (f"1\t@GENE$ @DISEASE$\t{SECRET}", "unknown label in column 3; use one of 0, 1"),
        ("0\t@GENE$ @DISEASE$\t1", "duplicate index"),
        ("index\tsentence\tlabel", "@GENE$ occurs 0 times"),
    ],
)
def test_malformed_biobert(tmp_path, line, expected):
    path = write(tmp_path / "t", "0\t@GENE$ @DISEASE$\t1", line)
    assert refused(biobert_tsv.read, path, name="gad").startswith(f"{path}: line 2: {expected}")
