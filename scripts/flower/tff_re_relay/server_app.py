"""At the coordinator: takes messages for sites on a Unix socket, has Flower carry them, and hands the answers back.

A site's name is the name that its SuperNode was registered with, next to the node's public key; what a node says of
itself counts for nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from tff_re_relay.frames import receive, send

app = ServerApp()

POLL_SECONDS = 0.25


class Relay:
    """Carries messages over a grid, which one thread at a time may use."""

    def __init__(self, grid: Grid, seconds: float):
        self._grid, self._seconds = grid, seconds
        self._lock = threading.Lock()

    def ask(self, site: str, message: bytes) -> bytes:
        """A site's answer; no bytes where there is none in time, or no such site."""
        deadline = time.monotonic() + self._seconds
        with self._lock:
            nodes = {node.name: node.node_id for node in self._grid.get_nodes()}
        if site not in nodes:
            print(f"no SuperNode of the name {site} is connected; there are: {', '.join(sorted(nodes))}", flush=True)
            return b""
        content = RecordDict({"message": ConfigRecord({"bytes": message, "seconds": self._seconds})})
        sent = Message(content, nodes[site], "query", ttl=self._seconds + 60.0)
        with self._lock:
            ids = [name for name in self._grid.push_messages([sent]) if name]
        while ids and time.monotonic() < deadline:
            with self._lock:
                replies = list(self._grid.pull_messages(ids))
            for reply in replies:
                if reply.has_error():
                    print(f"site {site}: {reply.error.reason}", flush=True)
                    return b""
                return reply.content["answer"]["bytes"]
            time.sleep(POLL_SECONDS)
        return b""

    def serve(self, connection: socket.socket) -> None:
        """One message of the coordinator."""
        with connection, contextlib.suppress(OSError, EOFError):
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            if struct.unpack("3i", credentials)[1] not in (os.getuid(), 0):
                return
            site = receive(connection).decode("utf-8", "replace")
            message = receive(connection)
            try:
                answer = self.ask(site, message)
            except Exception as error:  # Flower's connection to its SuperLink; the coordinator asks again
                print(f"site {site}: Flower failed: {type(error).__name__}: {error}", flush=True)
                answer = b""
            send(connection, answer)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Until the run is stopped (`flwr stop`)."""
    path = Path(str(context.run_config["socket"]))
    path.unlink(missing_ok=True)
    relay = Relay(grid, float(context.run_config["seconds"]))
    mask = os.umask(0o177)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        try:
            listening.bind(str(path))
        finally:
            os.umask(mask)
        listening.listen(16)
        print(f"the relay listens on {path}", flush=True)
        try:
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=relay.serve, args=[connection], daemon=True).start()
        finally:
            path.unlink(missing_ok=True)
