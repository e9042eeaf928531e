"""A run across three sites: the numbers of the simulation, and what leaves a site."""

from __future__ import annotations

import pytest

from tests.sites.sites_for_tests import Federation, recipe_of, same_in_one_place, write_sites
from tests.upper_floors import assert_same_weights
from tff_re.runs.run import train_run
from tff_re.sites.run import train_at_sites
from tff_re.tasks.data_paths import DataPaths


def both(tmp_path, recipe, **tables):
    files = write_sites(tmp_path / "sites", **tables)
    federation = Federation(files)
    there = train_at_sites(recipe, tmp_path / "run", federation.engine, details=False)
    federation.close()
    simulated, partition = same_in_one_place(tmp_path / "one place", recipe, files)
    paths = DataPaths(partition=partition)
    here = train_run(simulated, tmp_path / "simulated", data_paths=paths, runtime="in-process", details=False)
    return there, here, federation


@pytest.mark.parametrize("algorithm", ["fedavgs", "fedpap", "moon"])
def test_weights_are_those_of_the_simulation(tmp_path, algorithm):
    there, here, _ = both(tmp_path, recipe_of(algorithm))
    assert there[0].prepared.encoding == here[0].prepared.encoding
    assert_same_weights(there[1].weights, here[1].weights)
    assert there[1].test.metrics["accuracy"] == here[1].test.metrics["accuracy"]
