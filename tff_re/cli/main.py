"""The group of commands, and how errors end the program.

Each command is in tff_re/cli/NAME.py.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Mapping
from importlib import metadata

import click

from computations.errors import CompositionError
from datasets.errors import DataError
from tff_re import __version__
from tff_re.cli.display import drop_standard_output, guarded_output
from tff_re.errors import UserError
from tff_re.runtime.errors import RuntimeProblem
from tff_re.runtime.quiet import be_quiet, collect_garbage_seldom

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

COMMANDS = (
    *("audit", "cases", "compare", "datasets", "demo", "doctor", "evaluate"),
    *("export", "extract", "partition", "predict", "recipes", "report", "site", "survey", "tables", "train"),
    *("validate", "validations", "watch"),
)


class _Commands(Mapping):
    """Commands by name, imported from tff_re/cli/NAME.py when requested."""

    def __getitem__(self, name):
        if name not in COMMANDS:
            raise KeyError(name)
        return getattr(importlib.import_module(f"tff_re.cli.{name}"), name)

    def __iter__(self):
        return iter(COMMANDS)

    def __len__(self):
        return len(COMMANDS)


@click.group(
    commands=_Commands(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="tff-re")
@click.pass_context
def cli(context):
    """Federated relation extraction and Chinese medical text classification on TensorFlow Federated."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def _refuse_other_datasets() -> None:
    """Refuse to run if Hugging Face's package `datasets` would be imported instead of ours."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        metadata.version("datasets")
        raise UserError(
            "the Hugging Face package 'datasets' is installed in this environment and has the name of ours; use the "
            "project's own environment (make setup) or run: pip uninstall datasets"
        )


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code.

    It is 0, 2 for bad input with one line on standard error, or 130 for Ctrl-C.

    Where the reader of standard output goes (a pipe into head), the command continues in silence to its end.
    """
    be_quiet()
    collect_garbage_seldom()
    from tff_re.runtime import install_signal_handlers

    install_signal_handlers()
    code = 0
    try:
        with guarded_output():
            code = _run(sys.argv[1:] if arguments is None else list(arguments))
        return code
    except BrokenPipeError:  # the last of the output may come after the command's end
        drop_standard_output()
        return code
    except UserError as error:  # of what was still in standard output's buffer
        return _fail(str(error))


def _run(arguments: list[str]) -> int:
    try:
        _refuse_other_datasets()
        # Not cli.main(), which prints an empty line of its own for Ctrl-C.
        with cli.make_context("python -m tff_re.run", arguments) as context:
            cli.invoke(context)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as error:
        see = f" (see: {error.ctx.command_path} --help)" if getattr(error, "ctx", None) else ""
        return _fail(error.format_message() + see)
    except (click.Abort, KeyboardInterrupt) as error:
        _say_interrupted(error)
        return EXIT_INTERRUPTED
    except SystemExit as error:  # of SIGTERM
        if hasattr(error, "__notes__"):
            _say_interrupted(error)
        raise
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None:
            raise
        return _fail(f"{error.filename}: {error.strerror}")
    except (UserError, DataError, RuntimeProblem, CompositionError) as error:
        return _fail(str(error))
    return 0


def _say_interrupted(error: BaseException) -> None:
    after = "\n" if sys.stderr.isatty() else ""  # the terminal's ^C
    line = " ".join(getattr(error, "__notes__", ["interrupted; a run continues with --resume"]))
    with contextlib.suppress(OSError):
        print(f"{after}tff-re: {line}", file=sys.stderr)


def _fail(message: str) -> int:
    with contextlib.suppress(OSError):  # standard error may be full, too
        print("tff-re: " + " ".join(message.split()), file=sys.stderr)
    return EXIT_BAD_INPUT
