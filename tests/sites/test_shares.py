"""A simulation shared out over machines: sites that take their parts of the recipe's own clients."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.sites.sites_for_tests import Federation, recipe_of, write_site
from tests.upper_floors import assert_same_weights, consultations
from tff_re.errors import UserError
from tff_re.recipes.reading import resolve, tomllib
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.runs.run import train_run
from tff_re.sites.policy import read_site
from tff_re.sites.run import train_at_sites


def shared_out(folder, recipe, parts):
    """(the run across so many shares, the same recipe as a simulation)."""
    corpus = consultations(9)
    tables = [{"rule": "share", "share": f"{number}/{parts}"} for number in range(1, parts + 1)]
    files = {
        f"machine{n}": write_site(folder / f"machine{n}", f"machine{n}", corpus, clients=clients)
        for n, clients in enumerate(tables)
    }
    for path in files.values():  # the first share counts the words of all, so that nothing has to be kept secret
        text = path.read_text("utf-8")
        path.write_text(re.sub(r"\[vocabulary\]\nsecret = .*\n", "", text), "utf-8")
    federation = Federation(files)
    try:
        experiment, result = train_at_sites(recipe, folder / "run", federation.engine, details=False)
    finally:
        federation.close()
    table = tomllib.loads(recipe.to_toml())
    table["task"]["path"] = str(folder / "machine0" / "texts.json")
    simulated = resolve(table, "simulated.toml")
    return (experiment, result), train_run(simulated, folder / "simulated", runtime="in-process", details=False)


FOUR = ("partition={name='iid', num_clients=4}", "training.clients_per_round=4")


@pytest.mark.parametrize("algorithm", ["fedpap", pytest.param("moon", marks=pytest.mark.slow)])
def test_four_shares_are_the_simulation_to_the_bit(tmp_path, algorithm):
    (there, ours), (here, simulated) = shared_out(tmp_path, recipe_of(algorithm, *FOUR), 4)
    assert there.prepared.encoding == here.prepared.encoding
    clients = [
        [(c.client_id, len(c.train["y"])) for c in experiment.prepared.examples.clients] for experiment in (there, here)
    ]
    assert clients[0] == clients[1] and len(clients[0]) == 4
    assert_same_weights(ours.weights, simulated.weights)
    across, alone = (read_history(RunFolder(tmp_path / name)) for name in ("run", "simulated"))
    for row, expected in zip(across, alone, strict=True):
        np.testing.assert_allclose([row["test/loss"]], [expected["test/loss"]], rtol=1e-6)


def test_shares_of_several_clients_differ_by_the_rounding_of_sums_only(tmp_path):
    keys = ("partition={name='iid', num_clients=7}", "training.clients_per_round=5", "training.rounds=1")
    (there, ours), (here, simulated) = shared_out(tmp_path, recipe_of("fedavgs", *keys), 3)
    assert [c.client_id for c in there.prepared.examples.clients] == [
        c.client_id for c in here.prepared.examples.clients
    ]
    for mine, expected in zip(ours.weights.trainable, simulated.weights.trainable, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("shares", [("2/2", "1/2"), ("1/3", "2/3"), ("1/2", "1/2"), ("1/2", None)])
def test_all_shares_take_part_in_their_order(tmp_path, shares):
    files = {}
    for number, share in enumerate(shares):
        clients = {"rule": "one"} if share is None else {"rule": "share", "share": share}
        files[f"machine{number}"] = write_site(
            tmp_path / str(number), f"machine{number}", consultations(4), clients=clients
        )
    federation = Federation(files)
    with pytest.raises(UserError, match=r"name sites that have 1/2 to 2/2, in this order") as raised:
        train_at_sites(recipe_of("fedavgs", *FOUR), tmp_path / "run", federation.engine)
    federation.close()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("clients", "line"),
    [
        ({"rule": "share"}, "= 'share' needs share, such as '2/4'"),
        ({"share": "1/2"}, "no other rule has one"),
        ({"rule": "share", "share": "3/2"}, "must be NUMBER/PARTS"),
        ({"rule": "share", "share": "0/2"}, "must be NUMBER/PARTS"),
        ({"rule": "share", "share": "half"}, "must be NUMBER/PARTS"),
        ({"rule": "share", "share": "1/2", "least_examples": 3}, "leave least_examples out"),
    ],
)
def test_malformed_shares(tmp_path, clients, line):
    path = write_site(tmp_path, "one", consultations(2), clients=clients)
    with pytest.raises(UserError, match=line) as raised:
        read_site(path)
    assert "\n" not in str(raised.value) and "site.toml" in str(raised.value)


def test_a_share_has_no_examples_for_the_server(tmp_path):
    file = write_site(tmp_path / "one", "one", consultations(4), clients={"rule": "share", "share": "1/1"})
    path = tmp_path / "own.json"
    path.write_text((tmp_path / "one" / "texts.json").read_text("utf-8"), "utf-8")
    recipe = recipe_of("feded", "task.server_share=0.2", f"task.path={path}", "training.clients_per_round=1")
    federation = Federation({"one": file})
    with pytest.raises(UserError, match=r"task\.server_share: shares have all samples"):
        train_at_sites(recipe, tmp_path / "run", federation.engine)
    federation.close()
