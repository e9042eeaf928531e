"""`extract`: facts from raw documents, with an export that recognises entities and one that classifies relations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from datasets.errors import counted
from tff_re.cli import options
from tff_re.cli.display import console, say, say_written
from tff_re.errors import UserError


def _pairs(context, parameter, values: tuple[str, ...]) -> list[tuple[str, str]]:
    """Parse TYPE:TYPE,TYPE:TYPE as pairs."""
    return [_two(value, ":", "--pairs", "HEAD:TAIL") for text in values for value in options.names(text)]


def _renamed(context, parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Parse TYPE=NAME as a mapping from type to name."""
    return dict(_two(value, "=", "--rename", "TYPE=NAME") for value in values)


def _two(value: str, separator: str, option: str, example: str) -> tuple[str, str]:
    first, _, second = (part.strip() for part in value.partition(separator))
    if not first or not second:
        raise UserError(f"{option} {value}: has not two parts; write {example}")
    return first, second


@click.command(
    epilog=options.example(
        "python -m tff_re.run extract --entities ner/export --relations cdr/export --terminology mesh.tsv "
        "--file notes.jsonl --out facts.jsonl\n"
        "python -m tff_re.run extract --entities ner/export --relations cdr/export --evaluate dev.pubtator"
    )
)
@options.path_option("--entities", required=True, help="The export that recognises entities.")
@options.path_option(
    "--relations",
    help="The export that classifies relations, in sentences or documents (without it, only mentions are written).",
)
@options.path_option(
    "--file", help="The documents: .txt, .jsonl or .pubtator, also with .gz, or a folder of such files."
)
@click.option("--lines", is_flag=True, help="Each line of a .txt is a document.")
@click.option("--dataset", help="The data set in whose form --file or --evaluate is [default: by its ending].")
@options.path_option("--out", help="Write the facts here, a line of JSON for each (of mentions: for each document).")
@options.path_option("--terminology", help="TSV of names and ids, name<TAB>id; mentions get the ids.")
@click.option("--similarity", type=float, help="Link names that are at least this similar [default: 0.9]; 1: none.")
@click.option(
    "--pairs", multiple=True, metavar="HEAD:TAIL,…", callback=_pairs, help="Classify only these pairs of types."
)
@click.option(
    "--rename",
    multiple=True,
    metavar="TYPE=NAME",
    callback=_renamed,
    help="What the relations call a type of entities.",
)
@click.option(
    "--unit",
    type=click.Choice(["documents", "sentences"]),
    default="documents",
    show_default=True,
    help="What the recogniser reads in one call.",
)
@options.path_option("--graph", help="Write the graph of the facts: a file .graphml, or a folder for GraphML and CSV.")
@options.path_option(
    "--pubtator", help="Write all texts with mentions and facts in PubTator's form (with --show-text)."
)
@options.path_option("--html", help="Write an HTML page of the first documents (with --show-text).")
@click.option("--show-text", is_flag=True, help="Write the words of mentions too (they may be patients').")
@click.option("--resume", is_flag=True, help="Continue an interrupted extraction.")
@click.option("--overwrite", is_flag=True, help="Replace the files of an older extraction.")
@options.path_option(
    "--evaluate",
    "gold",
    help="Score the extraction on this file, in PubTator's form or that of --dataset, and write nothing.",
)
@click.option(
    "--trust",
    is_flag=True,
    help="Load exports that were changed, or whose graphs have operations that are not allowed.",
)
def extract(entities, relations, file, out, dataset, similarity, rename, gold, lines, trust, **settings):
    """Extract facts from raw documents: recognise entities, link them to a terminology, pair them by their types, and
    classify their relations. Offsets in the output count characters (code points); texts are not in it unless
    --show-text is given."""
    from tff_re import api

    steps = {name: settings.pop(name) for name in ("terminology", "pairs", "unit")} | {"renamed": rename}
    if similarity is not None:
        steps["similarity"] = similarity
    if gold is not None:
        if relations is None:
            raise UserError("--evaluate scores relations too: give --relations, or use evaluate EXPORT --file FILE")
        _refuse_files(file=file, out=out, lines=lines, **settings)
        with _bar("evaluate") as advance:
            ways = {"dataset": dataset, "trust": trust, "on_batch": advance, **steps}
            result = api.evaluate_extraction(entities, relations, gold, **ways)
        _show(result, gold)
        return
    if file is None or out is None:
        raise UserError("give the documents by --file and where to write facts by --out, or a gold file by --evaluate")
    with _bar("extract") as advance:
        ways = {"lines": lines, "dataset": dataset, "trust": trust, **settings, **steps}
        what = "mention" if relations is None else "fact"
        ways["on_batch"] = lambda p: advance(p.documents, p.total, counted(getattr(p, f"{what}s"), what))
        result = api.extract(entities, relations, file, out, **ways)
    counts = (result.documents, "document"), (result.mentions, "mention"), (result.facts, "fact")
    say(", ".join(counted(count, noun) for count, noun in counts if count is not None))
    for note in result.notes:
        say(f"note: {note}")
    say_written(result.files)


def _refuse_files(**options_of_files: Any) -> None:
    refused = [name for name, value in options_of_files.items() if value]
    if refused:
        raise UserError(
            f"--{refused[0].replace('_', '-')} does not go with --evaluate, which writes nothing; leave it out"
        )


def _show(result: Any, gold: Path) -> None:
    """Print the scores of an evaluation."""
    for note in result.notes:
        say(f"note: {note}")
    table = Table(title=f"{gold.name}: {counted(result.documents, 'document')}, strict")
    table.add_column("")
    for heading in ("precision", "recall", "F1", "right", "predicted", "gold"):
        table.add_column(heading, justify="right")
    for name, counts in result.rows():
        scores = (f"{value:.4f}" for value in (counts.precision, counts.recall, counts.f1))
        table.add_row(name, *scores, str(counts.right), str(counts.predicted), str(counts.gold))
    console.print(table)


@contextlib.contextmanager
def _bar(title: str) -> Iterator[Callable[..., None]]:
    """Return a progress bar for a terminal, which is silent elsewhere.

    Call it with the documents done, their total and a text.
    """
    if not console.is_terminal:
        yield lambda *arguments: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TextColumn("{task.fields[text]}"), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(title, total=None, text="")
        yield lambda done, total=None, text="": bar.update(task, completed=done, total=total, text=text)
