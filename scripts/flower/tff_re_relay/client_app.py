"""At a site: hands a message to the site's process on this machine, and its answer back.

The SuperNode's `--node-config 'socket="/path/site.sock"'` says where that listens.
"""

from __future__ import annotations

import socket
import time

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from tff_re_relay.frames import carried, taken
from tff_re_relay.parts import receive, send

app = ClientApp()

_TRIES = 3


@app.query()
def carry(message: Message, context: Context) -> Message:
    """The answer of the site's process; no bytes where it has none, which the coordinator asks for again."""
    answer = _answer(str(context.node_config["socket"]), *taken(message.content))
    return Message(carried(answer), reply_to=message)


def _answer(path: str, request: list[bytes], seconds: float) -> list[bytes]:
    deadline = time.monotonic() + seconds
    for attempt in range(_TRIES):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                connection.settimeout(max(1.0, deadline - time.monotonic()))
                connection.connect(path)
                send(connection, request)
                return receive(connection)
            except (OSError, EOFError) as error:
                print(f"the site's process did not answer on {path}: {type(error).__name__}", flush=True)
        time.sleep(1.0 + attempt)
    return []
