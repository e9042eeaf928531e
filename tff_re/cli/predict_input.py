"""The texts that `predict` is given: arguments, a file, standard input; plain lines or JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets.errors import DataError
from datasets.files import decode, parse_json, read_bytes
from tff_re.errors import UserError


@dataclass(frozen=True)
class Source:
    """Where the texts come from.

    Attributes:
      file: in place of standard input; compressed or not.
      json_lines: whether a line is a JSON object; of a file whose name ends in .jsonl it is anyway.
      head_type, tail_type: of mentions that a line gives no types of.
    """

    file: Path | None = None
    json_lines: bool = False
    head_type: str | None = None
    tail_type: str | None = None

    def lines(self, arguments: Sequence[str]) -> Iterator[Any]:
        """Every text as `Predictor.predict_each` takes it, or a UserError for a line that is none.

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

    def records(self, arguments: Sequence[str], what: str) -> Path:
        """The file, for models that take records of a data set (`what`, in words) in place of texts.

        Raises:
          UserError: there is none, or options that are for texts.
        """
        if arguments or self.file is None:
            raise UserError(f"the model takes {what}, not texts; give a file of them by --file alone")
        if self.json_lines or self.head_type is not None or self.tail_type is not None:
            raise UserError(f"the model takes {what}; --json-lines, --head-type and --tail-type are for texts")
        return self.file

    def name(self, number: int) -> str:
        """What a text of that number is called in a message."""
        return f"text number {number}" if self.file is None else f"{self.file}: line {number}"

    def _text(self, line: bytes, as_json: bool) -> Any:
        try:
            value = parse_json(line) if as_json else decode(line)
        except DataError as error:
            place = "" if error.byte is None else f" at byte {error.byte}"
            return UserError(f"{error.reason}{place}; {error.remedy}")
        if as_json and not isinstance(value, dict):
            return UserError('is not a JSON object; write {"text": …}')
        return self._with_types(value)

    def _with_types(self, text: Any) -> Any:
        types = {"head_type": self.head_type, "tail_type": self.tail_type}
        types = {name: value for name, value in types.items() if value is not None}
        if not types:
            return text
        return {**types, **(text if isinstance(text, dict) else {"text": text})}


def _standard_input() -> bytes:
    buffer = getattr(sys.stdin, "buffer", None)
    return sys.stdin.read().encode("utf-8", "surrogateescape") if buffer is None else buffer.read()
