"""Names to ids: exact, folded, similar, and never a guess between two."""

from __future__ import annotations

import pytest

from datasets.errors import DataError
from tests.extraction.stubs import write
from tff_re.extraction.terminology import Link, Linker, Terminology, folded

NAMES = """name\tid\ttype
Aspirin\tD001
acetylsalicylic acid\tD001
COX-2\tG2\tGene
interleukin 1 receptor\tG10
interleukin 2 receptor\tG11
cold\tD2\tDisease
cold\tP1\tPhenotype
lead\tX1
lead\tX2
阿司匹林\tD001
"""


@pytest.fixture(scope="module")
def terminology(tmp_path_factory):
    return Terminology.read(write(tmp_path_factory.mktemp("names") / "names.tsv", NAMES.replace("\n", "\r\n")))


@pytest.mark.parametrize(
    ("name", "kind", "link"),
    [
        ("Aspirin", "Drug", Link("D001", "exact")),
        ("ASPIRIN", "Drug", Link("D001", "folded")),
        ("Ａｓｐｉｒｉｎ", "Drug", Link("D001", "folded")),
        ("阿司匹林", "Drug", Link("D001", "exact")),
        ("Acetyl-salicylic Acid.", "Drug", Link("D001", "folded")),
        ("COX2", "gene", Link("G2", "folded")),
        ("COX-2", "Drug", None),
        ("cold", "Disease", Link("D2", "exact")),
        ("cold", "Phenotype", Link("P1", "exact")),
        ("cold", "Drug", None),
        ("lead", "Drug", None),
        ("Lead!", "Drug", None),
        ("interleukin 3 receptor", "Gene", None),
        ("ibuprofen", "Drug", None),
        ("---", "Drug", None),
    ],
)
def test_links(terminology, name, kind, link):
    assert terminology.find(name, kind) == link


def test_similar_names_have_the_same_digits(terminology):
    link = terminology.find("interleukin-1 receptors", "Gene")
    assert (link.entity_id, link.linked) == ("G10", "similar") and link.similarity == pytest.approx(40 / 41)
    assert terminology.find("acetylsalicylicacids", "Drug").similarity > 0.9
    assert terminology.find("acetylsalic", "Drug") is None


def test_similarity_can_be_higher_or_left_out(tmp_path):
    path = write(tmp_path / "n.tsv", "acetylsalicylic acid\tD1\n")
    ids = [Terminology.read(path, s).find("acetylsalicylic acids", "Drug") for s in (0.9, 0.99, 1)]
    assert [link and link.entity_id for link in ids] == ["D1", None, None]


def test_two_names_that_are_equally_similar_link_nothing():
    names = {("", "acetylsalicylate"): "A", ("", "acetylsalicylatf"): "B"}
    assert Terminology(names).find("acetylsalicylat", "Drug") is None
    names["", "acetylsalicylatf"] = "A"
    assert Terminology(names).find("acetylsalicylat", "Drug").entity_id == "A"


def test_ambiguous_names_are_counted(terminology):
    assert terminology.ambiguous == 1


def test_folding():
    assert folded("β-Catenin (human)") == "βcateninhuman" and folded(" -; ") == ""


def test_unlinked_mentions_have_a_keyed_number(terminology):
    linker, other = Linker(terminology, b"key"), Linker(None, b"other")
    link = linker("Ibuprofen", "Drug")
    assert link.linked == "none" and link.entity_id.startswith("unlinked:") and "ibuprofen" not in link.entity_id
    assert linker("IBU-profen", "Drug") == link != linker("Ibuprofen", "Gene") != other("Ibuprofen", "Drug") != link
    assert linker("--", "Drug") != linker("-", "Drug")
    assert linker("aspirin", "Drug").entity_id == "D001"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "n.tsv: has no name"),
        ("name\tid\n", "n.tsv: has no name"),
        ("a\tb\n\nc\n", "n.tsv: line 3: has 1 columns; give it 2 or 3"),
        ("a\t\n", "n.tsv: line 1: the name or the id is empty"),
        (b"a\tb\n\xff\tc\n", "n.tsv: line 2: byte 4: is not UTF-8"),
    ],
)
def test_damaged_files(tmp_path, text, said):
    with pytest.raises(DataError) as raised:
        Terminology.read(write(tmp_path / "n.tsv", text))
    assert said in str(raised.value)
