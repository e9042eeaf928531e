"""The benchmark of the worker's own network, in a size that measures nothing."""

import pytest

from benchmarks import sockets

pytestmark = pytest.mark.tools


def test_both_ways_to_a_worker_are_measured_and_named(tmp_path, monkeypatch):
    tff = pytest.importorskip("tensorflow_federated")
    monkeypatch.setattr(sockets, "NUMBERS", 100)
    monkeypatch.setattr(sockets, "PROBLEMS", ())
    before = tff.framework.get_context_stack().current
    try:
        table = sockets.run(2, tmp_path)
    except RuntimeError as error:
        pytest.skip(str(error))
    assert tff.framework.get_context_stack().current is before
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:6]]
    assert [row[1] for row in rows] == [sockets.PRIVATE, sockets.BARE] * 2
    assert [row[0] for row in rows] == ["0.0004 MB there and back"] * 2 + ["one number there and back"] * 2
    assert [bool(row[3]) for row in rows] == [True, False] * 2 and float(rows[0][3]) > 0
