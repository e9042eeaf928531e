"""Over Flower, with TLS and node keys: the same weights as in memory, whatever is killed and started again."""

from __future__ import annotations

import collections
import hashlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import psutil
import pytest

from benchmarks.flower import Flower, begun, missing, wait_for
from tests.sites.sites_for_tests import NAMES, Federation, recipe_of, write_sites
from tests.upper_floors import assert_same_weights
from tff_re.runs.evaluation import Evaluator
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.sites.asking import Patience
from tff_re.sites.messages import unpack
from tff_re.sites.run import open_at_sites, train_at_sites
from tff_re.sites.transport import NoAnswer, Relay, Serving, engine_of
from tff_re.tasks.data_paths import DataPaths

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

RECIPE = ("fedpap", "training.rounds=2", "training.checkpoint_every=1")
LARGE = 3_000_000_000
MOST_MEMORY = 3 * LARGE
REFUSED = "Failed to activate SuperNode"
"""In the log of a node whose key is not registered, or is that of another node which the SuperLink takes for alive."""

PATIENT = Patience(stage_seconds=300, retry_seconds=300)


class Served(Federation):
    """Sites of this process, each behind its socket; `during(site, table)` is called while a message is answered."""

    def __init__(self, files):
        super().__init__(files)
        self.during = lambda site, table: None
        self.sockets = {name: path.parent / "site.sock" for name, path in files.items()}
        self.serving = {}
        for name in files:
            self.serve(name)

    def serve(self, name):
        self.serving[name] = Serving(lambda message: self._answer(name, message), self.sockets[name])
        threading.Thread(target=self.serving[name].run, daemon=True).start()

    def _answer(self, name, message):
        answer = self.services[name].answer(message)
        self.during(name, unpack(message)[0])
        return answer

    def close(self):
        for serving in self.serving.values():
            serving.close()
        super().close()


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    served = Served(write_sites(tmp_path_factory.mktemp("sites")))
    yield served
    served.close()


@pytest.fixture(scope="module")
def flower(sites, tmp_path_factory):
    """One SuperLink and three nodes for all tests; nothing of them is left after the tests."""
    with Flower(tmp_path_factory.mktemp("flower") / "flower", sites.sockets) as started:
        yield started
        assert len(begun(started.home)) > len(NAMES)
    assert not begun(started.home)


@pytest.fixture
def once(sites):
    """Has something done during a stage: `once(round, stage, site, do)`; a list that says whether it was."""

    def armed(round_num, number, site, do):
        done = []

        def during(name, table):
            asked = tuple(table.get(key) for key in ("kind", "purpose", "round", "stage"))
            if name == site and asked == ("stage", "train", round_num, number) and not done:
                done.append(asked)
                do()

        sites.during = during
        return done

    yield armed
    sites.during = lambda site, table: None


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    federation = Federation(write_sites(folder / "sites"))
    result = train_at_sites(recipe_of(*RECIPE), folder / "run", federation.engine, details=False)[1]
    federation.close()
    return folder / "run", result.weights


def train(flower, out, **options):
    engine = engine_of(f"flower:{flower.relay}", NAMES)
    options = {"patience": PATIENT, "details": False, **options}
    return train_at_sites(recipe_of(*RECIPE), out, engine, **options)[1].weights


def test_weights_and_metrics_are_those_in_memory(flower, undisturbed, tmp_path):
    assert_same_weights(train(flower, tmp_path / "run"), undisturbed[1])
    there, here = (read_history(RunFolder(folder)) for folder in (tmp_path / "run", undisturbed[0]))
    assert there == here and len(here) == 2
    engine = engine_of(f"flower:{flower.relay}", NAMES)
    with open_at_sites(tmp_path / "run", DataPaths(), engine, patience=PATIENT) as (opened, _):
        evaluated = Evaluator(opened.experiment, "test")(opened.weights)
    assert {f"test/{name}": value for name, value in evaluated.metrics.items()}.items() <= there[-1].items()


def test_a_site_that_is_killed_between_two_stages_comes_back(flower, sites, once, undisturbed, tmp_path):
    def killed():
        sites.serving["bonn"].close()

        def again():
            sites.restart("bonn")
            sites.serve("bonn")

        threading.Timer(8.0, again).start()

    done = once(2, 0, "bonn", killed)
    assert_same_weights(train(flower, tmp_path / "run"), undisturbed[1])
    assert done


def keep(flower, site, refused):
    """Starts a node until it stays, as systemd's Restart=always does; `refused` gets the logs of those that did not."""
    deadline = time.monotonic() + 240
    flower.start_node(site)
    while "SuperNode ID" not in flower.log(site):
        if flower.processes[site].poll() is not None:
            refused.append(flower.log(site))
            time.sleep(5.0)
            flower.start_node(site)
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_node_that_is_killed_with_a_message_is_started_again(flower, once, undisturbed, tmp_path):
    refused, threads = [], []

    def killed():
        flower.kill("bonn")
        threads.append(threading.Thread(target=keep, args=[flower, "bonn", refused]))
        threads[0].start()

    done = once(2, 1, "bonn", killed)
    began = time.monotonic()
    assert_same_weights(train(flower, tmp_path / "run"), undisturbed[1])
    threads[0].join()
    print(f"{time.monotonic() - began:.0f} s; the node was refused {len(refused)} times")
    assert done
    assert all(REFUSED in log for log in refused)


def test_a_superlink_that_is_killed_is_started_again(flower, once, undisturbed, tmp_path):
    threads = []

    def again():
        flower.start_link()
        flower.start_relay()

    def killed():
        flower.kill("link")
        threads.append(threading.Thread(target=again))
        threads[0].start()

    done, began = once(2, 0, "celle", killed), time.monotonic()
    assert_same_weights(train(flower, tmp_path / "run"), undisturbed[1])
    threads[0].join()
    print(f"{time.monotonic() - began:.0f} s")
    assert done


def test_a_coordinator_that_is_killed_is_resumed(flower, undisturbed, tmp_path):
    recipe = recipe_of(*RECIPE)
    (tmp_path / "recipe.toml").write_text(recipe.to_toml(), "utf-8")
    options = ("--runtime", f"flower:{flower.relay}", "--sites", ",".join(NAMES), "--out", tmp_path / "run")
    line = [sys.executable, "-m", "tff_re.run", "train", tmp_path / "recipe.toml", *options]
    coordinator = subprocess.Popen(list(map(str, line)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    metrics = tmp_path / "run" / "metrics.csv"
    try:
        wait_for(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 1, "a round", 240)
    finally:
        coordinator.send_signal(signal.SIGKILL)
        coordinator.wait()
    assert len(read_history(RunFolder(tmp_path / "run"))) == 1, "it was to be killed after the first round"
    assert_same_weights(train(flower, tmp_path / "run", resume=True), undisturbed[1])


def test_a_key_that_is_not_registered_is_refused(flower):
    flower.add("stranger", flower.sockets["bonn"])
    flower.start_node("stranger")
    assert flower.processes["stranger"].wait(120) != 0
    assert "SuperNode ID" not in flower.log("stranger")
    assert REFUSED in flower.log("stranger")
    with pytest.raises(NoAnswer, match="no answer of it"):
        Relay(flower.relay, ("stranger",)).call("stranger", b"hello", 60)


def test_three_gigabytes_there_and_back(tmp_path):
    """Made-up weights, in parts, of which Flower's processes have a few at a time."""
    if psutil.virtual_memory().available < MOST_MEMORY:
        pytest.skip(f"needs {MOST_MEMORY / 1e9:g} GB of free memory")
    weights = memoryview(np.arange(LARGE // 4, dtype=np.uint32)).cast("B")
    digest = hashlib.blake2b(weights).digest()
    done, peaks = threading.Event(), collections.Counter()

    def answer(message):
        return weights if len(message) == 4 else hashlib.blake2b(message).digest()

    def watch(flower):
        while not done.wait(0.2):
            peaks.update({name: max(0, size - peaks[name]) for name, size in flower.peak_memory().items()})

    serving = Serving(answer, tmp_path / "large.sock")
    threading.Thread(target=serving.run, daemon=True).start()
    try:
        with Flower(tmp_path / "flower", {"large": tmp_path / "large.sock"}) as flower:
            threading.Thread(target=watch, args=[flower], daemon=True).start()
            engine = Relay(flower.relay, ("large",))
            for message in (weights, b"back"):
                began, before = time.monotonic(), flower.cpu_seconds()
                answered = engine.call("large", message, 3000)
                seconds, cpu = time.monotonic() - began, flower.cpu_seconds() - before
                assert (answered if message is weights else hashlib.blake2b(answered).digest()) == digest
                print(f"{LARGE} bytes in {seconds:.0f} s, {cpu:.0f} s of Flower's CPU")
            done.set()
            print(f"link.db: {(flower.folder / 'link.db').stat().st_size / 1e6:.0f} MB")
    finally:
        done.set()
        serving.close()
    print({name: f"{size / 1e6:.0f} MB" for name, size in peaks.items()})
    assert max(peaks.values()) < 0.75 * LARGE
