"""Pages: one file, nothing from elsewhere, names escaped, and shown in a browser where there is one."""

from __future__ import annotations

import html.parser
import json
import math
import re
import shutil

import numpy as np
import pytest

from scripts.browser import BROWSER, browse
from tff_re.comparison.record import FORMAT
from tff_re.errors import UserError
from tff_re.pages import charts
from tff_re.pages.page import Chart, Code, Facts, Heading, Items, Section, Table, Words, page
from tff_re.pages.writing import write_page
from tff_re.report.drawing import colours_of

EVIL = "</script><script>alert(1)</script><img src=http://evil.example/x onerror=alert(2)>'\"&{{7*7}}$$x$$"
SUMMARY = (
    *("recipe", "algorithm", "seed", "rounds", "final", "best"),
    *("bytes_down_per_client_and_round", "bytes_up_per_client_and_round"),
)
RECIPE = """name = 'x'
task = { name = "sentence_relations", dataset = "chemprot" }
partition = { name = "iid" }
model = { name = "pcnn" }
training = { rounds = 2, clients_per_round = 2 }
"""


class Read(html.parser.HTMLParser):
    """What a page holds: its elements with their attributes, and the text outside of scripts and styles."""

    def __init__(self, text: str):
        super().__init__()
        self.elements, self.words, self._inside = [], [], ""
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._inside = tag

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside not in ("script", "style"):
            self.words.append(data)

    def attributes(self, name: str) -> list[str]:
        return [attributes_of_tag[name] for _, attributes_of_tag in self.elements if name in attributes_of_tag]


def csv_file(path, *rows):
    path.write_text("".join(",".join(map(str, row)) + "\r\n" for row in rows), "utf-8")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run that was never trained: two clients, two classes, two rounds."""
    folder = tmp_path_factory.mktemp("run")
    last = {"test/accuracy": 0.75, "test/loss": 0.5, "test/accuracy_worst": 0.25}
    summary = {
        **{"recipe": EVIL, "algorithm": "fedavgs", "seed": 3, "rounds": 2, "final": last, "best": last},
        **{"bytes_down_per_client_and_round": 1500, "bytes_up_per_client_and_round": 500, "notes": [EVIL]},
        "references": {"trivial: largest class": {"test/accuracy": 0.6}},
        "privacy": {
            "unit": "client",
            "epsilon": 7.991,
            "delta": 1e-3,
            "statement": "(8, 0.001)",
            "not_covered": [EVIL],
        },
    }
    (folder / "summary.json").write_text(json.dumps(summary), "utf-8")
    (folder / "recipe.toml").write_text(RECIPE, "utf-8")
    (folder / "run.log").write_text("2026-03-01 09:59:58,1 INFO a\nat 10:00\n2026-03-01 10:07:02,5 INFO b\n", "utf-8")
    (folder / "environment.json").write_text('{"tff-re": "9.9", "numpy": "1.25.2"}', "utf-8")
    heading = ("round", "clients/counted", "local/steps", "test/accuracy", "test/loss", "test/accuracy_worst")
    csv_file(folder / "metrics.csv", heading, (1, 2, 10, 0.5, 0.7, ""), (2, 2, 30, 0.75, 0.5, 0.25))
    csv_file(folder / "timings.csv", ("round", "seconds/evaluation", "seconds/training"), (1, "", 1.5), (2, 0.5, 0.5))
    csv_file(
        folder / "clients.csv", ("client", "examples", "accuracy", "loss"), ("医院 A", 4, 0.25, 1.0), ("B", 4, 1, 0)
    )
    csv_file(
        folder / "classes.csv",
        ("class", "precision", "recall", "f1", "examples"),
        ("yes", 0.5, 1, 0.67, 4),
        ("no", 1, 0.5, 0.67, 4),
    )
    csv_file(folder / "confusion.csv", ("class", "yes", "no"), ("yes", 4, 0), ("no", 2, 2))
    labels = (
        ("client", "split", "yes", "no"),
        ("医院 A", "train", 5, 0),
        ("医院 A", "test", 2, 2),
        ("B", "train", 1, 9),
        ("B", "test", 2, 2),
    )
    csv_file(folder / "labels.csv", *labels)
    return folder


@pytest.fixture(scope="module")
def page_file(run, tmp_path_factory):
    """The file of its page."""
    return write_page(run, tmp_path_factory.mktemp("page") / "run.html")


def test_the_page_of_a_run_is_one_file_with_all_its_sections(page_file):
    text = page_file.read_text("utf-8")
    assert 1_000_000 < len(text.encode("utf-8")) < 2_000_000 and page_file.stat().st_mode & 0o077 == 0
    read = Read(text)
    sections = [attributes["id"] for tag, attributes in read.elements if tag == "section"]
    assert sections == [
        *("run", "results", "curves", "partition", "classes", "clients", "costs", "privacy", "environment", "repeat")
    ]
    assert read.attributes("href") == [f"#{name}" for name in sections]
    for part in ("75.00 %", "60.00 %", "25.00 %", "医院 A", "8.0 kB", "local steps, all clients 40", "ε 8.00", "9.9"):
        assert part in read.text, part
    # Loss, accuracy, accuracy over bytes and over steps, the spread, the partition, classes, confusion, clients.
    assert len(read.attributes("data-root-id")) == 9


def test_the_page_says_its_result_and_what_was_run(page_file, run, tmp_path):
    read = Read(page_file.read_text("utf-8"))
    headline = "fedavgs reaches a test accuracy of 75.00 % after 2 rounds; always predicting the most frequent class"
    assert f"{headline} gives 60.00 %." in read.text and "no better than" not in read.text
    for name, value in (("task", "sentence relations"), ("data", "chemprot"), ("partition", "iid"), ("model", "pcnn")):
        assert f"{name} {value}" in read.text, name
    assert "rounds 2 of 2 clients 2, 2 a round" in read.text
    assert "date 2026-03-01 09:59 to 10:07 duration 2.5 s" in read.text
    assert "add --data DIR" in read.text
    # Of a run that needs no files of others --data is not asked for, and a model of no use is called so.
    folder = shutil.copytree(run, tmp_path / "run")
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    summary["references"]["trivial: largest class"]["test/accuracy"] = 0.75
    (folder / "summary.json").write_text(json.dumps(summary), "utf-8")
    (folder / "recipe.toml").write_text(RECIPE.replace("chemprot", "shipped"), "utf-8")
    text = Read(write_page(folder).read_text("utf-8")).text
    assert "The model is no better than always predicting the most frequent class." in text and "--data" not in text
    (folder / "recipe.toml").write_text("a = ", "utf-8")
    with pytest.raises(UserError, match=r"recipe\.toml: is damaged"):
        write_page(folder)


def test_a_split_has_one_colour_in_every_chart():
    loss, quality = colours_of(["local/loss", "test/loss", "train/loss", "odd"]), colours_of(["dev/f1", "test/f1"])
    assert loss["test/loss"] == quality["test/f1"] and len({*loss.values(), quality["dev/f1"]}) == 5
    assert colours_of(["train_accuracy"])["train_accuracy"] == loss["train/loss"]
    worst, best = colours_of(["test/accuracy_worst", "test/accuracy_best"]).values()
    assert worst == loss["test/loss"] != best
    figure = charts.lines({"test/f1": [(1, 0.5, 0.5, 0.5)]}, "round", "f1", colours={"test/f1": "#123456"})
    assert figure.renderers[0].glyph.line_color == "#123456"


def test_every_table_scrolls_by_itself(page_file):
    text = page_file.read_text("utf-8")
    assert text.count('<div class="wide" tabindex="0"><table>') == text.count("<table>") > 2
    assert re.search(r"\.wide \{ overflow-x: auto; max-width: 100%;", text)


def test_what_clients_gain_by_fine_tuning(run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    metrics = {"personal/gain": 0.125, "personal/gain_worst": -0.25, "personal/not_worse": 0.5}
    summary["personalised"] = {**metrics, "client_that_gains_least": "B"}
    (folder / "summary.json").write_text(json.dumps(summary), "utf-8")
    heading = ("client", "examples", "accuracy", "loss", "accuracy_personal", "loss_personal", "gain")
    rows = ("医院 A", 4, 0.25, 1.0, 0.75, 0.5, 0.5), ("B", 4, 1, 0, 0.75, 0.2, -0.25)
    csv_file(folder / "clients.csv", heading, *rows)
    text = Read(write_page(folder, tmp_path / "page.html").read_text("utf-8")).text
    for part in ("gain by fine-tuning, all examples 12.50 %", "gains least B: -25.00 %", "do not get worse 50.00 %"):
        assert part in text, part
    # The client that gains least first.
    assert "B 4 100.00 % 75.00 % -25.00 % 0.0000 医院 A 4 25.00 % 75.00 % 50.00 % 1.0000" in text


def test_nothing_comes_from_elsewhere_and_nothing_of_the_data_is_markup(page_file):
    text = page_file.read_text("utf-8")
    read = Read(text)
    assert not read.attributes("src") and not [tag for tag, _ in read.elements if tag in ("img", "link", "iframe", "b")]
    # Bokeh, how much it says, and the figures.
    assert [attributes for tag, attributes in read.elements if tag == "script"] == [{}] * 3
    (policy,) = [
        attributes["content"]
        for tag, attributes in read.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert "default-src 'none'" in policy and "http" not in policy
    assert read.text.count("alert(1)</script>") == 5 and "{{7*7}}" in read.text  # title, heading, recipe, note, privacy
    assert "@import" not in text and not re.search(r"url\(\s*['\"]?https?:", text)


def test_names_in_charts_are_not_markup_either():
    names = [EVIL, "plain"]
    figures = [
        charts.lines({EVIL: [(1, 0.5, 0.4, 0.6)], "empty": []}, EVIL, EVIL, controls=[EVIL], percent=True),
        charts.cells([[1, 0], [math.nan, 3]], names, names, row_title=EVIL, column_title=EVIL, value=EVIL),
        charts.bars(names, {EVIL: [0.5, math.nan]}, EVIL, percent=True),
        charts.dots(names, {EVIL: [0.5, math.nan], "b": [1, 0]}, EVIL, EVIL),
    ]
    text = page("t", "s", [Section("a", "A", [Chart(figure, EVIL) for figure in figures])], "m")
    read = Read(text)
    assert [attributes for tag, attributes in read.elements if tag == "script"] == [{}] * 3
    assert not read.attributes("src") and len(read.attributes("data-root-id")) == 4
    data = text.rpartition("<script")[2]
    assert "alert(1)" in data and "$$x$$" not in data  # for which Bokeh would fetch a library


def test_a_chart_holds_its_numbers():
    points = [(2, 0.6, 0.5, 0.7), (1, 0.4, 0.4, 0.4)]
    figure = charts.lines({"A": points, "B": []}, "round", "accuracy")
    data = figure.renderers[0].data_source.data
    np.testing.assert_array_equal([data[key] for key in ("x", "mean", "low", "high")], np.array(sorted(points)).T)
    assert [item.label.value for item in figure.legend[0].items] == ["A"]
    matrix = charts.cells(
        [[5, 1], [0, 9]], ["yes", "no"], ["a", "b"], row_title="class", column_title="client", value="n"
    )
    data = matrix.renderers[0].data_source.data
    cells = zip(data["row"], data["column"], data["value"], strict=True)
    assert list(cells) == [("yes", "a", 5), ("yes", "b", 1), ("no", "a", 0), ("no", "b", 9)]
    assert data["colour"][2] == "#ffffff" and len(set(data["colour"])) == 4  # none is white
    assert (matrix.y_range.start, matrix.y_range.end) == (2, 0)  # from the top down


def test_all_kinds_of_blocks_and_no_script_without_charts():
    blocks = [
        *(Words("w"), Heading("h"), Items(["i"]), Facts({"f": "v"}), Code("c"), Code("long", folded="more")),
        Table(["row", "verdict"], [["a", "gain"], ["b", "open"]], frozenset({1}), caption="under"),
    ]
    read = Read(page("T", "S", [Section("a", "A", blocks), Section("b", "empty", [])], "made"))
    assert read.text == "T T S A A w h i f v c more long row verdict a gain b open under made"
    assert [attributes.get("class") for tag, attributes in read.elements if tag == "span"] == [
        "verdict gain",
        "verdict open",
    ]
    assert [attributes for tag, attributes in read.elements if tag == "tr"][1:] == [{}, {"class": "muted"}]
    assert not [tag for tag, _ in read.elements if tag in ("script", "noscript")]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("summary.json", None, "the run is not finished (summary.json is missing)"),
        ("summary.json", "{", "summary.json: is damaged (not JSON)"),
        ("summary.json", "{}", "summary.json: is damaged"),
        ("metrics.csv", "round,a\r\n", "metrics.csv: is missing or empty"),
        ("metrics.csv", None, "metrics.csv: is missing or empty"),
        ("metrics.csv", "round\r\n2\r\n", "metrics.csv: is damaged"),
        ("summary.json", json.dumps(dict.fromkeys(SUMMARY, 1)), "summary.json: is damaged"),
        ("clients.csv", "client,examples,accuracy,loss\r\nA,4,high,1\r\n", "clients.csv: is damaged"),
        ("classes.csv", "class,f1\r\nA,1\r\n", "classes.csv: is damaged"),
        ("labels.csv", "client,split,a\r\nA,train\r\n", "labels.csv: is damaged"),
        ("comparison.json", '{"format": 0}', "comparison.json: was written by another version"),
        ("comparison.json", json.dumps({"format": FORMAT, "tables": []}), "comparison.json: is damaged"),
    ],
)
def test_a_damaged_or_unfinished_folder_is_named(name, content, said, run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    path = tmp_path / "run" / name
    if content is None:
        path.unlink()
    else:
        path.write_text(content, "utf-8")
    with pytest.raises(UserError, match=re.escape(said)):
        write_page(tmp_path / "run")
    assert not (tmp_path / "run" / "report.html").exists()


def test_folders_that_hold_nothing_to_show(tmp_path, run):
    for path, said in (
        (tmp_path / "no", "no such folder"),
        (tmp_path, "holds no run"),
        (run / "summary.json", "a file"),
    ):
        with pytest.raises(UserError, match=said):
            write_page(path)
    with pytest.raises(UserError, match="is a folder; give a file"):
        write_page(run, tmp_path)


def test_what_a_run_does_not_hold_is_said(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    for name in ("labels.csv", "classes.csv", "confusion.csv", "environment.json"):
        (tmp_path / "run" / name).unlink()
    read = Read(write_page(tmp_path / "run").read_text("utf-8"))
    assert "The labels of its clients are unknown here (there is no labels.csv)." in read.text
    assert "#classes" not in read.attributes("href") and "#clients" in read.attributes("href")


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here to show a page in")
def test_a_browser_draws_every_chart(page_file, tmp_path):
    browser = browse(page_file.as_uri(), tmp_path, "--dump-dom", timeout=600)
    drawn = Read(browser.stdout)
    assert sum(attributes.get("class") == "bk-Figure" for _, attributes in drawn.elements) == 9
    assert not re.findall(r"CONSOLE.*(?:rror|Refused).*", browser.stderr)
