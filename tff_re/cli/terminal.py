"""Standard output whose reader may go away and whose device may be full."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from rich.console import Console

from tff_re.errors import UserError


class Terminal(Console):
    """A console that shows names, paths and texts as they are: rich would read "[b]" as markup and ":a:" as an emoji.

    Where the reader of a pipe has gone (`train … | head -1`), the work goes on in silence to its end.
    """

    def __init__(self):
        super().__init__(markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Shows nothing from here on."""
        self.quiet = True
        drop_standard_output()


@contextlib.contextmanager
def guarded_output() -> Iterator[None]:
    """Within it, standard output that cannot be written is a UserError that says so: an OSError does not say of which
    file it is, and would be taken for the run folder's. BrokenPipeError stays what it is."""
    before = sys.stdout
    if before is None:
        yield
        return
    guarded = sys.stdout = _Guarded(before)
    try:
        yield
        guarded.flush()  # else Python prints a traceback at its exit
    finally:
        if guarded.failed:
            drop_standard_output()
        sys.stdout = before


class _Guarded:
    """A stream whose errors name it."""

    def __init__(self, stream):
        self._stream, self.failed = stream, False

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def write(self, text):
        return self._named(self._stream.write, text)

    def flush(self):
        return self._named(self._stream.flush)

    def _named(self, function, *arguments):
        try:
            return function(*arguments)
        except BrokenPipeError:
            raise
        except OSError as error:
            self.failed = True
            raise UserError(
                f"standard output cannot be written ({error.strerror}); send it somewhere else (a run continues with "
                "--resume)"
            ) from None


def drop_standard_output() -> None:
    """What is left in its buffer is discarded, so that it does not fail again at Python's exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a notebook's stream has no file number
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
