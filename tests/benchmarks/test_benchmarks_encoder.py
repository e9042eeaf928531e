"""The benchmarks of sentence encoders, in sizes that measure nothing: the race is fair, the tables add up."""

import contextlib
import json
import signal
import subprocess
import sys
import time

import psutil
import pytest

from benchmarks import encoder, memory

pytestmark = pytest.mark.tools

CONFIG = {
    **{"model_type": "bert", "num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2},
    **{"intermediate_size": 32, "vocab_size": 50, "initializer_range": 0.2},
}
SMALL_DISTILBERT = {
    **{"model_type": "distilbert", "n_layers": 1, "dim": 16, "n_heads": 2, "hidden_dim": 32, "vocab_size": 50},
}


@pytest.fixture
def problem(tmp_path, monkeypatch):
    monkeypatch.setattr(encoder, "CONFIG", CONFIG)
    monkeypatch.setattr(encoder, "LENGTH", 9)
    monkeypatch.setattr(encoder, "STEPS", (1, 2))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    return encoder.Problem(str(tmp_path), CONFIG["vocab_size"], 9, 4, dropout=0.0)


@pytest.mark.slow
def test_the_race_runs_and_its_contenders_agree(problem, tmp_path):
    markdown = encoder.run(1, tmp_path)
    for contender in (*encoder.CONTENDERS, encoder.GradientOnly):
        assert f"| {contender.name} | " in markdown


class Still:
    """A contender that does not train."""

    name = "still"

    def __init__(self, problem, weights):
        self._weights = weights

    def round(self, arrays, clients=1):
        return self._weights


def test_a_contender_that_trains_otherwise_is_found(problem):
    weights = problem.local_model().initial_weights(0).trainable
    with pytest.raises(AssertionError, match="plain Keras step, legacy Adam and still differ"):
        encoder.check_agreement(problem, weights, (encoder.PlainLegacyStep, Still))


def test_the_cost_of_a_step_is_the_slope(monkeypatch):
    monkeypatch.setattr(encoder, "STEPS", (2, 12))
    ours, plain, legacy, tff, alone = (
        c.name
        for c in (encoder.Ours, encoder.PlainStep, encoder.PlainLegacyStep, encoder.TffFedAvg, encoder.GradientOnly)
    )
    turns = {ours: [(6.0, 16.0)] * 3, tff: [(5.0, 20.0)] * 3, plain: [(5.0, 25.0)] * 3, legacy: [(1.6, 9.6)] * 3}
    turns[alone] = [(1.0, 6.0)] * 3
    markdown = encoder.table(turns)
    assert f"| {ours} | 1.000 (1.000 to 1.000) | 1.25 | 4.00 |" in markdown
    assert f"| {tff} | 1.500 (1.500 to 1.500) | 1.88 | 2.00 |" in markdown
    assert f"the faster of the two, {legacy};" in markdown
    assert "here 1.25, not met" in markdown and "here 1.50, not met" in markdown
    assert "with an update that costs nothing it would be 3.00." in markdown
    turns[ours] = [(2.0, 10.0)] * 3
    assert "here 1.00, met" in encoder.table(turns) and "here 1.88, met" in encoder.table(turns)


def test_memory_a_client_is_the_slope_over_clients():
    peaks = {("fedavgs", n): memory.Peaks(first=int(1e9), second=int(1e9 + n * 5e8)) for n in (2, 5, 10)}
    markdown = memory.table(peaks)
    assert "| fedavgs | 2.00 | 3.50 | 6.00 | 0.50 | 1.00 |" in markdown and "met by all" in markdown
    peaks["moon", 2], peaks["moon", 5] = peaks["fedavgs", 2], peaks["fedavgs", 5]
    peaks["moon", 10] = memory.Peaks(first=int(11e9), second=int(6e9))
    assert "not met by moon." in memory.table(peaks)


@pytest.mark.parametrize("kind", ["pss", "rss"])
def test_memory_counts_a_process_and_its_children(kind):
    grow = "x = b'1' * 50_000_000; print('grown', flush=True); input()"
    outer = f"import subprocess, sys; {grow.split(';')[0]}; subprocess.run([sys.executable, '-c', {grow!r}])"
    with subprocess.Popen([sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"grown\n"
        assert 100e6 < memory.process_memory(process.pid, kind) < 200e6
        process.stdin.close()
    assert memory.process_memory(process.pid, kind) == 0


@pytest.fixture
def small_encoder(tmp_path, monkeypatch):
    for name, value in {"CONFIG": SMALL_DISTILBERT, "LENGTH": 9, "BATCH": 2, "CLASSES": 3}.items():
        monkeypatch.setattr(memory, name, value)
    (tmp_path / "config.json").write_text(json.dumps(SMALL_DISTILBERT), "utf-8")
    return tmp_path


def descendants(process):
    """Those of a process but the one in which Python's multiprocessing keeps its books."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [c for c in process.children(recursive=True) if "resource_tracker" not in " ".join(c.cmdline())]
    return []


@pytest.mark.slow
@pytest.mark.parametrize("name", memory.ALGORITHMS)
def test_peaks_are_of_a_process_that_has_ended(small_encoder, name):
    before = set(descendants(psutil.Process()))
    peaks = memory.measure(name, 2, str(small_encoder), small_encoder / "worker.log", memory.memory_kind())
    assert all(100e6 < peak < 10e9 for peak in peaks)
    assert set(descendants(psutil.Process())) <= before


@pytest.mark.slow
@pytest.mark.parametrize("way", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_measuring_process_is_ended(tmp_path, way):
    arguments = [sys.executable, "-m", "benchmarks", "memory", "--out", str(tmp_path)]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not any("worker_binary" in " ".join(c.cmdline()) for c in descendants(psutil.Process(process.pid))):
            assert process.poll() is None
            time.sleep(0.2)
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(way)
    _, left = psutil.wait_procs(started, timeout=60)
    for process_left in left:
        process_left.kill()
    assert len(started) >= 3 and not left
