"""`cases`: which sentences of a fact each run's method trains on."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from tff_re.cli import options
from tff_re.cli.display import console, say_written
from tff_re.errors import UserError


def _pair(context, parameter, text):
    if text is None:
        return None
    parts = tuple(part.strip() for part in text.split(","))
    if len(parts) != 2 or not all(parts):
        raise UserError(f"--pair {text}: must be two identifiers with a comma between, e.g. D008094,D014262")
    return parts


@click.command(epilog=options.example("python -m tff_re.run cases runs/lazy-mil runs/one --facts 2"))
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@click.option("--facts", type=click.IntRange(min=1), default=3, show_default=True, help="How many facts to show.")
@click.option(
    "--pair", callback=_pair, metavar="HEAD,TAIL", help="Identifiers of one pair of entities; replaces --facts."
)
@click.option(
    "--sentences",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Sentences to show per fact, by weight.",
)
@click.option("--show-text", is_flag=True, help="Show the sentences (they may be patients').")
@options.path_option("--out", help="A CSV file to write: all sentences, without texts.")
@options.data
@options.trust
@options.runtime
def cases(runs, facts, pair, sentences, show_text, out, data, trust, runtime):
    """Show which sentences of a fact, on which platforms, each RUN's method trains on (runs on bags, of one seed)."""
    from tff_re import api

    data_paths = api.data_paths(data, trust)
    from tff_re.comparison.case_study import case_csv, study
    from tff_re.runs.folder import writing

    studied = study(runs, data_paths, runtime, facts=facts, pair=pair)
    for case in studied:
        console.print(_case_table(case, case.top_trained(sentences), show_text))
    if out is not None:
        with writing(out.parent):
            case_csv(out, studied)
        say_written([out])


def _case_table(case, sentences, show_text: bool) -> Table:
    head, tail = case.pair
    title = f"{head}, {case.relation}, {tail}: {len(case.sentences)} sentences"
    left_out = len(case.sentences) - len(sentences)
    caption = f"{left_out} more, of which methods train on less" if left_out else None
    table = Table(title=title, caption=caption, show_lines=show_text)
    table.add_column("sentence", overflow="fold")
    table.add_column("platform")
    known = any(sentence.states is not None for sentence in case.sentences)
    if known:
        table.add_column("states it")
    for name in case.sentences[0].shares:
        table.add_column(name, justify="right", overflow="fold")
    for sentence in sentences:
        what = _marked(sentence) if show_text else sentence.sentence_id
        truth = ["yes" if sentence.states else "no"] if known else []
        table.add_row(what, sentence.platform, *truth, *(_share(share) for share in sentence.shares.values()))
    return table


def _share(value: float) -> str:
    return "✓" if value == 1 else "·" if value == 0 else f"{value:.2f}"


def _marked(sentence) -> Text:
    """Return the text with its head in bold and its tail in bold italics."""
    text = Text(sentence.text)
    text.stylize("bold", *sentence.head)
    text.stylize("bold italic", *sentence.tail)
    return text
