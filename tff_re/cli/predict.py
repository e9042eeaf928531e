"""`predict`: label and probability of each text; what cannot be read is named at the end, and stops nothing.

For models of bags and documents: of each pair of entities in the file, which is read whole or not at all.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from tff_re.cli import options
from tff_re.cli.display import console
from tff_re.errors import UserError
from tff_re.tasks.sizes import require_limits


@click.command(
    epilog=options.example(
        "python -m tff_re.run predict runs/first/export 孩子发烧两天了\n"
        "python -m tff_re.run predict runs/chemprot/export '<e1>Aspirin</e1> inhibits <e2>COX-2</e2>.'"
    )
)
@click.argument("export", type=click.Path(path_type=Path))
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@options.path_option("--file", help="Read the texts from this file, a line each.")
@click.option("--json-lines", is_flag=True, help='Lines are JSON objects: {"text": …, "head": [a, b], "tail": [a, b]}.')
@click.option("--head-type", help="Type of the first mention, for a model that reads types.")
@click.option("--tail-type", help="Type of the second mention.")
@click.option("--dataset", help="For bags and documents: the data set whose form the file has [default: the run's].")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each text in place of a table.")
@click.option("--show-text", is_flag=True, help="Show the texts beside their labels (they may be patients').")
@click.option(
    "--trust", is_flag=True, help="Load an export that was changed, or whose graph has operations that are not allowed."
)
def predict(export, texts, dataset, as_json, show_text, trust, **given):
    """Classify TEXTs (or the lines of a file or of standard input) with an exported model: label and probability.

    A model of bags or of documents takes a file in its data set's form and answers for each pair of entities.

    For relations a text has its mentions marked: <e1>head</e1>, <e2>tail</e2>. A line that cannot be read is named and
    does not stop the others; the exit code is 2 then.
    """
    require_limits()
    from tff_re.cli.predict_input import Source
    from tff_re.exporting.prediction import load_export
    from tff_re.exporting.predictors import PredictionError

    source = Source(**given)
    predictor = load_export(export, trust=trust)
    if predictor.takes_files:
        _predict_records(predictor, source.records(texts, predictor.takes), as_json, dataset)
        return
    if dataset is not None:
        raise UserError("--dataset is for models of bags and of documents, and this one takes texts; leave it out")
    lines = list(source.lines(texts))
    if not lines:
        raise UserError("there is no text: give it behind the folder, by --file, or a line each on standard input")
    good = [(i, line) for i, line in enumerate(lines) if not isinstance(line, UserError)]
    results: list = list(lines)
    for (i, _), result in zip(good, predictor.predict_each([line for _, line in good]), strict=True):
        results[i] = result
    bad = [(n, str(result)) for n, result in enumerate(results, 1) if isinstance(result, UserError)]
    if as_json:
        _print_json(results)
    else:
        console.print(_prediction_table(lines, results, show_text))
    if bad:
        number, reason = bad[0]
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise PredictionError(f"{source.name(number)} {reason}{more}")


def _predict_records(predictor, file: Path, as_json: bool, dataset: str | None) -> None:
    results = predictor.predict_file(file, dataset=dataset)
    if as_json:
        for result in results:
            print(json.dumps(dataclasses.asdict(result), ensure_ascii=False))
        return
    table = Table()
    for heading in predictor.columns:
        table.add_column(heading, justify="right" if heading in predictor.numbers else "left", overflow="fold")
    for result in results:
        table.add_row(*predictor.cells(result))
    console.print(table)


def _print_json(results) -> None:
    for number, result in enumerate(results, 1):
        if isinstance(result, UserError):
            value = {"line": number, "error": str(result)}
        else:
            value = {"line": number, **dataclasses.asdict(result)}
        print(json.dumps(value, ensure_ascii=False))


def _prediction_table(lines, results, show_text: bool) -> Table:
    table = Table()
    table.add_column("text" if show_text else "text no.", justify="left" if show_text else "right")
    table.add_column("label")
    table.add_column("probability", justify="right")
    for number, (line, result) in enumerate(zip(lines, results, strict=True), 1):
        text = line.get("text", "") if isinstance(line, dict) else line
        first = str(text) if show_text and not isinstance(line, UserError) else str(number)
        if isinstance(result, UserError):
            table.add_row(first, Text(f"{result}", "red"), "")
        else:
            table.add_row(first, result.label, f"{result.probability:.4f}")
    return table
