"""Files of every kind with damage at random places: they are read, or refused in one line that names the file."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datasets.catalogue import find_data_set, load
from datasets.errors import DataError
from tests.bags_for_tests import data_folder as bags_folder
from tests.recipe_data_for_tests import data_folder

FILES = {
    "ade": "ade/DRUG-AE.rel",
    "cdr": "cdr/train.pubtator",
    "chemprot": "chemprot/train.jsonl",
    "biored": "biored/train.pubtator",
    "docred": "re_docred/train_revised.json",
    "documents": "biored/train.pubtator",
    "dxy": "dxy/train.jsonl",
    "gad": "gad/1/train.tsv",
    "i2b2_2010": "i2b2_2010/train/rel/record-0.rel",
    "imcs_v2": "mie/train.imcs_v2.json",
    "mie_windows": "mie/train.windows.json",
    "nyt10": "nyt10/nyt10_train.txt",
}
"""Data set -> a file of its form; a folder of files for i2b2."""

PIECES = (b"", b"null", b"[]", b'"', b"1", b"{}", b"\t", b"|", b"\n", b"-", b"\xff", b"\\u00d8", "\u2028𝄞".encode())


@pytest.fixture(params=FILES)
def whole(request, tmp_path):
    """(name of the data set, the file to damage, what its reader reads, a sentence of it)."""
    name = request.param
    source = bags_folder() if name == "nyt10" else data_folder()
    folder = tmp_path / "data"
    shutil.copytree(source / FILES[name].split("/")[0], folder / FILES[name].split("/")[0])
    file = folder / FILES[name]
    return name, file, file.parents[1] if name == "i2b2_2010" else file


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(whole, data):
    name, file, path = whole
    sound = file.read_bytes()
    damaged = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged)))
        end = data.draw(st.integers(at, min(len(damaged), at + 30)))
        damaged[at:end] = data.draw(st.sampled_from(PIECES))
    file.write_bytes(damaged)
    try:
        data_set = find_data_set(name)
        label = {"label": None} if "label" in data_set.options else {}
        assert load(data_set.kind, name, path=path, split="train", **label).samples
    except DataError as error:
        message = str(error)
        assert "\n" not in message and str(path) in message, message
        assert error.line is None or 1 <= error.line <= damaged.count(b"\n") + 2
    finally:
        file.write_bytes(sound)
