"""What leaves a site under [privacy], attacked by a coordinator with weights of its own, and what such a run says."""

from __future__ import annotations

import copy
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from datasets.text.vocabulary import FIRST_WORD_ID
from tests.sites.sites_for_tests import Federation, corpora, recipe_of, write_site, write_sites
from tff_re.errors import UserError
from tff_re.exporting.export_run import _privacy
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.sites.asking import Patience
from tff_re.sites.experiments import SitesBuilder
from tff_re.sites.messages import pack, unpack
from tff_re.sites.policy import for_sites, read_site
from tff_re.sites.run import train_at_sites
from tff_re.sites.site import SiteService
from tff_re.sites.transport import InMemory

EXAMPLE = "privacy={unit = 'example', clip = 0.5, epsilon = 0.1}"
ONE_ROUND = (
    "training.rounds=1",
    "algorithm.local_epochs=1",
    "algorithm.batch_size=100",
    "evaluation.train_split=false",
)
LOSS = 1e9
"""Of the record that is looked for, under the weights of a coordinator that looks for it."""


class Chosen(Federation):
    """A federation whose coordinator sends weights of its own: a word's row decides, and all else is zero."""

    def __init__(self, folder, corpus):
        super().__init__(write_sites(folder, corpus))
        self.word = None
        usual = {name: self._recorded(name) for name in self.files}

        def call(site):
            return lambda message: usual[site](self._with_chosen_weights(message))

        self.engine = InMemory({name: call(name) for name in self.files})

    def _with_chosen_weights(self, message):
        table, arrays = unpack(message)
        if table["kind"] == "agree":
            words = json.loads(table["agreement"])["words"]
            self.word = FIRST_WORD_ID + words.index("乙")
        if table["kind"] != "stage":
            return message
        chosen = []
        for array in arrays:
            weights = np.zeros_like(array) if array.dtype.kind == "f" else array
            if array.dtype.kind == "f" and array.ndim == 2:
                weights[self.word] = LOSS * np.arange(array.shape[1])
            chosen.append(weights)
        return pack(table, chosen)

    def left(self, site):
        """The arrays that left a site in each stage of the training."""
        stages = [(unpack(m)[0], unpack(a)[1]) for name, m, a in self.sent if name == site]
        return [arrays for table, arrays in stages if table.get("purpose") == "train"]


def with_record(there):
    """Corpora in which one sentence of the first site has a character that only the others have else, or not."""
    corpus = copy.deepcopy(corpora())
    next(iter(corpus["celle"].values()))["dialogue"][0]["sentence"] += "乙"
    record = next(iter(corpus["aachen"].values()))["dialogue"][0]
    record["sentence"] += "乙" if there else "甲"
    return corpus


def run_of(folder, federation, *overrides):
    ways = {"patience": Patience(stage_seconds=60, retry_seconds=0.05), "details": False}
    experiment, result = train_at_sites(recipe_of("fedavg", *overrides), folder, federation.engine, **ways)
    federation.close()
    return SimpleNamespace(folder=folder, federation=federation, experiment=experiment, result=result)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """Whether the record is there -> a run under attack."""
    runs = {}
    for there in (True, False):
        folder = tmp_path_factory.mktemp("attacked")
        federation = Chosen(folder / "sites", with_record(there))
        runs[there] = run_of(folder / "run", federation, EXAMPLE, *ONE_ROUND)
    return runs


def test_no_sum_tells_a_coordinator_whether_a_record_is_there(attacked):
    """At ε = 0.1, with weights under which one record has a loss of 10⁹: what leaves is the noised update and the
    client's number of examples, and none of it is of the order of that loss."""
    (with_it,), (without,) = (attacked[there].federation.left("aachen") for there in (True, False))
    shapes = [array.shape for array in with_it]
    assert shapes == [array.shape for array in without] and shapes.count(()) == 1, "one number: the weight"
    assert [a for a in with_it if not a.shape] == [a for a in without if not a.shape]
    assert max(np.abs(a).max() for a in (*with_it, *without)) < LOSS / 1e3


def test_a_site_does_not_evaluate_its_training_examples(attacked):
    """Whatever the recipe says of it, a coordinator could ask."""
    federation = attacked[True].federation
    of_site = [unpack(message) for site, message, _ in federation.sent if site == "aachen"]
    (asked,) = ((table, arrays) for table, arrays in of_site if table.get("purpose") == "evaluate")
    assert asked[0]["split"] == "test"
    service = SiteService(read_site(federation.files["aachen"]))
    said = unpack(service.answer(pack({**asked[0], "split": "train"}, asked[1])))[0]
    service.close()
    assert "the recipe evaluates on test examples only" in said["refused"]


def assert_says_what_it_is(run, *, noise):
    """The same statement everywhere, of files that the run has."""
    said = json.loads((run.folder / "summary.json").read_text("utf-8"))["privacy"]
    assert said == run.result.privacy and re.search(noise, said["noise"])
    named = set(re.findall(r"[\w.]+\.(?:csv|json|toml)", " ".join((*said["not_covered"], said["noise"]))))
    assert "sites.json" in named and "clients.csv" not in named
    assert not {name for name in named if not (run.folder / name).exists()}
    card = _privacy(run.experiment, said)
    assert f"differential privacy: {said['statement']}" in card and f"its noise comes {said['noise']}" in card
    assert {f"not covered: {line}" for line in said["not_covered"]} < set(card)


def test_a_run_across_sites_says_whose_noise_it_is(attacked):
    run = attacked[True]
    assert_says_what_it_is(run, noise="from a secret of each site, which no other party has")
    said = run.result.privacy
    assert "seed" not in said["noise"] and "clients' updates or the models" in said["statement"]
    seen = " ".join(said["seen_by_server"])
    for what in ("the number of a client's examples", "took_part.csv", "each site's sums", "the vocabulary", "classes"):
        assert what in seen
    names = {name for row in read_history(RunFolder(run.folder)) for name in row}
    assert not [name for name in names if name.startswith(("local/", "clients/", "train/"))]


@pytest.mark.slow
def test_with_privacy_of_clients_the_noise_is_the_coordinators(tmp_path):
    table = "privacy={clip = 0.5, noise_multiplier = 1.0, delta = 1e-2, noise_seed = 'system'}"
    run = run_of(tmp_path / "run", Federation(write_sites(tmp_path / "sites")), table, *ONE_ROUND)
    assert_says_what_it_is(run, noise="from the coordinator, from the operating system's randomness")
    assert "not against the coordinator" in run.result.privacy["statement"]
    assert any("each site's sum of clipped updates" in line for line in run.result.privacy["seen_by_server"])


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (
            ["privacy.training_metrics=true"],
            "privacy.training_metrics = true .* only a simulation may do; leave it out",
        ),
        (["evaluation.train_split=true"], "set evaluation.train_split = false$"),
        (["privacy.unit=client"], "every site knows; set it to 'system' or 'file:PATH'"),
    ],
)
def test_what_would_leave_without_noise_is_refused(keys, line, tmp_path):
    recipe = recipe_of("fedavg", EXAMPLE, *ONE_ROUND, *keys)
    with pytest.raises(UserError, match=line):
        SitesBuilder(None).build(recipe)
    service = SiteService(read_site(write_site(tmp_path / "aachen", "aachen", corpora()["aachen"])))
    question = pack({"kind": "hello", "run": "0" * 32, "recipe": for_sites(recipe)}, [])
    assert re.search(line.rstrip("$"), unpack(service.answer(question))[0]["refused"])
    service.close()
