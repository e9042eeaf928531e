"""`watch`: a live page of a run's folder, until Ctrl-C."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from tff_re.cli import options


@click.command(
    epilog=options.example("python -m tff_re.run watch runs/first\npython -m tff_re.run watch runs/first --port 8765")
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--port", type=click.IntRange(1, 65535), help="Port on 127.0.0.1 [default: any free one].")
@options.path_option(
    "--token-file", help="Read the token from this file (chmod 600), for Prometheus [default: a new random token]."
)
def watch(run, port, token_file):
    """Serve a live page of RUN, the folder of a run that is under way or has ended, until Ctrl-C. The link works only
    on this machine and has a token. /metrics has the numbers in Prometheus' form. The folder is only read."""
    from tff_re.pages.live_server import LiveServer, new_token, token_of

    token = new_token() if token_file is None else token_of(token_file)
    server = LiveServer(run, token, port or 0)
    try:
        click.echo(f"{server.link}\nCtrl-C ends it; on another machine, forward the port {server.port} with ssh -L")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve()
    finally:
        server.close()
