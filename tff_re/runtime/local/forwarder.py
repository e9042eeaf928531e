"""Passes on from a Unix socket to a port of the loopback: the way into a worker's own network.

Standard library only, and one thread: `supervisor.py` loads this file in its small Python process.
"""

from __future__ import annotations

import contextlib
import select
import socket

_HOST = "127.0.0.1"
# More than a socket holds, so that all that has come is passed on at once.
_PIECE_BYTES = 2**20
_IN, _OUT = select.EPOLLIN, select.EPOLLOUT


class _End:
    """One end of a connection, and what is still to be written to it."""

    def __init__(self, stream: socket.socket):
        stream.setblocking(False)
        self.stream = stream
        self.other: _End | None = None
        self.pending = memoryview(b"")
        self.waits_for = 0  # events


class Forwarder:
    """Passes on what comes to a listening Unix socket, and the answers. It listens from `begin` on."""

    def __init__(self, listener: socket.socket, port: int):
        """Args:
        listener: a Unix socket that is bound and does not listen yet.
        port: of the program on the loopback.
        """
        self._listener, self._port = listener, port
        self._epoll = select.epoll()
        self._ends: dict[int, _End] = {}
        self._piece = memoryview(bytearray(_PIECE_BYTES))
        self.listening = False

    def fileno(self) -> int:
        """Readable when there is something for `work` to do."""
        return self._epoll.fileno()

    def begin(self) -> None:
        """Listens if the program does, so that who gets a connection gets the program."""
        with contextlib.suppress(OSError):
            socket.create_connection((_HOST, self._port), timeout=1).close()
            self._listener.setblocking(False)
            self._listener.listen()
            self._epoll.register(self._listener, _IN)
            self.listening = True

    def work(self) -> None:
        """Passes on what has come. An error of a connection ends that connection and no other."""
        listener = self._listener.fileno()
        # The listener last: a new connection may get the number of one that was closed in this turn, and then the
        # events of that one would be taken for its own.
        for file, events in sorted(self._epoll.poll(0), key=lambda event: event[0] == listener):
            if file == listener:
                with contextlib.suppress(OSError):
                    self._accept()
            elif file in self._ends:  # not closed by an earlier event of this turn
                end = self._ends[file]
                try:
                    self._serve(end, events)
                except BlockingIOError:
                    pass
                except OSError:
                    self._close(end)

    def _accept(self) -> None:
        outside, _ = self._listener.accept()
        try:
            inside = socket.create_connection((_HOST, self._port), timeout=1)
            inside.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            outside.close()
            raise
        one, other = _End(outside), _End(inside)
        one.other, other.other = other, one
        for end in (one, other):
            self._ends[end.stream.fileno()] = end
            self._wait(end)

    def _serve(self, end: _End, events: int) -> None:
        """Writes to an end what waits for it, then reads from it unless what it sent before still waits."""
        if events & _OUT:
            end.pending = end.pending[end.stream.send(end.pending) :]
        if events & select.EPOLLERR:
            raise OSError(end.stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), "the connection broke")
        if events & ~_OUT and not end.other.pending:
            count = end.stream.recv_into(self._piece)
            if not count:
                raise OSError("closed by its peer")
            sent = 0
            with contextlib.suppress(BlockingIOError):
                sent = end.other.stream.send(self._piece[:count])
            end.other.pending = memoryview(bytes(self._piece[sent:count]))
        self._wait(end)
        self._wait(end.other)

    def _wait(self, end: _End) -> None:
        events = (0 if end.other.pending else _IN) | (_OUT if end.pending else 0)
        if events and end.waits_for:
            self._epoll.modify(end.stream, events)
        elif events:
            self._epoll.register(end.stream, events)
        elif end.waits_for:  # registered for nothing, it would be told of a hang-up again and again
            self._epoll.unregister(end.stream)
        end.waits_for = events

    def _close(self, end: _End) -> None:
        for one in (end, end.other):
            del self._ends[one.stream.fileno()]
            one.stream.close()  # epoll forgets what is closed
