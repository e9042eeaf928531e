"""`survey`: sums of protected counts over sites in memory, and over sockets as a user types it."""

from __future__ import annotations

import collections
import itertools
import json
import threading
from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
import pytest

from tests.recognition_for_tests import write_texts
from tests.sites.relations_for_tests import LABELS, RELATIONS, mention, relations_table
from tests.sites.sites_for_tests import NAMES, Federation, corpora, recipe_of, write_site, write_sites
from tests.sites.test_own_evaluation import bag_recipe, bag_sites, document_recipe, document_sites
from tests.upper_floors import SECRET, command, refusal
from tff_re.errors import UserError
from tff_re.pages.survey_page import survey_page, survey_sections
from tff_re.recipes.reading import resolve
from tff_re.sites import protocol
from tff_re.sites.asking import Patience
from tff_re.sites.check import read_data
from tff_re.sites.data import SiteData
from tff_re.sites.messages import unpack
from tff_re.sites.policy import AllowOptions, for_sites, read_site, recipe_table
from tff_re.sites.site import SiteService
from tff_re.sites.survey import Cell, survey_sites
from tff_re.sites.survey_tables import (
    EARLIER,
    NOT_LISTED,
    ONLY,
    OTHERS,
    RawTable,
    SiteCounts,
    with_least_count,
    with_noise,
)
from tff_re.sites.transport import InMemory, NoAnswer, Serving

COUNTS = {"aachen": (20, 8, 0), "bonn": (10, 30, 3), "celle": (6, 7, 6)}
"""Site -> training texts of each of LABELS."""


def relations_recipe(*overrides, **task):
    return resolve(relations_table(**{"min_clients": 2, **task}), "tiny-relations.toml", overrides)


def records_of(site):
    """Texts of which the first six are longer than 30 tokens; test texts are the first five, and one of their own."""
    labels = [label for label, count in zip(LABELS, COUNTS[site], strict=True) for _ in range(count)]
    first = 1000 * NAMES.index(site)
    return [mention(first + n, label, words=30 if n < 6 else 3) for n, label in enumerate(labels)]


def relation_sites(folder, test=5, **tables):
    files = {}
    for site in NAMES:
        files[site] = write_site(folder / site, site, {}, **{"data": RELATIONS, **tables})
        records = records_of(site)
        write_texts(folder / site / "texts.jsonl", records)
        write_texts(folder / site / "test.jsonl", [{**r, "id": f"t{r['id']}"} for r in records[-test:]])
    return files


def surveyed(files, recipe, **ways):
    """(the result, what was sent)."""
    federation = Federation(files)
    try:
        ways = {"least_count": 5} | ways if "epsilon" not in ways else ways
        return survey_sites(recipe, federation.engine, patience=Patience(30, 0), **ways), federation.sent
    finally:
        federation.close()


def cells(result, table, split="train"):
    return result.tables[table].rows[split]


def test_sums_over_sites_with_small_counts_hidden(tmp_path):
    result, sent = surveyed(relation_sites(tmp_path), relations_recipe())
    assert result.sites == NAMES and result.least_counts == (5, 5) and result.max_length == 30
    assert cells(result, "texts") == {"texts": Cell(28 + 43 + 19)}
    assert cells(result, "texts", "test") == {"texts": Cell(15)}
    assert cells(result, "clients") == {"clients": Cell(3)}
    # Bonn has 3 texts that stop; so one of its larger counts is hidden, too.
    labels = cells(result, "labels")
    assert labels["stops"] == Cell(6, 1)
    hidden = {name for name in ("raises", "lowers") if labels[name].hidden}
    assert len(hidden) == 1 and labels[NOT_LISTED] == Cell()
    assert labels["raises"] == (Cell(26, 1) if "raises" in hidden else Cell(36))
    lengths = cells(result, "lengths")
    assert lengths["31 to 32"] + lengths["33 to 64"] == Cell(18)
    assert cells(result, "repeats", "test") == {EARLIER: Cell(), "in train": Cell(15), ONLY: Cell()}
    assert "test: 15 of 15 texts are in train, too" in result.warnings
    assert "train: 18 of 90 texts are cut at 30 tokens" in result.warnings
    assert result.skew.at_least and 0 < result.skew.mean < 1 and result.skew.distances == {}
    for _, _, answer in sent:
        assert SECRET.encode() not in answer and b"aspirin" not in answer


def test_a_small_count_is_in_no_answer(tmp_path):
    _, sent = surveyed(relation_sites(tmp_path), relations_recipe())
    for _, _, answer in sent:
        table, _ = unpack(answer)
        counts = [count for of in table["tables"] for row in of["counts"] for count in row]
        assert counts and not set(counts) & {1, 2, 3, 4}


def test_the_distance_without_hidden_labels(tmp_path):
    files = relation_sites(tmp_path, allow={"survey": {"least_count": 2, "distance": True}})
    result, _ = surveyed(files, relations_recipe(), least_count=2)
    shares = np.array([COUNTS[site] for site in NAMES], float)
    together = shares.sum(0) / shares.sum()
    distances = 0.5 * np.abs(shares / shares.sum(1, keepdims=True) - together).sum(1)
    assert result.skew.mean == pytest.approx(distances.mean()) and not result.skew.at_least
    assert list(result.skew.distances) == list(NAMES)
    assert result.skew.distances["bonn"] == pytest.approx(distances[1])
    page = survey_page(result, "made by a test")
    assert "distance of bonn" in page and SECRET not in page


def test_one_site_that_does_not_show_its_distance_keeps_another_from_showing(tmp_path):
    files = relation_sites(tmp_path, allow={"survey": {"least_count": 2, "distance": True}})
    write_site(tmp_path / "bonn", "bonn", {}, data=RELATIONS, allow={"survey": {"least_count": 2}})
    result, _ = surveyed(files, relations_recipe(), least_count=2)
    assert result.skew.distances == {}  # bonn's is three times the mean less the two others
    write_site(tmp_path / "celle", "celle", {}, data=RELATIONS, allow={"survey": {"least_count": 2}})
    result, _ = surveyed(files, relations_recipe(), least_count=2)
    assert list(result.skew.distances) == ["aachen"]


def test_words_that_sites_share(tmp_path):
    files = write_sites(tmp_path)
    result, sent = surveyed(files, recipe_of())
    held = []
    for path in files.values():
        site = read_site(path)
        data = SiteData(site, site.local_recipe(recipe_table(for_sites(recipe_of()))))
        ids = {i for client in data.clients.values() for i in client.train}
        texts = [set(s.text) for corpus in data.corpora for s in corpus.samples if s.sample_id in ids]
        counts = collections.Counter(letter for text in texts for letter in text)
        held.append({letter for letter, count in counts.items() if count >= 5})
    assert {"甲"} == held[0] & set("甲乙丙") and {"丙"} == held[2] & set("甲乙丙")
    sites = collections.Counter(letter for letters in held for letter in letters)
    words, shared = result.words, {letter for letter, count in sites.items() if count > 1}
    assert (words.least_count, words.distinct, words.shared) == (5, len(sites), len(shared))
    assert words.everywhere == len(set.intersection(*held)) > 10
    assert words.mean_shared == pytest.approx(np.mean([len(letters & shared) / len(letters) for letters in held]))
    assert result.own_vocabulary and "unknown" in result.tables
    # The recipe lists no labels: they are named because enough texts have them.
    assert result.tables["labels"].columns == ("no_symptom", "symptom", OTHERS)
    assert not any("甲".encode() in answer for _, _, answer in sent)


@pytest.mark.parametrize("off", ["policy", "secret"])
def test_without_digests_the_overlap_is_not_told(tmp_path, off):
    tables = {"allow": {"survey": {"least_count": 5, "vocabulary": False}}} if off == "policy" else {}
    files = write_sites(tmp_path, **tables)
    if off == "secret":
        for path in files.values():
            path.write_text(path.read_text("utf-8").replace('secret = "vocabulary.key"', ""), "utf-8")
    result, sent = surveyed(files, recipe_of())
    assert result.words is None and any("sent no digests" in note for note in result.notes)
    assert all(not unpack(answer)[1] for _, _, answer in sent)


def test_clients_of_sites_and_their_sizes(tmp_path):
    clients = {"rule": "documents", "least_examples": 4}
    result, sent = surveyed(write_sites(tmp_path, corpora(6), clients=clients), recipe_of())
    assert cells(result, "clients")["clients"].total == 6 + 7 + 8
    assert cells(result, "client_sizes")["1 to 9"] == Cell(21)
    assert "left_out" in result.tables and not any(b"-d0" in answer for _, _, answer in sent)


def test_bags_and_documents(tmp_path):
    result, _ = surveyed(bag_sites(tmp_path / "bags")[0], bag_recipe(tmp_path))
    assert list(result.tables["texts"].rows) == ["train"] and cells(result, "texts")["texts"].total > 0
    files, _ = document_sites(tmp_path / "documents", allow={"survey": {"least_count": 2}})
    result, _ = surveyed(files, document_recipe(), least_count=2, labels=["CID"])
    assert "CID" in cells(result, "labels") and "unknown" in result.tables


def test_noise_of_epsilon(tmp_path):
    files = relation_sites(tmp_path, allow={"survey": {"epsilon": 400.0}})
    result, sent = surveyed(files, relations_recipe(), epsilon=400.0)
    assert result.least_counts is None and "words" not in result.tables and result.words is None
    # Four tables: ε = 100 each; the noise of the texts is 0 but for a chance of e^-100.
    assert cells(result, "texts") == {"texts": Cell(90)} and cells(result, "labels")["stops"] == Cell(9)
    assert cells(result, "labels")["raises"] == Cell(36) and "unknown" not in result.tables
    scales = {t["name"]: t["scale"] for t in unpack(sent[0][2])[0]["tables"]}
    assert scales == {"texts": 1 / 100, "labels": 1 / 100, "lengths": 1 / 100, "repeats": 3 / 100}
    assert any("unknown tokens are not counted" in note for note in result.notes)
    page = survey_page(result, "")
    assert "noise of ε = 400 at each site" in page and "Standard deviation of the noise" in page


def test_with_noise_a_label_is_counted_only_if_it_is_listed(tmp_path):
    files = write_sites(tmp_path, allow={"survey": {"epsilon": 2.0}})
    result, _ = surveyed(files, recipe_of(), epsilon=1.0)
    assert "labels" not in result.tables and any("labels are not counted" in note for note in result.notes)
    result, _ = surveyed(files, recipe_of(), epsilon=1.0, labels=["x", "y"])
    assert result.tables["labels"].columns == ("x", "y", NOT_LISTED)
    with pytest.raises(UserError, match=r"aachen: surveys of its data spent ε = 2 of 2 .* and 0.5 more"):
        surveyed(files, recipe_of(), epsilon=0.5)


def changes(before, after):
    """Table -> the sum of the differences of all of its counts."""
    return {
        table.name: int(np.abs(np.array(table.counts) - np.array(after[table.name].counts)).sum()) for table in before
    }


def test_no_text_changes_a_table_by_more_than_its_sensitivity(tmp_path):
    train = [mention(n, LABELS[n % 2], words=30 * (n % 2)) for n in range(4)]
    train += [{**train[0], "id": "again", "document": "again"}]
    test = [{**train[0], "id": "t0"}, {**train[1], "id": "t1"}, {**train[1], "id": "t2"}]
    recipe, seen = relations_recipe(), set()

    def raw(records):
        path = write_site(tmp_path, "bonn", {}, data=RELATIONS, clients={"rule": "documents"})
        write_texts(tmp_path / "texts.jsonl", records)
        write_texts(tmp_path / "test.jsonl", test)
        site = read_site(path)
        read = read_data(site, site.local_recipe(recipe_table(for_sites(recipe))))
        read.data.count_all_clients()
        return SiteCounts(read, None).tables(one_client=False, least=None)

    whole = raw(train)
    assert [table.name for table in whole] == ["texts", "clients", "client_sizes", "labels", "lengths", "repeats"]
    for n in range(len(train)):
        fewer = {table.name: table for table in raw(train[:n] + train[n + 1 :])}
        for table in whole:
            change = changes([table], fewer)[table.name]
            assert change <= table.sensitivity
            seen.add((table.name, change))
    assert {("texts", 1), ("labels", 1), ("lengths", 1), ("repeats", 3)} <= seen


def test_the_sensitivity_of_repeats_is_that_of_all_arrangements():
    def repeats(*splits):
        counts = object.__new__(SiteCounts)
        counts.samples = {
            split: [SimpleNamespace(text=text) for text in texts]
            for split, texts in zip(("train", "dev", "test"), splits, strict=True)
        }
        return counts._repeats()

    largest = 0
    for splits in itertools.product(["", "a", "b", "aa", "ab"], repeat=3):
        before = repeats(*splits)
        for place in range(3):
            more = list(splits)
            more[place] = "a" + more[place]
            change = changes([before], {"repeats": repeats(*more)})["repeats"]
            largest = max(largest, change)
            assert change <= before.sensitivity
    assert largest == before.sensitivity == 5


def test_a_label_of_the_files_is_named_only_with_a_count():
    texts = RawTable("texts", ("train",), ("texts",), ((108,),))
    labels = RawTable("labels", ("train",), ("a", "b", OTHERS), ((6, 100, 2),))
    seen = set()
    for _ in range(60):
        _, table = with_least_count([texts, labels], 5)
        seen.add((table.columns, table.counts))
    # One of a and b is hidden, so that its name is not told, and its texts are those of others.
    assert seen == {(("a", OTHERS), ((6, 102),)), (("b", OTHERS), ((100, 8),))}


def test_labels_of_which_a_text_may_have_several_hide_both_sides():
    texts = RawTable("texts", ("train", "test"), ("texts",), ((10,), (4,)))
    counts = ((10, 7, 3, 0), (4, 4, 0, 0))
    labels = RawTable("labels", ("train", "test"), ("a", "b", "c", NOT_LISTED), counts, sensitivity=4, shares=True)
    sizes, table = with_least_count([texts, labels], 5)
    assert sizes.counts == ((10,), (None,)) and table.counts == ((10, None, None, 0), (None,) * 4)
    _, noisy = with_noise([texts, labels], 0.5)
    assert noisy.scale == 4 * 2 / 0.5


def test_dev_examples_are_a_split_of_their_own(tmp_path):
    result, _ = surveyed(write_sites(tmp_path, corpora(8)), recipe_of("fedavgs", "choice.metric=accuracy"))
    assert list(result.tables["texts"].rows) == list(result.tables["lengths"].rows) == ["train", "dev", "test"]
    assert result.tables["repeats"].columns == (EARLIER, "in train", "in dev", ONLY)
    assert cells(result, "texts", "dev")["texts"].total > 0


def asked(files, recipe, **ways):
    """bonn's answer to a survey, from a service that begins anew."""
    ways = {"run": "0" * 32, "recipe": for_sites(recipe), "least_count": 5, "epsilon": None, "labels": None} | ways
    service = SiteService(read_site(files["bonn"]))
    try:
        return protocol.answer_of(protocol.Survey, service.answer(protocol.to_bytes(protocol.Survey(**ways))))
    finally:
        service.close()


def test_the_same_question_gets_the_same_counts(tmp_path):
    files, noise = relation_sites(tmp_path, allow={"survey": {"epsilon": 1.0}}), {"least_count": None, "epsilon": 1.0}
    first = asked(files, relations_recipe(), **noise)
    assert first.tables == asked(files, relations_recipe(), run="1" * 32, **noise).tables
    files = relation_sites(tmp_path / "least")
    answers = [asked(files, relations_recipe()).tables for _ in range(8)]  # what is hidden in addition is drawn once
    assert all(tables == answers[0] for tables in answers)


def test_another_question_about_the_same_data_is_refused(tmp_path, capsys):
    files = relation_sites(tmp_path)
    assert asked(files, relations_recipe()).tables
    for recipe, ways in (
        (relations_recipe(max_length=31), {}),
        (relations_recipe(), {"least_count": 6}),
        (relations_recipe(), {"labels": ("raises",)}),
    ):
        assert "1 other surveys of its data were answered" in asked(files, recipe, **ways).refused
    assert asked(files, relations_recipe(), least_count=3).tables  # 5 is the site's own: the same question
    typed = command(capsys, "site", files["bonn"], "--ledger")
    assert typed.code == 0 and "1 answered" in typed.out and "surveys of the data" in typed.out
    (stored,) = (files["bonn"].parent / "state" / "surveys").iterdir()
    stored.write_text("{", "utf-8")
    refusal(command(capsys, "site", files["bonn"], "--ledger"), "is damaged; put it back")


@pytest.mark.parametrize(
    ("allow", "ways", "line"),
    [
        ({"survey": False}, {}, "answers no surveys (allow.survey = false)"),
        ({"least_sites": 2}, {}, "nothing leaves it without noise or a mask"),
        ({"survey": {"epsilon": 1.0}}, {}, "with noise only, of ε = 1 at most"),
        ({}, {"least_count": None, "epsilon": 1.0}, "with a least count of 5 and not with noise"),
        ({"survey": {"epsilon": 1.0}}, {"least_count": None, "epsilon": 1.5}, "ε = 1.5 is more than its 1"),
        ({"recipes": ["0" * 64]}, {}, "is not accepted here; its operator allows it by allow.recipes"),
    ],
)
def test_what_a_site_refuses(tmp_path, allow, ways, line):
    files = relation_sites(tmp_path, allow=allow)
    assert line in asked(files, relations_recipe(), **ways).refused
    assert not (files["bonn"].parent / "state" / "surveys").exists()


def test_a_site_hides_more_than_it_is_asked_to(tmp_path):
    files = relation_sites(tmp_path, allow={"survey": {"least_count": 10}})
    answer = asked(files, relations_recipe(), least_count=5)
    assert answer.least_count == 10 and not {3, 5} & {count for row in answer.table("repeats").counts for count in row}
    assert asked(files, relations_recipe(), least_count=5).table("texts").row("test") == (None,)


def test_a_site_without_clients_or_files_refuses_without_a_reason_of_its_data(tmp_path):
    files = relation_sites(tmp_path, clients={"least_examples": 1000})
    assert asked(files, relations_recipe()).refused.endswith("cannot be read for this recipe; see the site's log")


@pytest.mark.parametrize("given", [{}, {"survey": True}, {"survey": {"least_count": 5}}])
def test_the_default_is_a_least_count_of_five(given):
    options = AllowOptions(recipes=("any",), **{k: v for k, v in given.items() if v is True}).survey_options(
        masked=False
    )
    assert (options.least_count, options.epsilon, options.surveys, options.distance) == (5, None, 1, False)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda table: table["tables"].pop(0), "'tables' must count the texts"),
        (lambda table: table["tables"].pop(2), "lacks the table of lengths"),
        (lambda table: table["tables"].append(table["tables"][0]), "must not hold the same twice"),
        (lambda table: table["tables"][0]["counts"].pop(), "must have a number for each row and column"),
        (lambda table: table["tables"][0]["counts"][0].__setitem__(0, 3), "must not be smaller than the least count"),
        (lambda table: table["tables"][0]["counts"][0].__setitem__(0, 1 << 60), "must be from"),
        (lambda table: table["tables"][0]["counts"][0].__setitem__(0, 7.0), "number"),
        (lambda table: table["tables"][0]["columns"].__setitem__(0, "cases"), "texts has other columns"),
        (lambda table: table["tables"][0].update(scale=1.0), "'scale' must come with noise"),
        (lambda table: table.update(least_count=1), "protected in another way than asked for"),
        (lambda table: table.update(least_count=None), "must have a least count or noise"),
        (lambda table: table.update(recipe="0" * 64), "reads another recipe"),
        (lambda table: table.update(max_length=31), "other columns"),
        (lambda table: table.update(text="x"), "unknown key 'text'"),
    ],
)
def test_a_site_that_lies_about_counts_is_one_line(tmp_path, change, line):
    from tff_re.sites.messages import pack

    federation = Federation(relation_sites(tmp_path))

    def lying(message):
        table, arrays = unpack(federation.services["bonn"].answer(message))
        change(table)
        return pack(table, arrays)

    calls = {name: federation.services[name].answer for name in NAMES} | {"bonn": lying}
    with pytest.raises(UserError, match="bonn") as error:
        survey_sites(relations_recipe(), InMemory(calls), least_count=5, patience=Patience(30, 0))
    federation.close()
    assert line in str(error.value) and "\n" not in str(error.value)


def test_a_survey_asks_for_one_protection():
    ways = {"run": "0" * 32, "recipe": "", "labels": None}
    for wrong in ({"least_count": None, "epsilon": None}, {"least_count": 5, "epsilon": 1.0}):
        with pytest.raises(ValueError, match="a least count or for noise"):
            protocol.Survey(**ways, **wrong)


def test_a_site_that_does_not_answer_is_one_line(tmp_path):
    federation = Federation(relation_sites(tmp_path))

    def silent(message):
        raise NoAnswer("site bonn does not answer")

    calls = {name: federation.services[name].answer for name in NAMES} | {"bonn": silent}
    with pytest.raises(UserError, match="site bonn does not answer"):
        survey_sites(relations_recipe(), InMemory(calls), least_count=5, patience=Patience(30, 0))
    federation.close()


# As a user types it


@pytest.fixture
def sockets(tmp_path):
    """The runtime's name for three sites that answer on sockets."""
    files = relation_sites(tmp_path)
    with ExitStack() as stack:
        for path in files.values():
            service = SiteService(read_site(path))
            serving = Serving(service.answer, path.parent / "site.sock")
            thread = threading.Thread(target=serving.run)
            thread.start()
            for close in (service.close, lambda thread=thread: thread.join(5), serving.close):
                stack.callback(close)
        yield "sites:" + ",".join(f"{site}={path.parent / 'site.sock'}" for site, path in files.items())


def recipe_file(folder):
    path = folder / "recipe.toml"
    path.write_text(relations_recipe().to_toml(), "utf-8")
    return path


def test_the_command_prints_and_writes_a_page(tmp_path, sockets, capsys):
    recipe = recipe_file(tmp_path)
    for name in ("survey.html", "survey.json"):
        typed = command(capsys, "survey", recipe, "--runtime", sockets, "--out", tmp_path / name)
        assert typed.code == 0, typed
        out = " ".join(typed.out.split())
        for text in ("Data of 3 sites under tiny-relations", "6 + hidden at 1", "15 of 15 texts are in train, too"):
            assert text in out, text
        page = (tmp_path / name).read_text("utf-8")
        assert SECRET not in page and SECRET not in out and (tmp_path / name).stat().st_mode & 0o077 == 0
    assert json.loads(page)["tables"]["texts"]["rows"]["train"]["texts"] == {"total": 90, "hidden": 0}
    html = (tmp_path / "survey.html").read_text("utf-8")
    assert "6 + hidden at 1" in html and "What the survey does not tell" in html


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--sites", "bonn"], "adds the counts of at least 2 sites, and only bonn is named"),
        (["--sites", "bonn,bern"], "no socket of bern"),
        (["--epsilon", "1"], "a least count of 5 and not with noise"),
        (["--epsilon", "1", "--least-count", "5"], "give one of them"),
        (["--epsilon", "0"], "--epsilon"),
        (["--out", "survey.pdf"], "give a file whose name ends with .html or .json"),
        (["--set", "task.max_lenght=3"], "max_length"),
        (["--runtime", "in-process"], "give --runtime sites:… or flower:…"),
        (
            ["--runtime", "sites:aachen=absent.sock,bonn=absent.sock", "--retry-seconds", "0"],
            "site aachen does not answer (No such",
        ),
    ],
)
def test_bad_input_is_one_line(tmp_path, sockets, capsys, arguments, line):
    refusal(command(capsys, "survey", recipe_file(tmp_path), "--runtime", sockets, *arguments), line)


def test_the_page_says_how_to_read_it(tmp_path):
    result, _ = surveyed(relation_sites(tmp_path), relations_recipe())
    sections = {section.title: section for section in survey_sections(result)}
    assert "Labels" in sections and "Vocabulary" in sections
    (lines,) = sections["What the survey does not tell"].blocks
    assert any("hidden at 2" in line for line in lines.items)
