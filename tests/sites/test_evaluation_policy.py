"""What allow.evaluation lets the coordinator's files have of a site: a part of the total, its own row, or nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.sites.sites_for_tests import Federation, corpora, recipe_of, stages, write_site, write_sites
from tff_re.errors import UserError
from tff_re.runs.evaluation import Evaluator
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history, read_table
from tff_re.sites.agreement import read_agreement
from tff_re.sites.run import open_at_sites, train_at_sites
from tff_re.tasks.data_paths import DataPaths


def files_of(folder, **policies):
    """Sites whose allow.evaluation is the given one, else the default."""
    files = write_sites(folder / "sites")
    for name, policy in policies.items():
        allow = {"evaluation": policy}
        files[name] = write_site(folder / "sites" / name, name, corpora()[name], allow=allow)
    return files


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """(folder, federation, result): aachen allows a row, bonn the total only, celle nothing."""
    folder = tmp_path_factory.mktemp("mixed")
    federation = Federation(files_of(folder, aachen="own", celle="none"))
    keys = ("choice.dev_share=0.3", "choice.dev_unit=document", "choice.metric=accuracy")
    _, result = train_at_sites(recipe_of("fedavgs", *keys), folder / "run", federation.engine, details=False)
    yield folder / "run", federation, result
    federation.close()


def test_totals_are_over_the_sites_that_take_part_and_say_so(mixed):
    run, federation, result = mixed
    for row in read_history(RunFolder(run)):
        assert {row[f"sites/{split}"] for split in ("test", "dev", "train")} == {2} and row["sites/answered"] == 3
    assert result.test.sites == (2, 3)
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    assert summary["sites"]["test"]["answered"] == 2 and summary["sites"]["test"]["of"] == 3

    class Sent:
        sent = federation.sent

    evaluated = {site for site, *_ in stages(Sent, "evaluate")}
    assert evaluated == {"aachen", "bonn"} and {site for site, *_ in stages(Sent)} == {"aachen", "bonn", "celle"}
    sizes = {client.site: client.test for client in read_agreement(RunFolder(run).sites).clients}
    assert result.test.confusion.sum() == sizes["aachen"] + sizes["bonn"]


def test_only_the_site_that_allows_it_has_rows_and_they_are_its_own_sums(mixed):
    run, federation, result = mixed
    rows = read_table(run / "site_metrics.csv", "round", "split", "site")
    assert [(row["round"], row["split"]) for row in rows] == [
        (number, split) for number in (1, 2) for split in ("dev", "test", "train")
    ]
    assert {row["site"] for row in rows} == {"aachen"}

    class Sent:
        sent = federation.sent

    sums = [
        (t["split"], t["round"], arrays) for site, t, _, (_, arrays) in stages(Sent, "evaluate") if site == "aachen"
    ]
    by_key = {(row["split"], row["round"]): row for row in rows}
    for split, number, arrays in sums[: len(rows)]:
        (confusion,) = (array for array in arrays if array.ndim == 2)
        row = by_key[split, number]
        assert row["examples"] == confusion.sum() and row["accuracy"] == np.trace(confusion) / confusion.sum()
    own = json.loads((run / "summary.json").read_text("utf-8"))["sites"]["test"]["by_site"]
    assert own.keys() == {"aachen"} and own["aachen"] == dict(result.test.by_site["aachen"])
    everything = "".join(p.read_text("utf-8") for p in run.iterdir() if p.suffix in (".csv", ".json"))
    assert "accuracy@" not in everything and '"bonn": {' not in everything


def test_a_finished_run_is_evaluated_by_the_same_policies(mixed):
    run, federation, _ = mixed
    with open_at_sites(run, DataPaths(), federation.engine) as (opened, runtime):
        Evaluator(opened.experiment, "test")(opened.weights)
        assert runtime.answered == (2, 3) and runtime.own_results.keys() == {"aachen"}


def test_a_resumed_run_has_the_rows_of_all_its_rounds(mixed, tmp_path):
    recipe = recipe_of("fedavgs", "training.rounds=2")
    federation = Federation(files_of(tmp_path, aachen="own"))

    def stop(report):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_at_sites(recipe, tmp_path / "run", federation.engine, details=False, on_round=stop)
    train_at_sites(recipe, tmp_path / "run", federation.engine, details=False, resume=True)
    federation.close()
    rows = read_table(tmp_path / "run" / "site_metrics.csv", "round", "split", "site")
    assert [(row["round"], row["split"]) for row in rows] == [(1, "test"), (1, "train"), (2, "test"), (2, "train")]


def test_masked_sums_give_no_rows_and_a_line_says_so(tmp_path):
    federation, lines = Federation(files_of(tmp_path, aachen="own")), []
    recipe = recipe_of("fedavgs", "aggregation.secure=masks", "training.rounds=1")
    _, result = train_at_sites(recipe, tmp_path / "run", federation.engine, details=False, on_line=lines.append)
    federation.close()
    assert not result.test.by_site and not (tmp_path / "run" / "site_metrics.csv").exists()
    assert any("no rows of single sites are written (aachen): sums are masked" in line for line in lines)


@pytest.mark.parametrize(
    ("policies", "keys", "line"),
    [
        (dict.fromkeys(("aachen", "bonn", "celle"), "none"), (), "none of the sites that hold test examples take part"),
        ({"aachen": "none", "bonn": "none"}, ("aggregation.secure=masks",), "fewer than two"),
    ],
)
def test_too_few_sites_to_evaluate_are_refused_before_training(tmp_path, policies, keys, line):
    federation = Federation(files_of(tmp_path, **policies))
    with pytest.raises(UserError, match=line) as refused:
        train_at_sites(recipe_of("fedavgs", *keys), tmp_path / "run", federation.engine)
    federation.close()
    assert "ask a site to allow 'sums'" in str(refused.value) and not (tmp_path / "run").exists()


def test_another_value_is_refused_with_the_file_and_the_key(tmp_path):
    from tff_re.sites.policy import read_site

    path = write_site(tmp_path, "bonn", corpora()["bonn"], allow={"evaluation": True})
    with pytest.raises(UserError, match=r"allow\.evaluation"):
        read_site(path)
