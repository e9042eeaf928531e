"""What `predict` prints and writes of the entities that a model finds in texts."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from datasets.errors import counted
from datasets.files import write_atomically
from tff_re import api
from tff_re.cli.display import console, say_written
from tff_re.errors import UserError

if TYPE_CHECKING:
    from tff_re.exporting.kinds.entities import EntityPredictor, RecognisedText

FORMATS = ("table", "jsonl", "brat", "pubtator")

_WITH_TEXT = ("brat", "pubtator")
_STYLES = ("black on cyan", "black on yellow", "black on green", "black on magenta", "white on blue", "white on red")


@dataclass(frozen=True)
class Output:
    """Where entities go.

    Attributes:
      format: one of `FORMATS`; None: a table, or with `html` nothing but the page.
      out: the file, of brat the folder; None: standard output.
      html: the file of a page with the texts.
      show_text: whether texts, and the words of entities, are in what is printed and written.
    """

    format: str | None
    out: Path | None
    html: Path | None
    show_text: bool

    def check(self) -> None:
        """Raise UserError if the options do not fit together."""
        if self.format in _WITH_TEXT and not self.show_text:
            raise UserError(f"--format {self.format} holds the texts; add --show-text, or use --format jsonl")
        if self.html is not None and not self.show_text:
            raise UserError("--html holds the texts; add --show-text")
        if self.format == "brat" and self.out is None:
            raise UserError("--format brat writes a folder; name it with --out")
        if self.out is not None and self.format in (None, "table"):
            raise UserError(f"--out needs --format {', '.join(FORMATS[1:-1])} or {FORMATS[-1]}")

    def write(self, predictor: EntityPredictor, results: Sequence[RecognisedText | UserError], by_line: bool) -> None:
        """Print and write the entities.

        An error stands in the place of a text that could not be read.

        Args:
          predictor: the export.
          results: of each text.
          by_line: whether texts have only a number, and no id.

        Raises:
          UserError, DataError: an id or a type cannot be written in the form, or a file cannot be written.
        """
        from tff_re.runs.folder import permissions  # it imports TensorFlow

        with permissions():  # as of a run: what is written may hold parts of patients' texts
            written = self._write(predictor, results, by_line)
        if written and self.out is None and self.format in ("jsonl", "pubtator"):  # which are on standard output
            print(f"note: written: {', '.join(map(str, written))}", file=sys.stderr)
        elif written:
            say_written(written)

    def _write(
        self, predictor: EntityPredictor, results: Sequence[RecognisedText | UserError], by_line: bool
    ) -> list[Path]:
        """Like `write`, without printing which files were written."""
        texts, written = [result for result in results if not isinstance(result, UserError)], []
        if self.format == "jsonl":
            lines = [
                _json_line(result, number if by_line else None, self.show_text)
                for number, result in enumerate(results, 1)
            ]
            written += self._text("".join(lines))
        elif self.format == "pubtator":
            from datasets.entities.writing import to_pubtator

            written += self._text(to_pubtator(_samples(texts, predictor.entity_types)))
        elif self.format == "brat":
            from datasets.entities.writing import to_brat

            to_brat(self.out, _samples(texts, predictor.entity_types))
            written.append(self.out)
        elif self.format == "table" or self.html is None:
            if self.show_text:
                for text in texts:
                    console.print(_highlighted(text, predictor.entity_types))
            if len(texts) == len(results) and not any(text.entities for text in texts):
                print(f"note: no entity was found in {counted(len(texts), 'text')}", file=sys.stderr)
            else:
                console.print(_table(results, self.show_text))
        if self.html is not None:
            written.append(api.entities_page(texts, predictor, self.html))
        return written

    def _text(self, content: str) -> list[Path]:
        """Write to the file or print, and return the files written."""
        if self.out is None:
            sys.stdout.write(content)
            return []
        write_atomically(self.out, content.encode())
        return [self.out]


def say_cut(texts: Iterable[RecognisedText], predictor: EntityPredictor) -> None:
    """Print a line on standard error about truncated texts."""
    texts = list(texts)
    cut = sum(text.read_to is not None for text in texts)
    if cut:
        unit = predictor.kind.removeprefix("entity_")
        limit = predictor.description["input"]["max_length"]
        print(
            f"note: {cut} of {counted(len(texts), 'text')} not read to the end: the model reads {limit} {unit}; "
            "nothing is looked for in the rest",
            file=sys.stderr,
        )


def _json_line(result: RecognisedText | UserError, line: int | None, show_text: bool) -> str:
    """Return a text's entities as a line of JSON.

    With its text, it has the format that `datasets.entities.neutral` reads.
    """
    if isinstance(result, UserError):
        return json.dumps({"line": line, "error": str(result)}, ensure_ascii=False) + "\n"
    value: dict[str, Any] = {"id": result.text_id} if line is None else {"line": line}
    if result.document_id != result.text_id:
        value["document"] = result.document_id
    if show_text:
        value["text"] = result.text
    if result.read_to is not None:
        value["read_to"] = result.read_to
    value["entities"] = [
        {**asdict(entity), **({"text": result.text[entity.start : entity.end]} if show_text else {})}
        for entity in result.entities
    ]
    return json.dumps(value, ensure_ascii=False) + "\n"


def _samples(texts: Sequence[RecognisedText], types: tuple[str, ...]) -> list[Any]:
    from datasets.entities.records import EntitySample, EntitySpan, label_of

    samples = []
    for text in texts:
        spans = tuple(EntitySpan(entity.start, entity.end, entity.type) for entity in text.entities)
        samples.append(EntitySample(text.text_id, text.document_id, text.text, spans, label_of(spans, types)))
    return samples


def _table(results: Sequence[RecognisedText | UserError], show_text: bool) -> Table:
    table = Table()
    table.add_column("text", overflow="fold")
    for heading in ("start", "end"):
        table.add_column(heading, justify="right")
    table.add_column("type", overflow="fold")
    table.add_column("probability", justify="right")
    if show_text:
        table.add_column("mention", overflow="fold")
    for number, result in enumerate(results, 1):
        if isinstance(result, UserError):
            table.add_row(str(number), "", "", Text(str(result), "red"))
            continue
        for entity in result.entities:
            span, probability = (str(entity.start), str(entity.end)), f"{entity.probability:.4f}"
            mention = [_printable(result.text[entity.start : entity.end])] if show_text else []
            table.add_row(Text(result.text_id), *span, Text(entity.type), probability, *mention)
    return table


def _highlighted(text: RecognisedText, types: Sequence[str]) -> Text:
    """Return a text for the terminal after its id, with entities in a colour for their type."""
    parts: list[Any] = [Text(f"{text.text_id}: ", "bold")]
    done = 0
    for entity in text.entities:
        style = _STYLES[types.index(entity.type) % len(_STYLES)]
        parts.append(_printable(text.text[done : entity.start]))
        parts += [_printable(text.text[entity.start : entity.end], style), Text(f" {entity.type}", f"{style} dim")]
        done = entity.end
    return Text.assemble(*parts, _printable(text.text[done:]))


def _printable(part: str, style: str = "") -> Text:
    """Return a part of a text without control characters of a terminal."""
    plain = part.replace("\r\n", "\n")
    return Text("".join("\ufffd" if unicodedata.category(c) == "Cc" and c not in "\n\t" else c for c in plain), style)
