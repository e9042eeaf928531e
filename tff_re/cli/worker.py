"""`worker`: apart from the other commands, because it moves into a network of its own, which Linux allows a process of
one thread alone: nothing may be imported here that starts threads, as NumPy does."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from tff_re.errors import UserError
from tff_re.runtime.addresses import parse_address
from tff_re.runtime.tls import Tls


def check(address: str, tls: Tls | None, seconds: float) -> None:
    """`worker --check`: whether a worker answers.

    Raises:
      UserError: none does; UnknownRuntime: the address is malformed; RuntimeProblem: our certificate or key is not fit
      for use.
    """
    from tff_re.runtime.connection import check_worker

    parse_address(address)
    if tls is not None:
        tls.check(as_client=True)
    if reason := check_worker(address, tls, seconds):
        raise UserError(f"no worker answered at {address} within {seconds:g} s ({reason})")
    click.echo(f"a worker answers at {address}")


def serve(
    port: int, bind: str | None, max_concurrent: int | None, tls: Tls | None, insecure: bool, log: Path | None
) -> None:
    """`worker`: one for other machines' runs, until Ctrl-C."""
    from tff_re.runtime.remote import serving

    with contextlib.suppress(KeyboardInterrupt):
        serving.serve(
            port,
            bind=bind,
            max_concurrent_computation_calls=max_concurrent,
            tls=tls,
            insecure=insecure,
            log_path=log or Path("runs") / f"worker-{port}.log",
            say=click.echo,
        )
