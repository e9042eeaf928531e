"""Texts with their entities highlighted, as HTML that shows the text and nothing else."""

from __future__ import annotations

from html.parser import HTMLParser

from datasets.entities.records import EntitySpan
from tff_re.pages.entities import COLOURS, PageText, entities_page, highlighted

TYPES = ("symptom", "<drug>")
TEXT = "👨\u200d👩 <b>咳嗽</b>\r\n& \"drug'"
SPANS = (EntitySpan(7, 9, "symptom"), EntitySpan(18, 22, "<drug>"))


class Marks(HTMLParser):
    """The text of HTML, and that of each mark, without the types in it."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self.marks = [], "", []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "mark":
            self.marks.append("")

    def handle_endtag(self, tag):
        self.tags.append((f"/{tag}", {}))

    def handle_data(self, data):
        if [tag for tag, _ in self.tags[-1:]] == ["small"]:
            return
        self.text += data
        if [tag for tag, _ in self.tags[-1:]] == ["mark"]:
            self.marks[-1] += data


def test_a_text_with_highlighted_entities():
    html = highlighted(TEXT, SPANS, TYPES)
    read = Marks(html)
    assert read.text == TEXT and read.marks == [TEXT[span.start : span.end] for span in SPANS] == ["咳嗽", "drug"]
    assert {tag for tag, _ in read.tags} == {"mark", "/mark", "small", "/small"}, "the text's own markup is text"
    styles = [attributes["style"] for tag, attributes in read.tags if tag == "mark"]
    assert styles == [f"background: {COLOURS[0]}", f"background: {COLOURS[1]}"]
    assert [attributes["title"] for tag, attributes in read.tags if tag == "mark"] == ["symptom 7:9", "<drug> 18:22"]
    assert highlighted(TEXT, (), TYPES).count("<") == 0


def test_more_types_than_colours():
    types = tuple(f"type {number}" for number in range(len(COLOURS) + 1))
    html = highlighted("ab", [EntitySpan(0, 1, types[0]), EntitySpan(1, 2, types[-1])], types)
    assert html.count(COLOURS[0]) == 2


def test_the_page_needs_nothing_beside_it():
    page = entities_page(
        "Title <1>", "2 texts", [PageText("a<b", TEXT, SPANS), PageText("c", "", ())], TYPES, "made by"
    )
    assert page.count("<h2>") == 2 and "a&lt;b" in page and "Title &lt;1&gt;" in page and "<h2>c</h2>" in page
    assert highlighted(TEXT, SPANS, TYPES) in page and "made by" in page
    assert "default-src 'none'" in page and "<script" not in page and "http" not in page.replace("http-equiv", "")
    assert TEXT not in repr(PageText("a", TEXT, SPANS)), "no text in logs"
