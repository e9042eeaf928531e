import pytest
from hypothesis import given
from relation_files import mention, mentions

from datasets.text.relation_layout import as_text, blinded, marked


@pytest.mark.parametrize(
    "head, tail, expected, blind",
    [
        ((0, 2), (3, 5), "<e1> ab </e1> <e2> cd </e2> e", "<e1> drug </e1> <e2> gene </e2> e"),
        ((3, 5), (0, 2), "<e2> ab </e2> <e1> cd </e1> e", "<e2> gene </e2> <e1> drug </e1> e"),
        ((0, 3), (3, 4), "<e1> ab </e1> <e2> c </e2> d e", "<e1> drug </e1> <e2> gene </e2> d e"),
        ((0, 5), (1, 2), "<e1> a <e2> b </e2> cd </e1> e", "<e1> drug </e1> <e2> gene </e2> e"),
        ((1, 2), (0, 5), "<e2> a <e1> b </e1> cd </e2> e", "<e2> gene </e2> <e1> drug </e1> e"),
        ((0, 5), (0, 2), "<e1> <e2> ab </e2> cd </e1> e", "<e1> drug </e1> <e2> gene </e2> e"),
        ((0, 2), (0, 5), "<e2> <e1> ab </e1> cd </e2> e", "<e1> drug </e1> <e2> gene </e2> e"),
        ((0, 5), (3, 5), "<e1> ab <e2> cd </e2> </e1> e", "<e1> drug </e1> <e2> gene </e2> e"),
        ((3, 5), (0, 5), "<e2> ab <e1> cd </e1> </e2> e", "<e2> gene </e2> <e1> drug </e1> e"),
        ((0, 4), (1, 5), "<e1> a <e2> b c </e1> d </e2> e", "<e1> drug </e1> <e2> gene </e2> e"),
        ((1, 5), (0, 4), "<e2> a <e1> b c </e2> d </e1> e", "<e2> gene </e2> <e1> drug </e1> e"),
        ((3, 5), (3, 5), "ab <e1> <e2> cd </e2> </e1> e", "ab <e1> drug </e1> <e2> gene </e2> e"),
    ],
)
def test_where_the_markers_go(head, tail, expected, blind):
    one = mention("ab cd e", head, tail)
    assert as_text(marked(one)) == expected
    assert as_text(blinded(one)) == blind


@given(mentions())
def test_marking_keeps_every_character(one):
    parts = marked(one)
    assert "".join(part.text for part in parts) == one.text
    assert "".join(part.text for part in parts if part.head) == one.head_text
    assert "".join(part.text for part in parts if part.tail) == one.tail_text
    assert sorted(part.marker for part in parts if part.marker >= 0) == [0, 1, 2, 3]
    stack = []
    for part in parts:
        if part.marker >= 0 and part.marker % 2 == 0:
            stack.append(part.marker)
        elif part.marker >= 0:
            assert part.marker - 1 in stack
            crossing = one.overlapping and stack[-1] != part.marker - 1
            assert stack[-1] == part.marker - 1 or crossing
            stack.remove(part.marker - 1)


@given(mentions())
def test_blinding_leaves_what_neither_mention_covers(one):
    parts = blinded(one, {"drug": "D"})
    covered = {i for span in (one.head, one.tail) for i in range(*span)}
    rest = "".join(c for i, c in enumerate(one.text) if i not in covered)
    assert "".join(part.text for part in parts if part.marker < 0 and not (part.head or part.tail)) == rest
    assert [part.text for part in parts if part.head] == ["D"] and [p.text for p in parts if p.tail] == ["gene"]
    assert "text" not in repr(parts[0])
