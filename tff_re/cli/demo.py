"""`demo`: all steps on the data that comes with the project, in about a minute on two cores."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from tff_re.cli import options
from tff_re.cli.compare import run_and_show
from tff_re.cli.display import console, say
from tff_re.errors import UserError

SENTENCES = ("宝宝从昨天晚上开始发烧，还有点咳嗽", "孩子多大了？", "拉肚子三天了，一天五六次", "好的，谢谢医生")
"""Made up for the demo; no patients' text."""


@click.command(epilog=options.example("python -m tff_re.run demo --out runs/demo"))
@options.path_option("--out", default=Path("runs/demo"), show_default=True)
def demo(out):
    """Train, compare, plot, export and classify on the shipped data (about a minute on two cores)."""
    from tff_re import api

    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out}: is not empty; remove it or give another --out")
    say("1. two algorithms on the dialogues that come with the project: a client is a hospital of one diagnosis")
    dialogues = api.load_suite("demo-dialogues")
    run_and_show(dialogues, out / "dialogues")
    say("2. FedPA on synthetic(0.5, 0.5)")
    run_and_show(api.load_suite("demo-synthetic"), out / "synthetic")
    say("3. FedPAP's model for people without this project's code")
    from tff_re.comparison.suite import slug
    from tff_re.exporting.prediction import load_export

    run = out / "dialogues" / "runs" / f"{slug('FedPAP')}-seed{dialogues.seeds[0]}"
    exported = api.export(run, out / "export")
    title = f"the exported model on sentences that were written for this demo ({exported})"
    table = Table("sentence", "label", "probability", title=title)
    for sentence, prediction in zip(SENTENCES, load_export(exported).predict(list(SENTENCES)), strict=True):
        table.add_row(sentence, prediction.label, f"{prediction.probability:.4f}")
    console.print(table)
