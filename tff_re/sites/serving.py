"""A site on its Unix socket, until it is ended."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from tff_re.sites.engines import listen, receive, send
from tff_re.sites.parts import Parts

_log = logging.getLogger("tff_re.sites")


class Serving:
    """Answers messages on a Unix socket of mode 0600, whole or in parts, to this user's processes alone."""

    def __init__(self, answer: Callable[[bytes], bytes], path: Path):
        """Raises RuntimeProblem where there can be no socket."""
        self._answer, self._path = Parts(answer).answer, path
        self._socket = listen(path)

    def run(self) -> None:
        """Answers until `close`."""
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._one, args=[connection], daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with connection:
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            if struct.unpack("3i", credentials)[1] not in (os.getuid(), 0):
                _log.warning("another user's process was not answered")
                return
            with contextlib.suppress(OSError, EOFError):  # the other side is gone; it asks again
                send(connection, self._answer(receive(connection)))

    def close(self) -> None:
        """Ends `run`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._path.unlink(missing_ok=True)
