"""`predict`: the label and probability of each text.

Unreadable texts are named at the end and do not stop the others.

For models of bags and documents: of each pair of entities in the file, which is read whole or not at all. For models of
entity recognition: the entities of each text.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from datasets.errors import DataError
from datasets.files import decode, parse_json, read_bytes
from tff_re.cli import options
from tff_re.cli.display import console
from tff_re.cli.predict_entities import FORMATS, Output, say_cut
from tff_re.errors import UserError
from tff_re.tasks.sizes import require_limits


@click.command(
    epilog=options.example(
        "python -m tff_re.run predict runs/first/export 孩子发烧两天了\n"
        "python -m tff_re.run predict runs/chemprot/export '<e1>Aspirin</e1> inhibits <e2>COX-2</e2>.'\n"
        "python -m tff_re.run predict runs/entities/export --file notes.jsonl --format jsonl --out entities.jsonl"
    )
)
@click.argument("export", type=click.Path(path_type=Path))
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@options.path_option("--file", help="Read the texts from this file, a line each.")
@click.option("--json-lines", is_flag=True, help='Lines are JSON objects: {"text": …, "head": [a, b], "tail": [a, b]}.')
@click.option("--head-type", help="Type of the first mention, for a model that reads types.")
@click.option("--tail-type", help="Type of the second mention.")
@click.option("--dataset", help="For files: the data set whose form the file has [default: the run's].")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON per text instead of a table.")
@click.option("--format", "entity_format", type=click.Choice(FORMATS), help="Of entities: what to print or write.")
@options.path_option("--out", help="Of entities: the file to write, of brat the folder [default: print].")
@options.path_option("--html", help="Of entities: write a page with the texts and their entities highlighted.")
@click.option(
    "--show-text",
    is_flag=True,
    help="Show the texts next to their labels, and the names of entities (they may be patients').",
)
@click.option(
    "--trust", is_flag=True, help="Load an export that was changed, or whose graph has operations that are not allowed."
)
def predict(export, texts, dataset, as_json, entity_format, out, html, show_text, trust, **source_options):
    """Classify TEXTs (or the lines of a file or of standard input) with an exported model: label and probability.

    A model of bags or of documents takes a file in its data set's form and answers for each pair of entities. A model
    of entity recognition gives the entities of each text, also of a file in its data set's form or in one of your own.

    For relations a text has its mentions marked: <e1>head</e1>, <e2>tail</e2>. A line that cannot be read is named and
    does not stop the others; the exit code is 2 then.
    """
    require_limits()
    from tff_re.exporting.prediction import load_export

    source = _Source(**source_options)
    predictor = load_export(export, trust=trust)
    if predictor.data_sets == "entities":
        output = Output("jsonl" if as_json and entity_format is None else entity_format, out, html, show_text)
        _predict_entities(predictor, source, texts, dataset, output)
        return
    if entity_format is not None or out is not None or html is not None:
        raise UserError(f"{export}: its model finds no entities; leave --format, --out and --html out")
    if predictor.takes_files:
        _predict_records(predictor, source.records(texts, predictor.takes), as_json, dataset, show_text)
        return
    if predictor.reads_records(source.file, dataset):
        file = source.records(texts, "records with two mentions")
        _show_records(predictor.predict_records(file), as_json, show_text)
        return
    if dataset is not None:
        raise UserError(
            "--dataset is for models of bags and of documents, and relations for a file of your own relations; "
            "leave it out"
        )
    lines = source.all_lines(texts)
    predictions = iter(predictor.predict_each([line for line in lines if not isinstance(line, UserError)]))
    results = [line if isinstance(line, UserError) else next(predictions) for line in lines]
    if as_json:
        for number, result in enumerate(results, 1):
            fields = {"error": str(result)} if isinstance(result, UserError) else dataclasses.asdict(result)
            print(json.dumps({"line": number, **fields}, ensure_ascii=False))
    else:
        console.print(_prediction_table(lines, results, show_text))
    source.raise_first(results)


def _predict_entities(predictor, source: _Source, texts, dataset: str | None, output: Output) -> None:
    output.check()
    if source.head_type is not None or source.tail_type is not None:
        raise UserError("--head-type and --tail-type are for relations; leave them out")
    file = source.file
    records = file is not None and not source.json_lines
    if records := records and (dataset is not None or predictor.form_of(file) is not None):
        results = predictor.predict_file(source.records(texts, "files of texts"), dataset=dataset)
    elif dataset is not None:
        raise UserError("--dataset says what form a --file has; leave it, or --json-lines, out")
    else:
        lines = source.all_lines(texts)
        recognised = iter(predictor.recognise_each([line for line in lines if not isinstance(line, UserError)]))
        results = [line if isinstance(line, UserError) else next(recognised) for line in lines]
        results = [_numbered(result, number) for number, result in enumerate(results, 1)]
    output.write(predictor, results, by_line=not records)
    say_cut((result for result in results if not isinstance(result, UserError)), predictor)
    source.raise_first(results)


def _numbered(result: Any, number: int) -> Any:
    """Return a recognised text with the number of its line, or an error unchanged."""
    if isinstance(result, UserError):
        return result
    return dataclasses.replace(result, text_id=str(number), document_id=str(number))


def _show_records(results, as_json: bool, show_text: bool) -> None:
    if as_json:
        for name, _, result in results:
            print(json.dumps({"id": name, **dataclasses.asdict(result)}, ensure_ascii=False))
        return
    table = Table("text" if show_text else "id", "label")
    table.add_column("probability", justify="right")
    for name, text, result in results:
        table.add_row(Text(text if show_text else name), Text(result.label), f"{result.probability:.4f}")
    console.print(table)


def _predict_records(predictor, file: Path, as_json: bool, dataset: str | None, show_text: bool) -> None:
    from tff_re.exporting.predictors import OF_TEXTS

    results = predictor.predict_file(file, dataset=dataset)
    if as_json:
        for result in results:
            fields = dataclasses.asdict(result)
            for part in dataclasses.fields(result):
                if part.metadata == OF_TEXTS and not show_text:
                    del fields[part.name]
            print(json.dumps(fields, ensure_ascii=False))
    if not results:
        print(f"note: {file}: holds no pair of mentions to classify", file=sys.stderr)
    if as_json or not results:
        return
    table = Table(caption=predictor.caption or None, caption_justify="left")
    for heading in predictor.columns:
        table.add_column(heading, justify="right" if heading in predictor.numbers else "left", overflow="fold")
    for result in results:
        table.add_row(*(predictor.cells_with_texts if show_text else predictor.cells)(result))
    console.print(table)


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


@dataclass(frozen=True)
class _Source:
    """Where the texts come from: arguments, a file (compressed or not) or standard input, as plain lines or JSON lines.

    `head_type` and `tail_type` are those of mentions that a line gives no types of.
    """

    file: Path | None = None
    json_lines: bool = False
    head_type: str | None = None
    tail_type: str | None = None

    def lines(self, arguments: Sequence[str]) -> Iterator[Any]:
        """Return every text for `Predictor.predict_each`, or a UserError for a line without one.

        Raises:
          UserError: there are arguments and a file; DataError: the file cannot be read.
        """
        if arguments and self.file is not None:
            raise UserError("texts are given twice, as arguments and by --file; choose one of them")
        if arguments:
            yield from map(self._with_types, arguments)
            return
        as_json = self.json_lines or (self.file is not None and ".jsonl" in self.file.suffixes)
        data = _standard_input() if self.file is None else read_bytes(self.file)
        lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        if not lines[-1]:
            lines.pop()
        for line in lines:
            yield self._text(line.removesuffix(b"\r"), as_json)

    def all_lines(self, arguments: Sequence[str]) -> list[Any]:
        """Return all of `lines`.

        Raises UserError if there are none.
        """
        lines = list(self.lines(arguments))
        if not lines:
            raise UserError("no text given: pass it after the folder, with --file, or one per line on stdin")
        return lines

    def raise_first(self, results: Sequence[Any]) -> None:
        """Raise the first error among the results, with its line."""
        bad = [(number, result) for number, result in enumerate(results, 1) if isinstance(result, UserError)]
        if bad:
            number, reason = bad[0]
            where = f"text number {number}" if self.file is None else f"{self.file}: line {number}"
            more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
            raise UserError(f"{where} {reason}{more}")

    def records(self, arguments: Sequence[str], what: str) -> Path:
        """Return the file, for models that take records of a data set (`what`, in words).

        Raises UserError for options of texts.
        """
        if arguments or self.file is None:
            raise UserError(f"the model takes {what}, not texts; pass a file of them only with --file")
        if self.json_lines or self.head_type is not None or self.tail_type is not None:
            raise UserError(f"the model takes {what}; --json-lines, --head-type and --tail-type are for texts")
        return self.file

    def _text(self, line: bytes, as_json: bool) -> Any:
        try:
            value = parse_json(line) if as_json else decode(line)
        except DataError as error:
            where = "" if error.byte is None else f" at byte {error.byte}"
            return UserError(f"{error.reason}{where}; {error.remedy}")
        if as_json and not isinstance(value, dict):
            return UserError('is not a JSON object; write {"text": …}')
        return self._with_types(value)

    def _with_types(self, text: Any) -> Any:
        types = {name: getattr(self, name) for name in ("head_type", "tail_type") if getattr(self, name) is not None}
        return {**types, **(text if isinstance(text, dict) else {"text": text})} if types else text


def _standard_input() -> bytes:
    buffer = getattr(sys.stdin, "buffer", None)
    return sys.stdin.read().encode("utf-8", "surrogateescape") if buffer is None else buffer.read()
