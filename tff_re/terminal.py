"""Standard output, where its reader may go and its device may be full."""

from __future__ import annotations

import contextlib
import os
import sys

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

    def print(self, *objects, **options) -> None:
        """As rich's.

        Raises:
          UserError: standard output cannot be written.
        """
        try:
            super().print(*objects, **options)
        except OSError as error:
            raise output_problem(error) from None


def output_problem(error: OSError) -> UserError:
    """The line for standard output that cannot be written, of which nothing more is tried."""
    drop_standard_output()
    return UserError(
        f"standard output cannot be written ({error.strerror}); send it somewhere else (a run continues with --resume)"
    )


def drop_standard_output() -> None:
    """What is left in its buffer goes nowhere, and does not fail again at Python's end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a stream of a notebook or a test has no number
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def flush_standard_output() -> None:
    """Raises UserError where what was printed cannot be written; BrokenPipeError as it comes."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise output_problem(error) from None
