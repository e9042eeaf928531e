"""Cost of many clients that are never asked: memory, set-up, a round, checkpoints, resuming, and the run's folder.

A run of made-up clients, a dozen examples each, of which 100 train in a round, is interrupted before its last round and
resumed in a process of its own, which evaluates all clients and writes the results. What depends on clients that no
round asked, or on the rounds before, grows along a column of the table.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import machine

PER_ROUND, EXAMPLES = 100, 12
CLIENTS, CLIENTS_WITH_TEXTS = (1_000, 10_000, 100_000), (1_000, 10_000)

_LR = '[task]\nname = "synthetic"\nnum_clients = {clients}\ntotal_train = {train}\ntotal_test = {clients}\n'
_LR += '[model]\nname = "logistic_regression"\n[algorithm]\nlearning_rate = 0.001\nbatch_size = 10\n'
_LSTM = '[task]\nname = "symptom_classification"\ndataset = "imcs_v2"\npath = "{texts}"\nencoding = "characters"\n'
_LSTM += 'label = "symptom_presence"\n[partition]\nname = "natural"\n[model]\nname = "lstm"\nunits = 64\n'
_LSTM += "[algorithm]\nlearning_rate = 0.001\nbatch_size = 10\n"
_ROUNDS = 'local_epochs = 1\nname = "{name}"\n[training]\nrounds = {rounds}\nclients_per_round = {per_round}\n'
_ROUNDS += "[evaluation]\nevery = {rounds}\n"

PROBLEMS = {
    "LR, FedAvg": (_LR, "fedavg", CLIENTS),
    "LR, SCAFFOLD": (_LR, "scaffold", CLIENTS),
    "LR, MOON": (_LR, "moon", CLIENTS),
    "LSTM(64) on texts, FedAvg": (_LSTM, "fedavg", CLIENTS_WITH_TEXTS),
}
"""Name -> recipe, algorithm, numbers of clients."""

COLUMNS = {
    "set-up, s": ("setup", "{:.1f}"),
    "a round, s": ("round", "{:.4f}"),
    "late / early rounds": ("growth", "{:.2f}"),
    "checkpoint, s": ("checkpoint", "{:.3f}"),
    "resume, s": ("resume", "{:.1f}"),
    "evaluation, s": ("evaluation", "{:.1f}"),
    "results, s": ("results", "{:.1f}"),
    "peak, MB": ("peak", "{:.0f}"),
    "more with results, MB": ("peak_of_results", "{:.0f}"),
    "folder, MB": ("folder", "{:.1f}"),
}
"""Heading -> (what `measure` gives, its form)."""


def run(rounds: int, out: Path) -> str:
    """Measures all problems; returns the Markdown table."""
    del out
    lines = [f"| problem | clients | {' | '.join(COLUMNS)} |", "| :-- |" + " --: |" * (len(COLUMNS) + 1)]
    for problem, (_, _, counts) in PROBLEMS.items():
        for clients in counts:
            measured = measure(problem, clients, max(rounds, 4))
            cells = (form.format(measured[key]) for key, form in COLUMNS.values())
            lines.append(f"| {problem} | {clients:,} | {' | '.join(cells)} |")
            print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines) + (
        f"\n\n{max(rounds, 4)} rounds of {PER_ROUND} clients; {EXAMPLES} examples a client, one of them for testing. "
        "Set-up: until training begins, without the import of TensorFlow; a round: median, without checkpoint and "
        "evaluation; late / early: the last quarter of the rounds to the first, medians; resume: set-up and state of "
        "the second process; results: files and plots of the finished run. Peak: resident memory of the process up to "
        f"the last round but one, and how much more the second one took. {machine()}.\n"
    )


def measure(problem: str, clients: int, rounds: int) -> dict[str, float]:
    """What `COLUMNS` shows of a problem, from an interrupted run and one that resumes it."""
    template, algorithm, _ = PROBLEMS[problem]
    with tempfile.TemporaryDirectory() as folder:
        texts, recipe, run_folder = (Path(folder) / name for name in ("texts.json", "recipe.toml", "run"))
        if template is _LSTM:
            texts.write_text(json.dumps(dialogues(clients), ensure_ascii=False), "utf-8")
        values = {"clients": clients, "train": clients * (EXAMPLES - 1), "texts": texts, "name": algorithm}
        recipe.write_text(template.format(**values) + _ROUNDS.format(rounds=rounds, per_round=PER_ROUND, **values))
        first = _in_process(recipe, run_folder, rounds, resume=False)
        second = _in_process(recipe, run_folder, rounds, resume=True)
        size = sum(path.stat().st_size for path in run_folder.rglob("*") if path.is_file())
    quarter = max(1, len(first["rounds"]) // 4)
    early, late = (statistics.median(part) for part in (first["rounds"][:quarter], first["rounds"][-quarter:]))
    return {
        "setup": first["setup"],
        "round": statistics.median(first["rounds"]),
        "growth": late / early,
        "checkpoint": statistics.median(first["checkpoints"]),
        "resume": second["setup"] + second["loaded"],
        "evaluation": second["evaluation"],
        "results": second["results"],
        "peak": first["peak"],
        "peak_of_results": second["peak"] - first["peak"],
        "folder": size / 1e6,
    }


def dialogues(clients: int) -> dict[str, dict]:
    """Made-up dialogues in the form of IMCS-V2: a client each, sentences of 5 to 30 characters."""
    draw, characters = random.Random(0), [chr(code) for code in range(0x4E00, 0x4E00 + 2000)]

    def sentence(number: int) -> dict:
        text, present = "".join(draw.choices(characters, k=draw.randint(5, 30))), draw.random() < 0.4
        labels = {"symptom_norm": ["咳嗽"] * present, "symptom_type": ["1"] * present}
        return {"sentence_id": str(number), "speaker": "患者", "sentence": text, **labels}

    return {
        str(client): {"diagnosis": "", "self_report": "", "dialogue": [sentence(n) for n in range(EXAMPLES)]}
        for client in range(clients)
    }


def _in_process(recipe: Path, folder: Path, rounds: int, *, resume: bool) -> dict:
    """What `_measured` returns in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.clients", str(recipe), str(folder), str(rounds), *["resume"] * resume]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _measured(recipe: Path, folder: Path, rounds: int, *, resume: bool) -> dict:
    """In the measured process: trains up to the last round but one, or resumes the run; seconds and megabytes.

    The peak is of this process since it was executed; that of `resource` would include its parent's.
    """
    from tff_re.recipes.reading import load
    from tff_re.runs import checkpoints
    from tff_re.runs.run import train_run

    moments, evaluated, saved, plain_save = {"begin": time.perf_counter()}, [], [], checkpoints.Records.save

    def save(self, *arguments):
        began = time.perf_counter()
        plain_save(self, *arguments)
        saved.append(time.perf_counter() - began)

    checkpoints.Records.save = save
    walls = []

    def on_start(_):
        moments["start"] = moments["round"] = time.perf_counter()

    def on_round(report):
        now = time.perf_counter()
        moments.setdefault("loaded", now - report.seconds)
        walls.append(now - moments["round"] - sum(saved))
        moments["round"], evaluated[:] = now, [report.metrics]
        checkpointed.extend(saved)
        saved.clear()
        if report.round == rounds - 1:
            raise KeyboardInterrupt

    checkpointed: list[float] = []
    try:
        train_run(load(str(recipe)), folder, runtime="in-process", resume=resume, on_start=on_start, on_round=on_round)
    except KeyboardInterrupt:
        checkpointed.extend(saved)
    end, timings = time.perf_counter(), (folder / "timings.csv").read_text("utf-8").splitlines()
    columns = dict(zip(timings[0].split(","), timings[-1].split(","), strict=True))
    evaluation = float(columns.get("seconds/evaluation") or 0)
    return {
        "setup": moments["start"] - moments["begin"],
        "loaded": moments["loaded"] - moments["start"] - evaluation,
        "rounds": walls[1:],  # the first one compiles
        "checkpoints": checkpointed,
        "evaluation": evaluation,
        "results": end - moments["round"],
        "peak": _peak_megabytes(),
    }


def _peak_megabytes() -> float:
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError("this system does not say how much memory a process had")


if __name__ == "__main__":
    from tff_re.runtime.quiet import be_quiet

    be_quiet()
    import tff_re.runs.run  # noqa: F401  # not a part of the set-up

    print(json.dumps(_measured(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), resume="resume" in sys.argv)))
