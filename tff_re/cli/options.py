"""Options that several commands have.

An invalid value ends the command with one line.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from tff_re.errors import UserError
from tff_re.runtime import DEFAULT_RUNTIME, RuntimeProblem, check_runtime_name, runtime_names
from tff_re.runtime.logs import FORMS, VARIABLE


def example(text: str) -> str:
    """Return the end of a command's help, with lines to type."""
    return "\b\nExample:\n  " + "\n  ".join(text.splitlines())


def names(value: str | None) -> tuple[str, ...]:
    """Parse comma-separated names."""
    return tuple(name.strip() for name in value.split(",")) if value else ()


def path_option(*names: str, **settings):
    """Return an option whose value is a pathlib.Path."""
    return click.option(*names, type=click.Path(path_type=Path), **settings)


def require_data_folder(value: Path | None) -> Path | None:
    """Raise an error if --data was given and is not a folder."""
    if value is not None and not value.is_dir():
        raise UserError(f"--data {value}: no such folder")
    return value


def _require_partition(context, parameter, value: Path | None) -> Path | None:
    if value is not None and not value.is_file():
        raise UserError(f"--partition {value}: no such file")
    return value


def _choose_log(log_format: str | None) -> None:
    """Set the format of logs for this process and those that it starts."""
    if log_format is not None:
        os.environ[VARIABLE] = log_format


class _RuntimeName(click.ParamType):
    name = "runtime"

    def get_metavar(self, param, ctx=None):
        return f"[{'|'.join(runtime_names())}]"

    def convert(self, value, param, ctx):
        try:
            check_runtime_name(value)
        except RuntimeProblem as error:
            self.fail(str(error), param, ctx)
        return value


DATA_HELP = "Folder of the data sets [default: $TFF_RE_DATA]."

data = path_option("--data", callback=lambda *arguments: require_data_folder(arguments[-1]), help=DATA_HELP)
log = click.option(
    "--log",
    type=click.Choice(FORMS),
    expose_value=False,
    callback=lambda context, parameter, value: _choose_log(value),
    help=f"Form of the lines of the log [default: ${VARIABLE}, else text].",
)
out = path_option("--out", help="Folder to write.")
overrides = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the recipe; KEY=none removes it."
)
last = click.option("--last", is_flag=True, help="Use the last round even if another was selected on dev.")
partition = path_option("--partition", callback=_require_partition, help="Read the partition from this file.")
resume = click.option("--resume", is_flag=True, help="Continue the run that is in the folder.")
runtime = click.option(
    "--runtime", type=_RuntimeName(), default=DEFAULT_RUNTIME, show_default=True, help="Where computations run."
)
seed = click.option("--seed", type=click.IntRange(min=0), help="Seed; overrides the recipe's.")
trust = click.option(
    "--trust",
    is_flag=True,
    help="Read files that can run code: pickles of gensim, exports that were changed or made elsewhere.",
)
stage_seconds = click.option(
    "--stage-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    help="Seconds to wait for a site's answer.",
)


def retry_seconds(default: float):
    """Return the option of how long a site that does not answer is asked again."""
    return click.option(
        "--retry-seconds",
        type=click.FloatRange(min=0),
        default=default,
        show_default=True,
        help="Seconds to ask a site again that does not answer.",
    )
