"""Interrupted extractions: they continue after the last whole document, and no file holds half a line."""

from __future__ import annotations

import gc
import json
import re
import resource
import shutil
import tracemalloc

import pytest

import tff_re
from datasets.errors import DataError
from tests.extraction.stubs import SECRET, Documents, Recogniser, Sentences, extracted, json_lines, write

TEXTS = [f"Aspirin{'.' * (n % 3)} inhibits EGFR, {SECRET} {n}." for n in range(40)]
OUTPUTS = {"facts": "facts.jsonl", "pubtator": "all.pubtator", "html": "page.html", "graph": "graph"}


class Stop(Exception):
    """Ends an extraction as a kill would."""


class Stopping(Recogniser):
    """Stops before the given batch."""

    def __init__(self, batch):
        super().__init__()
        self.batch = batch

    def predict(self, texts):
        if len(self.batches) == self.batch:
            raise Stop
        return super().predict(texts)


def outputs_in(folder):
    folder.mkdir(exist_ok=True)
    names = {name: folder / file for name, file in OUTPUTS.items()}
    return {"out": names.pop("facts"), "show_text": True, **names}


def run(folder, source, recogniser=None, **ways):
    return tff_re.extract(recogniser or Recogniser(), Sentences(), source, **outputs_in(folder), **ways)


def files_in(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def without_keys(files):
    """The files without the keyed numbers, which are of each run."""
    return {name: re.sub(rb"unlinked:\w+", b"unlinked", data) for name, data in files.items()}


@pytest.fixture
def source(tmp_path):
    return json_lines(tmp_path / "notes.jsonl", *TEXTS)


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_an_interrupted_extraction_continues(tmp_path, source, batch):
    whole = run(tmp_path / "whole", source)
    with pytest.raises(Stop):
        run(tmp_path / "two", source, Stopping(batch))
    names = {path.name for path in (tmp_path / "two").iterdir()}
    assert names == {"facts.jsonl.part", "all.pubtator.part", "page.html.part", "facts.jsonl.state"}
    for name in ("facts.jsonl.part", "all.pubtator.part"):  # what a kill within a batch leaves
        with open(tmp_path / "two" / name, "ab") as file:
            file.write(b'{"document": "d1')
    resumed, recogniser = [], Recogniser()
    result = run(tmp_path / "two", source, recogniser, resume=True, on_batch=resumed.append)
    assert sum(recogniser.batches) == 40 - 16 * batch and resumed[0].documents == 16 * batch
    assert (result.documents, result.mentions, result.facts, result.notes) == (40, 80, 40, whole.notes)
    files = files_in(tmp_path / "two")
    assert without_keys(files) == without_keys(files_in(tmp_path / "whole"))
    assert set(files) == {"facts.jsonl", "all.pubtator", "page.html", *(f"graph/{n}" for n in GRAPH)}
    ids = {json.loads(line)["head"]["id"] for line in files["facts.jsonl"].splitlines()}
    assert len(ids) == 1, "the numbers of unlinked mentions are those of the first part"


GRAPH = ("graph.graphml", "nodes.csv", "edges.csv")


def test_files_are_for_their_user_only(tmp_path, source):
    run(tmp_path / "out", source)
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "out").rglob("*") if path.is_file())


def refused(folder, source, recogniser=None, **ways):
    with pytest.raises(DataError) as raised:
        run(folder, source, recogniser, **ways)
    return str(raised.value)


def test_nothing_is_replaced_or_resumed_unasked(tmp_path, source):
    folder = tmp_path / "out"
    folder.mkdir()
    assert "has no interrupted extraction; there is nothing to resume" in refused(folder, source, resume=True)
    with pytest.raises(Stop):
        run(folder, source, Stopping(1))
    assert "facts.jsonl.state: an interrupted extraction; use --resume, or start anew" in refused(folder, source)
    run(folder, source, overwrite=True)
    assert "graph.graphml: already exists" in refused(folder, source)
    shutil.rmtree(folder / "graph")
    assert "facts.jsonl: already exists" in refused(folder, source)
    assert "facts.jsonl: is finished; there is nothing to resume" in refused(folder, source, resume=True)
    (folder / "facts.jsonl").unlink()
    assert "all.pubtator: already exists" in refused(folder, source)


def test_another_setting_cannot_continue(tmp_path, source):
    folder = tmp_path / "out"
    with pytest.raises(Stop):
        run(folder, source, Stopping(1))
    names = write(tmp_path / "names.tsv", "a\tb\n")
    for setting, ways in {
        "terminology": {"terminology": names},
        "unit": {"unit": "sentences"},
        "similarity": {"similarity": 0.5},
    }.items():
        assert f"was started with another setting: {setting}" in refused(folder, source, resume=True, **ways)
    with pytest.raises(DataError, match="another setting: files"):
        out = outputs_in(folder)["out"]
        tff_re.extract(Recogniser(), Sentences(), source, out, show_text=True, resume=True)
    with pytest.raises(DataError, match="another setting: pairs"):
        other = Sentences(pair_types=[["gene", "drug"]])
        tff_re.extract(Recogniser(), other, source, **outputs_in(folder), resume=True)
    json_lines(source, *TEXTS[:-1])
    assert "was started with another setting: input" in refused(folder, source, resume=True)


def test_lines_cannot_become_whole_files_when_it_continues(tmp_path):
    notes = write(tmp_path / "notes.txt", "".join(f"{text}\n" for text in TEXTS))
    with pytest.raises(Stop):
        run(tmp_path / "out", notes, Stopping(1), lines=True)
    assert "was started with another setting: lines" in refused(tmp_path / "out", notes, resume=True)


def test_a_damaged_state_is_named(tmp_path, source):
    folder = tmp_path / "out"
    with pytest.raises(Stop):
        run(folder, source, Stopping(1))
    (folder / "facts.jsonl.part").write_bytes(b"")
    assert "facts.jsonl.part: is missing or shorter than its state says" in refused(folder, source, resume=True)
    state = folder / "facts.jsonl.state"
    value = json.loads(state.read_text("utf-8"))
    for damage in ({"format": 0}, {"key": "xyz"}, {"bytes": {}}, {"documents": "1"}):
        write(state, json.dumps({**value, **damage}))
        assert "facts.jsonl.state: " in refused(folder, source, resume=True)
    write(state, "{")
    assert "facts.jsonl.state: " in refused(folder, source, resume=True)


@pytest.mark.parametrize("size", [300, 6000])
def test_a_full_disk_ends_in_one_line_and_the_extraction_continues(tmp_path, source, size):
    """300 bytes do not hold the state, 6000 not the facts of all documents."""
    folder, before = tmp_path / "out", resource.getrlimit(resource.RLIMIT_FSIZE)
    folder.mkdir()
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        said = refused(folder, source)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "cannot be written (File too large); free some space and continue with --resume" in said
    assert "\n" not in said and SECRET not in said
    assert not (folder / "facts.jsonl").exists()
    result = run(folder, source, resume=(folder / "facts.jsonl.state").exists())
    assert result.facts == 40 and len((folder / "facts.jsonl").read_text("utf-8").splitlines()) == 40


def test_a_folder_that_is_a_file_is_one_line(tmp_path, source):
    write(tmp_path / "file", "x")
    with pytest.raises(DataError, match="cannot be written"):
        tff_re.extract(Recogniser(), Sentences(), source, tmp_path / "file" / "facts.jsonl")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match="folder: is a folder"):
        tff_re.extract(Recogniser(), Sentences(), source, tmp_path / "folder")


def test_memory_does_not_grow_with_the_number_of_documents(tmp_path):
    """What is held after a batch is the same after the fifth and after the fiftieth."""
    source, held = write(tmp_path / "n.txt", f"{'Aspirin inhibits EGFR. ' * 9}\n" * 800), []

    def measure(progress):
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])

    tracemalloc.start()
    ways = {"lines": True, "graph": tmp_path / "g.graphml", "on_batch": measure}
    tff_re.extract(_First(), _Forgetful(), source, tmp_path / "f.jsonl", **ways)
    tracemalloc.stop()
    assert len(held) == 51 and held[-1] < held[5] + 100_000  # 128 bytes a document


class _First(Recogniser):
    """Finds the first two words only."""

    def predict(self, texts):
        return [entities[:2] for entities in super().predict([text[:60] for text in texts])]


class _Forgetful(Documents):
    """Holds nothing of what it has read."""

    def scores(self, corpus):
        self.corpora.clear()
        return super().scores(corpus)


def test_an_extraction_of_no_fact_has_an_empty_file(tmp_path):
    facts, result = extracted(tmp_path, "None.")
    assert facts == [] and result.facts == 0 and (tmp_path / "facts.jsonl").read_bytes() == b""
