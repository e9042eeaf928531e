"""At the coordinator: takes messages for sites on a Unix socket, has Flower carry them, and hands the answers back.

A site's name is the name that its SuperNode was registered with, next to the node's public key; what a node says of
itself counts for nothing.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import struct
import threading
import time
from pathlib import Path

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from tff_re_relay.frames import carried, taken
from tff_re_relay.parts import exchange, receive

app = ServerApp()

POLL_SECONDS = 0.2
ACCEPT_SECONDS = 1.0
"""Flower tells this process to end by a signal, of which a thread that waits in the kernel does not hear."""


class Relay:
    """Carries messages over a grid, which one thread at a time may use."""

    def __init__(self, grid: Grid, seconds: float, most_bytes: int):
        """`seconds`: that an answer may take; `most_bytes`: that one message of Flower's has, about."""
        self._grid, self._seconds, self._most_bytes = grid, seconds, most_bytes
        self._lock = threading.Lock()
        self._waiting: dict[str, queue.SimpleQueue[Message]] = {}
        threading.Thread(target=self._poll, daemon=True).start()

    def ask(self, site: str, message: list[bytes]) -> list[bytes]:
        """A site's answer to a part; nothing where there is none in time, or no such site."""
        try:
            return self._ask(site, message)
        except Exception as error:  # Flower's connection to its SuperLink; the coordinator asks again
            print(f"site {site}: Flower failed: {type(error).__name__}: {error}", flush=True)
            return []

    def _ask(self, site: str, message: list[bytes]) -> list[bytes]:
        with self._lock:
            nodes = {node.name: node.node_id for node in self._grid.get_nodes()}
        if site not in nodes:
            print(f"no SuperNode of the name {site} is connected; there are: {', '.join(sorted(nodes))}", flush=True)
            return []
        sent = Message(carried(message, self._seconds), nodes[site], "query", ttl=self._seconds + 60.0)
        del message
        answers: queue.SimpleQueue[Message] = queue.SimpleQueue()
        with self._lock:
            names = [name for name in self._grid.push_messages([sent]) if name]
            self._waiting |= dict.fromkeys(names, answers)
        del sent  # it may be large
        try:
            answer = answers.get(timeout=self._seconds) if names else None
        except queue.Empty:
            answer = None
        finally:
            with self._lock:
                for name in names:
                    self._waiting.pop(name, None)
        if answer is None:
            print(f"site {site}: no answer within {self._seconds:g} s", flush=True)
            return []
        if answer.has_error():
            print(f"site {site}: {answer.error.reason}", flush=True)
            return []
        return taken(answer.content)[0]

    def _poll(self) -> None:
        """Gives those who wait their answers; one request for all of them."""
        while True:
            time.sleep(POLL_SECONDS)
            with self._lock:
                try:
                    replies = list(self._grid.pull_messages(self._waiting)) if self._waiting else []
                except Exception as error:  # the SuperLink is not there
                    print(f"Flower failed: {type(error).__name__}: {error}", flush=True)
                    replies = []
                    time.sleep(1.0)
                for reply in replies:
                    answers = self._waiting.pop(reply.metadata.reply_to_message_id, None)
                    if answers is not None:
                        answers.put(reply)

    def serve(self, connection: socket.socket) -> None:
        """One message of the coordinator."""
        with connection, contextlib.suppress(OSError, EOFError):
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            if struct.unpack("3i", credentials)[1] not in (os.getuid(), 0):
                return
            site = b"".join(receive(connection)).decode("utf-8", "replace")
            exchange(connection, lambda part: self.ask(site, part), self._most_bytes)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Until the run is stopped (`flwr stop`)."""
    path = Path(str(context.run_config["socket"]))
    path.unlink(missing_ok=True)
    most_bytes = int(context.run_config["most_bytes"])
    if most_bytes < 1:
        raise ValueError(f"most_bytes = {most_bytes}: a part has a byte at least")
    relay = Relay(grid, float(context.run_config["seconds"]), most_bytes)
    mask = os.umask(0o177)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        try:
            listening.bind(str(path))
        finally:
            os.umask(mask)
        listening.listen(16)
        own = path.stat().st_ino
        listening.settimeout(ACCEPT_SECONDS)
        print(f"the relay listens on {path}", flush=True)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    connection, _ = listening.accept()
                    connection.settimeout(None)
                    threading.Thread(target=relay.serve, args=[connection], daemon=True).start()
        finally:
            with contextlib.suppress(OSError):
                if path.stat().st_ino == own:  # and not that of another relay, begun since
                    path.unlink()
