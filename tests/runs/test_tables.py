"""Tables of many rows: what was written comes back, in the form that people read or in the binary one."""

import json

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from datasets.errors import DataError
from datasets.partition import ClientSamples, Partition, read_partition, storage, write_partition
from datasets.tables import is_table, packed_columns, read_columns
from tff_re.errors import UserError
from tff_re.pages import charts
from tff_re.report.heatmaps import partition_heatmap
from tff_re.runs import tables
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_table
from tff_re.runs.tables import write_table

texts = st.lists(st.text(max_size=6), max_size=6)


@hypothesis.given(a=texts, b=texts, numbers=st.lists(st.floats(), max_size=5))
def test_columns_come_back(tmp_path_factory, a, b, numbers):
    path = tmp_path_factory.mktemp("columns") / "t.npz"
    content = packed_columns({"a": a, "b": b, "numbers": np.array(numbers, np.float64)})
    path.write_bytes(content)
    columns = read_columns(path)
    assert (columns["a"], columns["b"]) == (a, b) and is_table(path)
    np.testing.assert_array_equal(columns["numbers"], np.array(numbers, np.float64))
    assert content == packed_columns({"a": a, "b": b, "numbers": np.array(numbers, np.float64)})


@pytest.mark.parametrize("name", ["a.utf8", "a.ends"])
def test_a_damaged_column_is_refused(tmp_path, name):
    path = tmp_path / "t.npz"
    path.write_bytes(packed_columns({"a": ["one", "two"]}))
    with np.load(path) as stored:
        arrays = dict(stored)
    for wrong in (arrays[name][:-1], arrays[name].astype(np.float32), None):
        np.savez(path, **{key: array for key, array in (arrays | {name: wrong}).items() if array is not None})
        if name == "a.ends" and wrong is None:
            assert list(read_columns(path)) == ["a.utf8"]  # an array like any other
            continue
        with pytest.raises(DataError, match="is damaged; copy it again"):
            read_columns(path)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DataError, match="is damaged"):
        read_columns(path)


CLIENTS = {
    "甲\n医院": ClientSamples(("s/1", "s/2"), ("s/3",)),
    "b": ClientSamples((), ("s/4",)),
    "c": ClientSamples(("é",), ()),
}


@pytest.mark.parametrize("server", [(), ("x", "y")])
def test_a_partition_of_many_samples_is_a_table(tmp_path, monkeypatch, server):
    partition = Partition("iid", {"num_clients": 3, "test_share": 0.1}, 7, CLIENTS, ("a note",), server)
    plain = write_partition(partition, tmp_path / "partition.json")
    monkeypatch.setattr(storage, "MOST_IN_JSON", 4)
    table = write_partition(partition, tmp_path / "partition.json")
    assert plain.name == "partition.json" and table.name == "partition.npz" and is_table(table)
    assert read_partition(table) == read_partition(plain) == partition
    folder = RunFolder(tmp_path)
    assert folder.partition.name == "partition.json"  # both are there
    plain.unlink()
    assert folder.partition == tmp_path / "partition.npz"


def test_a_damaged_table_of_a_partition_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "MOST_IN_JSON", 0)
    path = write_partition(Partition("iid", {}, 7, CLIENTS), tmp_path / "p.json")
    columns = read_columns(path)
    about = json.loads(columns["about"][0])
    for wrong, reason in (
        ({"about": [json.dumps({**about, "version": 2})]}, "another version of the format"),
        ({"about": []}, "is not a partition"),
        ({"client": ["b", "b", "c"]}, "is not a partition"),
        ({"train_samples": np.array([2, 0, 2])}, "is not a partition"),
        ({"train_samples": np.array([3, 0])}, "is not a partition"),
        ({"test": ["s/1", "s/4"]}, "is held twice by one client"),
    ):
        path.write_bytes(packed_columns({**columns, **wrong}))
        with pytest.raises(DataError, match=reason):
            read_partition(path)


COLUMNS = [
    ("client", ["a", "b", "c"]),
    ("examples", [3, None, 5]),
    ("loss", [0.1, None, 1e-7]),
    ("lost", [None, "x", ""]),
]


def test_a_table_of_many_rows_reads_like_its_csv(tmp_path, monkeypatch):
    path = tmp_path / "clients.csv"
    assert write_table(path, COLUMNS[:3]) == path
    assert path.read_text("utf-8") == "client,examples,loss\na,3,0.1\nb,,\nc,5,1e-07\n"
    rows = read_table(path, "client")
    monkeypatch.setattr(tables, "MOST_IN_CSV", 2)
    path.unlink()
    table = write_table(path, COLUMNS[:3])
    assert table == tmp_path / "clients.npz" == RunFolder(tmp_path).clients and not path.exists()
    many = read_table(path, "client")
    np.testing.assert_equal(list(many), rows)
    np.testing.assert_equal([many[1], many[:2], len(many)], [rows[1], rows[:2], 3])
    write_table(path, COLUMNS)
    assert [row["lost"] for row in read_table(table)] == ["", "x", ""]
    with pytest.raises(UserError, match=r"clients\.npz: is damaged; put it back"):
        read_table(path, "accuracy")
    table.write_bytes(packed_columns({"columns": ["client", "loss"], "column 0": ["a"], "column 1": np.zeros(2)}))
    with pytest.raises(UserError, match=r"clients\.npz: is damaged"):
        read_table(path)


def test_pictures_of_many_clients_show_some(tmp_path, monkeypatch):
    monkeypatch.setattr("tff_re.report.heatmaps.MOST_CLIENTS", 4)
    counts = np.arange(20).reshape(10, 2)
    written = partition_heatmap(tmp_path / "p.png", counts, [f"c{i}" for i in range(10)], ["no", "yes"])
    assert written[0].stat().st_size > 1000
    monkeypatch.setattr(charts, "MOST_DOTS", 3)
    figure = charts.dots([f"c{i}" for i in range(9)], {"accuracy": [0.9, *[0.1 * i for i in range(8)]]}, "client", "x")
    (renderer,) = figure.renderers
    assert renderer.data_source.data["of"] == ["c1", "c5", "c0"]
    assert figure.xaxis[0].axis_label == "client (3 of 9, evenly spaced from the lowest to the highest)"
