"""The page of texts with their entities highlighted shows the text and nothing else."""

from __future__ import annotations

from html.parser import HTMLParser
from types import SimpleNamespace

from tff_re.pages.entities import entities_page, parts
from tff_re.report.drawing import COLOURS

TYPES = ("symptom", "<drug>", *(f"type {number}" for number in range(len(COLOURS))))
TEXT = "👨\u200d👩 <b>咳嗽</b>\r\n& \"drug'"


def entity(start, end, kind):
    return SimpleNamespace(start=start, end=end, type=kind, probability=0.75)


TEXTS = [
    SimpleNamespace(text_id="a<b", text=TEXT, entities=[entity(7, 9, "symptom"), entity(18, 22, "<drug>")]),
    SimpleNamespace(text_id="c", text="ab", entities=[entity(0, 1, TYPES[0]), entity(1, 2, TYPES[len(COLOURS)])]),
    SimpleNamespace(text_id="d", text="", entities=[]),
]


class Marked(HTMLParser):
    """Of each marked text on a page: its text, and (text, attributes) of its mentions."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.texts, self._inside = [], False
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if attributes.get("class") == "marked":
            self.texts.append(["", []])
        self._inside = (self._inside or attributes.get("class") == "marked") and tag in ("p", "span")
        if attributes.get("class") == "mention":
            self.texts[-1][1].append(["", attributes])

    def handle_endtag(self, tag):
        if tag == "p":
            self._inside = False
        elif tag == "span" and self.texts:
            self.texts[-1][1][-1] = tuple(self.texts[-1][1][-1])

    def handle_data(self, data):
        if self._inside:
            self.texts[-1][0] += data
            if self.texts[-1][1] and isinstance(self.texts[-1][1][-1], list):
                self.texts[-1][1][-1][0] += data


def test_texts_are_whole_and_their_own_markup_is_text():
    _legend, *texts = Marked(entities_page(TEXTS, TYPES, "Title <1>", "made by")).texts
    assert [text for text, _ in texts] == [text.text for text in TEXTS]
    for (_, mentions), text in zip(texts, TEXTS, strict=True):
        assert [words for words, _ in mentions] == [text.text[e.start : e.end] for e in text.entities]
    assert [words for words, _ in texts[0][1]] == ["咳嗽", "drug"]


def test_types_have_colours_and_numbers():
    legend, (_, of_first), (_, of_second), _ = Marked(entities_page(TEXTS, TYPES, "a", "b")).texts
    assert [words for words, _ in legend[1]] == list(TYPES)
    first, second = (attributes for _, attributes in of_first)
    assert (first["style"], second["style"]) == (f"--mention: {COLOURS[0]}", f"--mention: {COLOURS[1]}")
    assert (first["data-entity"], second["data-entity"]) == ("0", "1")
    assert first["title"] == "symptom, 7 to 9, 0.750"
    styles = [attributes["style"] for _, attributes in of_second]
    assert len(set(styles)) == 1, "more types than colours begin again"
    assert list(parts(TEXTS[2], {})) == []


def test_the_page_needs_nothing_beside_it():
    html = entities_page(TEXTS, TYPES, "Title <1>", "made by")
    assert "a&lt;b" in html and "Title &lt;1&gt;" in html and "made by" in html and "3 texts, 4 entities." in html
    assert "default-src 'none'" in html and "<b>" not in html and "src=" not in html.replace("default-src", "")
