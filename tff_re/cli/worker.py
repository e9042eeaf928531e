"""`worker`: one for runs on other machines.

It moves into a network of its own, which Linux allows a process of one thread alone: nothing may be imported here that
starts threads, as NumPy does.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from tff_re.cli import options
from tff_re.errors import UserError
from tff_re.runtime.addresses import parse_address
from tff_re.runtime.tls import VARIABLES, Tls, chosen


@click.command(
    epilog=options.example(
        "python -m tff_re.run worker --port 8000 --tls-cert me.pem --tls-key me.key --tls-ca hospitals.pem\n"
        "python -m tff_re.run worker --check ward3:8000"
    )
)
@click.option("--port", type=click.IntRange(1, 65535), help="Port to listen on.")
@click.option("--bind", metavar="ADDR", help="Address to listen on [default: with TLS 0.0.0.0, without it 127.0.0.1].")
@click.option(
    "--max-concurrent", type=click.IntRange(min=1), help="Clients computed at the same time [default: number of cores]."
)
@options.path_option("--tls-cert", envvar=VARIABLES["cert"], help="Certificate of this side (PEM).")
@options.path_option("--tls-key", envvar=VARIABLES["key"], help="Its private key.")
@options.path_option("--tls-ca", envvar=VARIABLES["ca"], help="CA certificate of the peers.")
@click.option("--insecure", is_flag=True, help="No TLS, on all interfaces: whoever reaches the port can use it.")
@options.path_option("--log", help="File for its output [default: runs/worker-PORT.log].")
@click.option("--check", metavar="HOST:PORT", help="Start no worker; say whether one answers there.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=10,
    show_default=True,
    help="Seconds that --check waits for an answer.",
)
def worker(port, bind, max_concurrent, tls_cert, tls_key, tls_ca, insecure, log, check, timeout):
    """Run a worker for `--runtime remote:…` of other machines, until Ctrl-C; or check one (exit code 0 or 2)."""
    if (port is None) == (check is None):
        raise UserError("give --port PORT to start a worker, or --check HOST:PORT to ask for one")
    tls = chosen(cert=tls_cert, key=tls_key, ca=tls_ca)
    if check is not None:
        _check(check, tls, timeout)
        return
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


def _check(address: str, tls: Tls | None, seconds: float) -> None:
    """Whether a worker answers.

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
