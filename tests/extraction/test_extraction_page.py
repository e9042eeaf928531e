"""The page of an extraction: texts with coloured mentions, facts, and a graph that a browser lets one click."""

from __future__ import annotations

import html
import re

import numpy as np
import pytest

import tff_re
from scripts.browser import BROWSER, browse
from tests.extraction.stubs import Recogniser, Sentences, json_lines
from tests.pages.test_page import EVIL, Read
from tff_re.pages.network import HEIGHT, WIDTH, network, positions_of

TEXTS = (f"Aspirin inhibits EGFR.\r\n{EVIL} 💊", "ASA inhibits EGFR. Aspirin binds COX-2; nothing else.")


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    file, out = json_lines(folder / "notes.jsonl", *TEXTS), folder / "page.html"
    tff_re.extract(Recogniser(), Sentences(), file, folder / "facts.jsonl", html=out, show_text=True)
    return out


def marked(read, name):
    return [attributes for tag, attributes in read.elements if name in attributes.get("class", "").split()]


def test_the_page_shows_texts_facts_and_graph(page_file):
    text = page_file.read_text("utf-8")
    read = Read(text)
    assert [attributes["id"] for tag, attributes in read.elements if tag == "section"] == [
        *("about", "graph", "facts", "texts")
    ]
    assert "2 documents, 6 mentions, 3 facts." in read.text and "types Drug, Gene" in read.text
    for row in ("Aspirin inhibits EGFR 0.500 d0", "ASA inhibits EGFR 0.500 d1", "Aspirin binds COX-2 0.500 d1"):
        assert row in read.text, row
    mentions = marked(read, "mention")
    assert [mention["data-entity"] for mention in mentions] == ["0", "1", "2", "1", "0", "3"]
    assert len({mention["style"] for mention in mentions}) == 2
    assert mentions[0]["title"].startswith("Drug, unlinked:") and mentions[0]["title"].endswith(", 0.750")
    assert len(marked(read, "node")) == 4 and [e["data-entities"] for e in marked(read, "edge")] == [
        "0 1",
        "2 1",
        "0 3",
    ]
    assert [a["data-entities"] for tag, a in read.elements if tag == "tr" and a] == ["0 1", "2 1", "0 3"]


def test_texts_are_as_they_are_and_no_markup(page_file):
    text = page_file.read_text("utf-8")
    read = Read(text)
    assert not read.attributes("src") and not [tag for tag, _ in read.elements if tag in ("img", "link", "iframe")]
    assert [attributes for tag, attributes in read.elements if tag == "script"] == [{}]
    assert html.unescape(text).count(EVIL) == 1 and "@import" not in text and "url(http" not in text
    assert "💊" in read.text and page_file.stat().st_mode & 0o077 == 0


def test_a_page_without_facts_and_one_of_many_documents(tmp_path):
    def page_of(*texts):
        file, out = json_lines(tmp_path / "n.jsonl", *texts), tmp_path / "p.html"
        ways = {"html": out, "show_text": True, "overwrite": True}
        tff_re.extract(Recogniser(), Sentences(), file, tmp_path / "f.jsonl", **ways)
        return Read(out.read_text("utf-8"))

    assert "No fact was found in these documents." in page_of("Nothing.").text
    read = page_of(*["Aspirin inhibits EGFR."] * 60)
    assert "60 documents, 120 mentions, 60 facts; this page shows the first 50 documents." in read.text
    assert len(marked(read, "marked")) == 50
    assert len(marked(page_of("a" * 150_000, "b" * 60_000, "c"), "marked")) == 2


def test_a_picture_holds_the_entities_with_the_most_edges():
    nodes = {number: (f"name {number} " + "x" * 40, "note", "#000000") for number in range(9)}
    picture = network([(0, "r", n) for n in range(1, 9)] + [(1, "r", 0), (1, "q", 0)], nodes, 5)
    assert len(picture.nodes) == 5 and picture.nodes[0].entity == 0 and "4 others are left out" in picture.caption
    assert {edge.label for edge in picture.edges} == {"r", "r, q"} and len(picture.nodes[0].label) <= 28
    assert network([], {}, 5) is None


def test_nodes_stand_apart_within_the_picture():
    edges = [(0, n) for n in range(1, 12)] + [(11, 12)]
    points = positions_of(13, edges)
    assert (points >= 0).all() and (points <= [WIDTH, HEIGHT]).all()
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1) + 1e6 * np.eye(13)
    assert distances.min() > 40
    np.testing.assert_array_equal(points, positions_of(13, edges))
    assert np.isfinite(positions_of(1, [(0, 0)])).all()


CLICK = """<script>
const click = (element) => element.dispatchEvent(new MouseEvent("click", { bubbles: true }));
CLICKS
</script></body>"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here to show a page in")
@pytest.mark.parametrize(
    ("clicks", "fragment", "me", "on"),
    [
        ("", "", None, set()),
        ("", "#entity-0", "0", {"0 1", "0 3"}),
        ("click(document.querySelector('.node[data-entity=\"2\"] circle'));", "", "2", {"2 1"}),
        ("click(document.querySelector('.mention[data-entity=\"3\"]'));", "", "3", {"0 3"}),
        ("const node = document.querySelector('.node'); click(node); click(node);", "", None, set()),
        ("click(document.querySelector('.network'));", "#entity-0", None, set()),
    ],
)
def test_a_click_marks_an_entity_its_mentions_and_facts(page_file, tmp_path, clicks, fragment, me, on):
    clicked = tmp_path / "clicked.html"
    clicked.write_text(page_file.read_text("utf-8").replace("</body>", CLICK.replace("CLICKS", clicks)), "utf-8")
    browser = browse(clicked.as_uri() + fragment, tmp_path, "--dump-dom", timeout=120)
    read = Read(browser.stdout)
    assert not re.findall(r"CONSOLE.*(?:rror|Refused).*", browser.stderr)
    assert {attributes["data-entity"] for attributes in marked(read, "me")} == ({me} if me else set())
    assert {attributes["data-entities"] for attributes in marked(read, "on") if "data-entities" in attributes} == on
    assert bool(marked(read, "picked")) == bool(me)
