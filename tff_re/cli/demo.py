"""The demonstration: the whole way on what comes with the project, in a few minutes on two cores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tff_re.exporting.prediction import load_export
from tff_re.tasks.data_paths import DataPaths

SENTENCES = ("宝宝从昨天晚上开始发烧，还有点咳嗽", "孩子多大了？", "拉肚子三天了，一天五六次", "好的，谢谢医生")
"""Made up for the demo; no patients' text."""


def train_demo(out: Path, *, run_suite: Callable, say: Callable[[str], None]) -> Path:
    """FedAvgS and FedPAP on the shipped dialogues, FedPA on synthetic(0.5, 0.5); the folder of FedPAP's export."""
    from tff_re.comparison.suite import load_suite, slug
    from tff_re.runs.finished import export_run

    say("1. two algorithms on the dialogues that come with the project: a client is a hospital of one diagnosis")
    dialogues = load_suite("demo-dialogues")
    run_suite(dialogues, out / "dialogues", DataPaths(), False, "local")
    say("2. FedPA on synthetic(0.5, 0.5)")
    run_suite(load_suite("demo-synthetic"), out / "synthetic", DataPaths(), False, "local")
    say("3. FedPAP's model for people without this project's code")
    run = out / "dialogues" / "runs" / f"{slug('FedPAP')}-seed{dialogues.seeds[0]}"
    return export_run(run, out / "export", False, DataPaths(), "local")


def classify(exported: Path):
    """Predictions of the exported model for SENTENCES."""
    return load_export(exported).predict(list(SENTENCES))
