"""The benchmark of what a stage costs, without Flower: its table, and that a wrong answer is found."""

import pytest

from benchmarks import flower, sites
from tff_re.sites.messages import pack
from tff_re.sites.transport import InMemory

pytestmark = pytest.mark.tools


def test_the_table_has_each_way_and_size(tmp_path, monkeypatch):
    monkeypatch.setattr(flower, "missing", lambda: "there is no .flower")
    monkeypatch.setattr(sites, "NUMBERS", (10, 1000))
    markdown = sites.run(2, tmp_path)
    for name in (sites.MEMORY, sites.SOCKETS):
        assert f"| {name} | 4e-05 MB | " in markdown and f"| {name} | 0.004 MB | " in markdown
    assert "Flower was skipped: there is no .flower." in markdown and "\n| Flower" not in markdown


def test_an_answer_of_another_site_is_found():
    engine = InMemory({name: lambda message: pack({"site": "aachen"}) for name in sites.SITES})
    with pytest.raises(RuntimeError, match="site aachen was not answered"):
        sites.stages(engine, lambda: 0.0, 10, 1)
