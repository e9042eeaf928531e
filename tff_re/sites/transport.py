"""How a coordinator's messages reach sites: in memory, over Unix sockets of one machine, or through a relay.

Over a socket a message is 8 bytes of its length, little endian, and the message. To a relay (an engine's server process
that reaches the sites, such as Flower's ServerApp) a message is preceded by one with the site's name.
`multiprocessing.connection` does not fit: it takes the memory of the whole length at once, and knows no timeout.

An engine that carries messages of a bounded size sends a long one in parts, and a site puts them together. What comes,
and what goes back, begins with 48 bytes (`HEAD`), little endian:

    8 bytes   PART: more of a message; REST: the rest of an answer is asked for
    16 bytes  the name of the message, which its answer has too
    8 bytes   where this part begins, in the message or in its answer
    8 bytes   how long the whole of it is; of the answer 0 as long as the message is not whole
    8 bytes   how much of the answer may go at once

`scripts/flower/tff_re_relay/parts.py` is the other side of both.
"""

from __future__ import annotations

import abc
import contextlib
import logging
import os
import re
import socket
import stat
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tff_re.errors import UserError
from tff_re.runtime.errors import RuntimeProblem
from tff_re.runtime.events import MESSAGE_WITHOUT_BEGINNING, PEER_REFUSED

MAX_BYTES = 1 << 40
_CHUNK = 1 << 20

HEAD = struct.Struct("<8s16sQQQ")
PART, REST = b"tff-part", b"tff-rest"

MAX_UNDER_WAY = 2
"""Messages that come in parts at once; the oldest goes, as those do whose coordinator is gone."""

_log = logging.getLogger("tff_re.sites")


class NoAnswer(RuntimeProblem):
    """A site did not answer, or not in time."""


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def engine_of(runtime: str, sites: Sequence[str] = ()) -> Engine:
    """Return the engine in a runtime's name.

    Args:
      runtime: `sites:NAME=SOCKET,NAME=SOCKET`, or `flower:SOCKET`, the socket of the relay.
      sites: their names for `flower`, in the order in which their sums are added; of the others a choice, or all.

    Raises:
      UserError: a malformed name, no sites, or one that is not there.
    """
    kind, _, rest = runtime.partition(":")
    for name in sites:
        if not _NAME.fullmatch(name):
            raise UserError(f"--sites: {name!r} is not a site's name; write them like aachen,bonn,celle")
    if len(set(sites)) < len(sites):
        raise UserError("--sites names a site twice; name each once")
    if kind == "flower":
        if not sites or not rest:
            raise UserError("the runtime 'flower' is flower:SOCKET --sites aachen,bonn,celle; see docs/sites.md")
        if not Path(rest).is_socket():
            raise UserError(
                f"{rest}: no relay listens there; start it with: flwr run scripts/flower NAME --run-config "
                f"'socket=\"{Path(rest).absolute()}\"' (docs/sites.md)"
            )
        return Relay(Path(rest), tuple(sites))
    paths = {}
    for part in rest.split(","):
        name, equals, path = part.strip().partition("=")
        if not equals or not path or not _NAME.fullmatch(name) or name in paths:
            raise UserError(f"--runtime {runtime}: must be sites:NAME=SOCKET,NAME=SOCKET, each name once")
        paths[name] = Path(path)
    if missing := [name for name in sites if name not in paths]:
        raise UserError(f"--sites: the runtime names no socket of {missing[0]}")
    return Sockets({name: paths[name] for name in sites or paths})


class Engine(abc.ABC):
    """Carries messages.

    `sites` are the names of the sites that it reaches, in their order.
    """

    sites: tuple[str, ...]

    @abc.abstractmethod
    def call(self, site: str, message: bytes, seconds: float) -> bytes:
        """Return a site's answer.

        This may be called from several threads at once.

        Raises:
          NoAnswer: there is none within so many seconds, or the connection broke.
        """


class InMemory(Engine):
    """Sites as objects of this process, for tests and notebooks."""

    def __init__(self, sites: Mapping[str, Callable[[bytes], bytes]]):
        self._sites, self.sites = dict(sites), tuple(sites)

    def call(self, site: str, message: bytes, seconds: float) -> bytes:
        del seconds
        return self._sites[site](message)


class Sockets(Engine):
    """Sites of this machine, each reached over its Unix socket."""

    def __init__(self, paths: Mapping[str, Path]):
        self._paths, self.sites = dict(paths), tuple(paths)

    def call(self, site: str, message: bytes, seconds: float) -> bytes:
        with connected(self._paths[site], f"site {site}", seconds) as connection:
            send(connection, message)
            return receive(connection)


class Relay(Engine):
    """Sites that an engine's server process reaches.

    It listens on a Unix socket of this machine.
    """

    def __init__(self, path: Path, sites: tuple[str, ...]):
        self._path, self.sites = path, tuple(sites)

    def call(self, site: str, message: bytes, seconds: float) -> bytes:
        with connected(self._path, f"site {site}", seconds) as connection:
            send(connection, site.encode())
            send(connection, message)
            answer = receive(connection)
        if not answer:
            raise NoAnswer(f"site {site}: the relay has no answer of it; see the log of the engine")
        return answer


@contextlib.contextmanager
def connected(path: Path, what: str, seconds: float):
    """Return a connection to a Unix socket, with errors as NoAnswer."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with connection:
        try:
            connection.settimeout(seconds)
            connection.connect(str(path))
            yield connection
        except (TimeoutError, BlockingIOError):
            raise NoAnswer(f"{what} has not answered within {seconds:g} s") from None
        except (OSError, EOFError) as error:
            reason = getattr(error, "strerror", None) or "the connection ended"
            raise NoAnswer(f"{what} does not answer ({reason})") from None


def send(connection: socket.socket, message: bytes) -> None:
    """Send a message with its length."""
    connection.sendall(len(message).to_bytes(8, "little"))
    if message:  # to hear that it is empty is enough for the other side, which may have hung up
        connection.sendall(message)


def receive(connection: socket.socket) -> bytearray:
    """Receive a message with its length.

    Raises EOFError if it is cut off.
    """
    length = int.from_bytes(_exactly(connection, 8), "little")
    if length > MAX_BYTES:
        raise EOFError
    return _exactly(connection, length)


def _exactly(connection: socket.socket, length: int) -> bytearray:
    received = bytearray()
    while len(received) < length:  # not all at once: the length is the other side's word
        chunk = connection.recv(min(length - len(received), _CHUNK))
        if not chunk:
            raise EOFError
        received += chunk
    return received


def listen(path: Path) -> socket.socket:
    """Return a listening Unix socket of mode 0600.

    Raises:
      RuntimeProblem: another process listens there, something else lies there, or the path is too long.
    """
    if path.exists():
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise RuntimeProblem(f"{path}: exists and is not a socket; remove it, or choose another path")
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            probe.connect(str(path))
            raise RuntimeProblem(f"{path}: another process listens there")
        path.unlink()  # left by a process that was killed
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        listening.bind(str(path))
    except OSError as error:
        listening.close()
        reason = error.strerror or str(error)
        raise RuntimeProblem(f"{path}: cannot create a socket there ({reason}); choose another path") from None
    finally:
        os.umask(mask)
    listening.listen(16)
    return listening


# A site's end


class _Message:
    """A message that arrives in parts, and then its answer."""

    def __init__(self):
        self.lock = threading.Lock()
        self.received = bytearray()
        self.answer: memoryview | None = None


class Parts:
    """Answers messages that arrive whole or in parts."""

    def __init__(self, answer: Callable[[bytes], bytes]):
        self._answer = answer
        self._lock = threading.Lock()
        self._under_way: OrderedDict[bytes, _Message] = OrderedDict()

    def answer(self, message: bytes | bytearray) -> bytes:
        """Return the answer to a message, or to a part of one.

        The answer is empty if an earlier part is missing.

        A part that comes again changes nothing.
        """
        if len(message) < HEAD.size or bytes(message[:8]) not in (PART, REST):
            return self._answer(message)
        kind, name, begin, total, max_bytes = HEAD.unpack_from(message)
        with self._lock:
            if kind == PART and not begin:
                self._under_way.setdefault(name, _Message())
                while len(self._under_way) > MAX_UNDER_WAY:
                    self._under_way.popitem(last=False)
            under_way = self._under_way.get(name)
        if under_way is not None:
            with under_way.lock:
                if kind == PART and under_way.answer is None:
                    if begin == len(under_way.received):
                        under_way.received += memoryview(message)[HEAD.size :]
                    if len(under_way.received) < total:
                        return HEAD.pack(PART, name, 0, 0, 0)
                    received, under_way.received = under_way.received, bytearray()
                    under_way.answer = memoryview(self._answer(received))
                if under_way.answer is not None:
                    return self._part_of(name, under_way.answer, begin if kind == REST else 0, max_bytes)
        MESSAGE_WITHOUT_BEGINNING.log(_log)
        return b""

    def _part_of(self, name: bytes, answer: memoryview, begin: int, max_bytes: int) -> bytes:
        part = answer[begin : begin + max_bytes]
        if begin + len(part) >= len(answer):
            with self._lock:
                self._under_way.pop(name, None)
        return b"".join([HEAD.pack(PART, name, begin, len(answer), 0), part])


class Serving:
    """Answers messages on a Unix socket of mode 0600, whole or in parts.

    Only this user's processes can connect.
    """

    def __init__(self, answer: Callable[[bytes], bytes], path: Path):
        """Create the socket.

        Raises RuntimeProblem if that is not possible.
        """
        self._answer, self._path = Parts(answer).answer, path
        self._socket = listen(path)

    def run(self) -> None:
        """Answer until `close` is called."""
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            if struct.unpack("3i", credentials)[1] not in (os.getuid(), 0):
                PEER_REFUSED.log(_log)
                return
            with contextlib.suppress(OSError, EOFError):  # the other side is gone; it asks again
                send(connection, self._answer(receive(connection)))

    def close(self) -> None:
        """End `run`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._path.unlink(missing_ok=True)
