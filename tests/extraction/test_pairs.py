"""Which types are paired, and what does not fit is refused in a line that names both exports."""

from __future__ import annotations

import pytest

from datasets.errors import DataError
from tff_re.extraction.pairs import Named, pair_types
from tff_re.extraction.records import Mention

NER = Named("runs/ner", ("Chemical", "Gene", "Disease"))


def relations(*pairs):
    return Named("runs/cdr", [list(pair) for pair in pairs] if pairs else None)


def test_types_are_those_of_the_same_name_in_any_case():
    types = pair_types(NER, relations(("chemical", "gene"), ("gene", "organ")))
    assert types.pairs == {("Chemical", "Gene")} and types.relation_types["Chemical"] == "chemical"


def test_renamed_types_and_chosen_pairs():
    other = relations(("drug", "gene"), ("drug", "disease"))
    types = pair_types(NER, other, renamed={"Chemical": "drug"})
    assert types.pairs == {("Chemical", "Gene"), ("Chemical", "Disease")}
    assert pair_types(NER, other, [("Chemical", "Gene")], {"Chemical": "drug"}).pairs == {("Chemical", "Gene")}
    assert pair_types(NER, relations(), [("Gene", "Disease")]).pairs == {("Gene", "Disease")}


@pytest.mark.parametrize(
    ("known", "asked", "renamed", "said"),
    [
        (
            [],
            [],
            {},
            "runs/cdr does not say which types its pairs have; give them with --pairs HEAD:TAIL (types of runs/ner",
        ),
        (
            [("Drug", "Gene")],
            [],
            {},
            "runs/ner recognises Chemical, Gene, Disease, but runs/cdr relates Drug:Gene: they have no pair",
        ),
        ([], [("Chemical", "Gen")], {}, "runs/ner does not recognise the type 'Gen'; did you mean 'Gene'?"),
        ([], [], {"Drug": "x"}, "runs/ner does not recognise the type 'Drug'"),
        (
            [("Gene", "Gene")],
            [("Gene", "Disease")],
            {},
            "runs/cdr does not relate Gene:Disease of runs/ner; use Gene:Gene",
        ),
    ],
)
def test_what_does_not_fit(known, asked, renamed, said):
    with pytest.raises(DataError) as raised:
        pair_types(NER, relations(*known), asked, renamed)
    assert said in str(raised.value) and "\n" not in str(raised.value)


def test_the_head_is_told_by_type_or_else_by_the_order_in_the_text():
    drug, gene, other = Mention(0, 1, "Chemical", 1, "a"), Mention(2, 3, "Gene", 1, "b"), Mention(4, 5, "Gene", 1, "c")
    by_type = pair_types(NER, relations(("Chemical", "Gene")))
    assert list(by_type.oriented(gene, drug)) == [(drug, gene)] and not list(by_type.oriented(gene, other))
    both = pair_types(NER, relations(("Chemical", "Gene"), ("Gene", "Chemical")))
    assert list(both.oriented(gene, drug)) == [(gene, drug), (drug, gene)]
    same = dict.fromkeys(("Chemical", "Gene"), "chemical or gene")
    pairs = relations(("chemical or gene", "chemical or gene"))
    by_order = pair_types(NER, pairs, [("Chemical", "Gene")], same)
    assert list(by_order.oriented(gene, drug)) == [(gene, drug)] and not list(by_order.oriented(gene, other))
    assert list(pair_types(NER, pairs, renamed=same).oriented(gene, other)) == [(gene, other)]
