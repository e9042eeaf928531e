"""[track]: JSON lines, stand-ins for the packages of MLflow and Weights & Biases, and services that fail."""

from __future__ import annotations

import csv
import json
import sys
import threading
import time

import pytest

from tests.runs.resuming import stop_at
from tests.upper_floors import Stop, builder, command, refusal, share_computations, tiny, write_recipe
from tff_re.errors import UserError
from tff_re.runs.features import tracker
from tff_re.runs.features.track import VARIABLE, Track, json_line
from tff_re.runs.features.tracker_process import in_one_line
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.runs.run import train_run
from tff_re.sites.policy import for_sites, recipe_digest

PLAN = ("training.rounds=5", "training.checkpoint_every=2", "evaluation.every=2")
JSON = "track.sinks=['json']"

WRITE = """
import json, os

def write(**entry):
    with open(os.environ["STAND_IN_RECORD"], "a") as file:
        file.write(json.dumps(entry) + "\\n")
"""

WANDB = (
    WRITE
    + """
class Settings:
    def __init__(self, **settings):
        self.values = settings

class Run:
    def log(self, metrics, step):
        print("the package's own output")
        write(step=step, metrics=metrics)

    def finish(self, exit_code):
        write(exit_code=exit_code)

def init(settings, **options):
    write(options=options, settings=settings.values)
    return Run()
"""
)

MLFLOW = {
    "__init__": "",
    "entities": """
class Metric:
    def __init__(self, key, value, timestamp, step):
        self.key, self.value, self.step = key, value, step

class Param:
    def __init__(self, key, value):
        self.key, self.value = key, value
""",
    "tracking": WRITE
    + """
class Info:
    run_id = experiment_id = "7"

class MlflowRun:
    info = Info

class MlflowClient:
    def get_experiment_by_name(self, name):
        write(project=name, telemetry=os.environ["MLFLOW_DISABLE_TELEMETRY"])

    def create_experiment(self, name):
        return Info.experiment_id

    def create_run(self, experiment, run_name):
        write(name=run_name)
        return MlflowRun

    def log_batch(self, run, metrics=(), params=()):
        if params:
            write(parameters={param.key: param.value for param in params})
        for step in sorted({metric.step for metric in metrics}):
            write(step=step, metrics={metric.key: metric.value for metric in metrics})

    def set_terminated(self, run, status):
        write(status=status)
""",
}


@pytest.fixture
def install(monkeypatch, tmp_path):
    """install(wandb=source, mlflow={module: source}) lays stand-ins on sys.path; gives a reader of what they wrote."""
    packages, record = tmp_path / "packages", tmp_path / "stand-in.jsonl"
    packages.mkdir()
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.setenv("STAND_IN_RECORD", str(record))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")

    def written():
        return [json.loads(line) for line in record.read_text("utf-8").splitlines()] if record.exists() else []

    def lay(**sources):
        for name, modules in sources.items():
            (packages / name).mkdir()
            for module, source in ({"__init__": modules} if isinstance(modules, str) else modules).items():
                (packages / name / f"{module}.py").write_text(source, "utf-8")
        return written

    return lay


@pytest.fixture(autouse=True)
def _no_wish_of_the_environment(monkeypatch):
    for name in (VARIABLE, "WANDB_PROJECT", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)


def run(folder, runtime, *overrides, **options):
    return train_run(tiny(*PLAN, *overrides), folder, runtime=runtime, builder=builder(), details=False, **options)


def strictly(text):
    """The lines of a text as JSON, which has no NaN."""

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def rounds_of(folder):
    return strictly((folder / "rounds.jsonl").read_text("utf-8"))


@pytest.fixture(scope="module")
def plain(here, tmp_path_factory):
    """The folder of a run that is not tracked."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    experiment, _ = run(folder, here)
    assert experiment.feature(Track) is None
    return folder


def without_seconds(rows):
    return [{name: value for name, value in row.items() if not name.startswith("seconds/")} for row in rows]


def test_each_round_is_a_line_of_json_and_nothing_else_changes(here, plain, tmp_path):
    run(tmp_path / "run", here, JSON)
    rows = rounds_of(tmp_path / "run")
    assert without_seconds(rows) == read_history(RunFolder(plain))
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == (plain / "metrics.csv").read_bytes()
    with open(tmp_path / "run" / "timings.csv", encoding="utf-8", newline="") as file:
        for row, timings in zip(rows, csv.DictReader(file), strict=True):
            assert row["seconds/training"] == float(timings["seconds/training"])
            assert str(row.get("seconds/evaluation", "")) == timings["seconds/evaluation"]
    assert not (plain / "rounds.jsonl").exists()


def test_a_value_that_is_not_finite_is_null():
    assert strictly(json_line(2, {"b": float("nan"), "a": 1.0}, {"seconds": float("inf")})) == [
        {"round": 2, "a": 1.0, "b": None, "seconds": None}
    ]


@pytest.mark.parametrize("asked", ["by the recipe", "when it is resumed"])
@pytest.mark.parametrize("round_num", [1, 3])
def test_no_round_is_missing_or_twice_after_a_resume(here, plain, tmp_path, monkeypatch, asked, round_num):
    """After round 1 there is no checkpoint; after round 3 there is that of round 2."""
    overrides = (JSON,) if asked == "by the recipe" else ()
    with pytest.raises(Stop):
        run(tmp_path / "run", here, *overrides, on_round=stop_at(round_num))
    if overrides:
        with open(tmp_path / "run" / "rounds.jsonl", "a", encoding="utf-8") as file:
            file.write('{"round": 9, "test/accu')  # a kill in the middle of a line
    else:
        monkeypatch.setenv(VARIABLE, "json")
    run(tmp_path / "run", here, *overrides, resume=True)
    assert without_seconds(rounds_of(tmp_path / "run")) == read_history(RunFolder(plain))
    before = (tmp_path / "run" / "rounds.jsonl").read_bytes()
    run(tmp_path / "run", here, *overrides, resume=True)
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == before, "a finished run has no more rounds"


def test_a_full_disk_ends_the_run_in_one_line(here, tmp_path):
    path = tmp_path / "run" / "rounds.jsonl"

    def full(report):
        path.unlink(missing_ok=True)
        path.symlink_to("/dev/full")

    with pytest.raises(UserError, match=r"the disk is full .*free some space, then continue with --resume"):
        run(tmp_path / "run", here, JSON, on_round=full)


PARAMETERS = {"algorithm": "fedpap", "model": "logistic_regression", "task": "synthetic", "rounds": 5}


def of_rounds(entries):
    return [(entry["step"], entry["metrics"]) for entry in entries if "step" in entry]


def in_metrics(folder):
    return [(int(row.pop("round")), row) for row in read_history(RunFolder(folder))]


def test_weights_and_biases_gets_numbers(here, plain, tmp_path, install, capfd):
    written = install(wandb=WANDB)
    run(tmp_path / "run", here, "track.sinks=['wandb']", "track.project='triage'")
    first, *rounds, last = written()
    assert first["options"] == {
        "project": "triage",
        "name": "fedpap, seed 0",
        "config": {**PARAMETERS, "seed": 0},
    }
    assert first["settings"]["console"] == "off" and first["settings"]["x_disable_meta"]
    assert of_rounds(rounds) == in_metrics(plain) and last == {"exit_code": 0}
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == (plain / "metrics.csv").read_bytes()
    assert "wandb" not in sys.modules, "it is imported in its own process"
    said = capfd.readouterr()
    assert "own output" not in said.out + said.err and "track:" not in said.err


def test_mlflow_gets_numbers(here, plain, tmp_path, install, monkeypatch):
    written = install(mlflow=MLFLOW)
    monkeypatch.setenv(VARIABLE, "mlflow")
    run(tmp_path / "run", here)
    project, name, parameters, *rounds, last = written()
    assert project == {"project": "tff-re", "telemetry": "true"} and name == {"name": "fedpap, seed 0"}
    assert parameters == {"parameters": {key: str(value) for key, value in {**PARAMETERS, "seed": 0}.items()}}
    assert of_rounds(rounds) == in_metrics(plain) and last == {"status": "FINISHED"}


def test_the_seed_of_a_private_run_stays_here(here, tmp_path, install):
    written = install(wandb=WANDB)
    private = ("algorithm={name='fedavgs', learning_rate=0.05}", "privacy={clip=0.5, noise_multiplier=1.0}")
    run(
        tmp_path / "run",
        here,
        "track.sinks=['wandb']",
        *private,
        "training.sampling='poisson'",
        "evaluation.train_split=false",
    )
    first, *rounds, _ = written()
    assert first["options"]["name"] == "fedavgs" and "seed" not in first["options"]["config"]
    assert of_rounds(rounds) == in_metrics(tmp_path / "run")


def test_a_resumed_run_is_a_new_one_with_all_rounds_and_the_first_has_failed(here, plain, tmp_path, install):
    written = install(wandb=WANDB)
    with pytest.raises(Stop):
        run(tmp_path / "run", here, "track.sinks=['wandb']", on_round=stop_at(3))
    entries = written()
    assert [number for number, _ in of_rounds(entries)] == [1, 2, 3] and entries[-1] == {"exit_code": 1}
    run(tmp_path / "run", here, "track.sinks=['wandb']", resume=True)
    assert of_rounds(written()[len(entries) :]) == in_metrics(plain)
    finished = len(written())
    run(tmp_path / "run", here, "track.sinks=['wandb']", resume=True)
    assert len(written()) == finished, "no round is left to track"


BROKEN = {
    "unreachable": (
        "def init(**options):\n    raise ConnectionError('http://me:secret@host/ refused')\nSettings = dict",
        "failed (ConnectionError: http://host/ refused)",
    ),
    "crashes": ("import os\nos._exit(3)", "failed (exit code 3)"),
    "hangs": ("import time\ntime.sleep(600)", "did not accept all rounds within 1 seconds after the end"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_service_that_fails_costs_one_line(here, plain, tmp_path, install, capfd, monkeypatch, how):
    source, reason = BROKEN[how]
    install(wandb=source)
    monkeypatch.setattr(tracker, "SECONDS_AT_END", 1.0 if how == "hangs" else 30.0)
    began = time.monotonic()
    run(tmp_path / "run", here, "track.sinks=['wandb', 'json']")
    assert time.monotonic() - began < 120, "the service hangs for 600 s"
    line = f"track: wandb {reason}; this run is no longer tracked there"
    assert capfd.readouterr().err == f"tff-re: {line}\n"
    assert line in (tmp_path / "run" / "run.log").read_text("utf-8")
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == (plain / "metrics.csv").read_bytes()
    assert without_seconds(rounds_of(tmp_path / "run")) == read_history(RunFolder(plain))
    deadline = time.monotonic() + 10
    while any(thread.name == "track wandb" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_service_that_falls_behind_is_given_up(install, monkeypatch):
    install(wandb="import time\ntime.sleep(600)")
    monkeypatch.setattr(tracker, "MAX_QUEUED", 2)
    slow = tracker.Tracker("wandb", "x" * 1_000_000)  # more than a pipe holds
    try:
        with pytest.raises(tracker.TrackingEnded, match="cannot keep up: 2 rounds are waiting"):
            for _ in range(4):
                slow.send("y\n")
    finally:
        slow.kill()


def test_a_run_that_is_killed_is_killed_at_the_service(install):
    written = install(mlflow=MLFLOW)
    orphan = tracker.Tracker("mlflow", json.dumps({"project": None, "name": "x", "parameters": {"rounds": 9}}) + "\n")
    orphan.send(json.dumps({"round": 1, "metrics": {"loss": 0.5}}) + "\n")
    orphan.finish("")  # the pipe is closed, and no status was sent
    orphan.wait()
    assert written()[-2:] == [{"step": 1, "metrics": {"loss": 0.5}}, {"status": "KILLED"}]


def test_an_error_is_one_line_without_a_password():
    error = ValueError("cannot reach https://user:pass@host/x\nand more")
    assert in_one_line(error) == "ValueError: cannot reach https://host/x"


WRONG = {
    "jsn": [VARIABLE, "must be one of 'json', 'mlflow', 'wandb', got 'jsn'"],
    "json,json": [VARIABLE, "no duplicates"],
    "json,wandb": [f"{VARIABLE}: wandb is not installed", "docs/tracking.md"],
    "mlflow": [f"{VARIABLE}: mlflow needs the address of its server; set MLFLOW_TRACKING_URI"],
}


@pytest.mark.parametrize("sinks", WRONG)
def test_a_wrong_environment_is_refused_before_training(sinks, here, tmp_path, install, capsys, monkeypatch):
    install(mlflow=MLFLOW)
    share_computations(monkeypatch, here)
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.setenv(VARIABLE, sinks)
    recipe = write_recipe(tmp_path / "tiny.toml")
    typed = command(capsys, "train", recipe, "--out", tmp_path / "run", "--runtime", "in-process")
    refusal(typed, *WRONG[sinks])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("track.sinks=[]", "'track.sinks' must have at least one name and no duplicates"),
        ("track.sinks=['json','json']", "'track.sinks' must have at least one name and no duplicates"),
        ("track.sinks=['tensorboard']", "'track.sinks' must be one of 'json', 'mlflow', 'wandb', got 'tensorboard'"),
        ("track={sinks=['json'], project='a/b'}", "'track.project' must have at most 128 characters, and none of"),
        ("track={project='a'}", "the key 'track.sinks' is missing"),
    ],
)
def test_a_wrong_table_is_refused(override, message):
    with pytest.raises(UserError) as caught:
        tiny(override)
    assert str(caught.value).startswith(f"tiny.toml: {message}")


def test_sites_do_not_get_the_table():
    tracked = tiny("track={sinks=['json'], project='ours'}")
    assert for_sites(tracked) == for_sites(tiny()) and recipe_digest(tracked) == recipe_digest(tiny())
