"""Run one program as a child, and end it as soon as the process that started it is gone for any reason.

Not imported: `supervised.py` runs this file in a small Python process of its own, `python -I -S supervisor.py PARENT
SOCKET PORT PROGRAM ARGUMENT…`, where PARENT is the process id of the one that asks. Only the standard library, and one
thread only.

With a SOCKET, program and supervisor move into a network of their own; what connects to the Unix socket made at that
path, which this user alone may open, is passed on to PORT there. Where the machine allows no such network, the program
runs without it, and no socket is made. An empty SOCKET asks for neither.

- File 0 is the lifeline, a pipe whose other end the parent holds: end of file there, SIGTERM here, or another parent
  process than PARENT (a forked child of the parent may still hold the pipe) means: end the program.
- File 1 is the report, read by the parent: `exposed REASON` where there is no network of its own, `started PID`, then
  `exited CODE` or `killed SIGNAL`, each a line.
- File 2 is the log, which becomes the program's standard output and standard error.

Why a process in between: the kernel can kill a child with its parent (PR_SET_PDEATHSIG), but counts the *thread* that
forked as the parent, and Python code between fork and exec may deadlock where there are threads. TensorFlow and gRPC
have many; here is only one.
"""

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import time

LIFELINE, REPORT, LOG = 0, 1, 2
PR_SET_PDEATHSIG = 1
# Only for the case that the parent is gone and the lifeline is not; everything else wakes us at once.
PARENT_CHECK_SECONDS = 0.5


def main() -> None:
    parent, path, port, command = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    # The mask is inherited over fork and exec; if a caller blocks SIGTERM, we would not get it.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signals, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # the wake-up pipe gets the number

    forwarder = forward(path, port) if path else None
    child = start(command)
    say(REPORT, f"started {child}")
    log(f"process {child} started: {' '.join(command)}")

    ending = False
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        if ending or os.getppid() != parent:
            os.kill(child, signal.SIGKILL)  # it holds nothing worth saving, so that SIGTERM would gain nothing
            _, status = os.waitpid(child, 0)
            ending = True
            break
        files, seconds = [LIFELINE, signals], PARENT_CHECK_SECONDS
        if forwarder and forwarder.listening:
            files.append(forwarder)
        elif forwarder:
            forwarder.begin()
            seconds = 0.02
        readable, _, _ = select.select(files, [], [], seconds)
        if forwarder in readable:
            forwarder.work()
        if LIFELINE in readable and not os.read(LIFELINE, 64):
            ending = True
        if signals in readable and any(number != signal.SIGCHLD for number in os.read(signals, 64)):
            ending = True

    if path:  # the parent may be unable to
        for take_away, name in ((os.unlink, path), (os.rmdir, os.path.dirname(path))):
            with contextlib.suppress(OSError):
                take_away(name)
    code = os.waitstatus_to_exitcode(status)
    outcome = f"exited {code}" if code >= 0 else f"killed {-code}"
    log(f"process {child} {outcome}{' as asked' if ending else ''}")
    say(REPORT, outcome)
    os._exit(0)


def forward(path: str, port: int):
    """Move into a network namespace of our own and make the socket, or return None if the machine does not allow it."""
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # at the end: the standard library goes first
    from private_network import enter_private_network

    if reason := enter_private_network():
        say(REPORT, f"exposed {reason}")
        log(f"no network of its own: {reason}")
        return None
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    listener.bind(path)
    os.umask(mask)
    return Forwarder(listener, port)


def start(command: list) -> int:
    """Start the program so that the kernel ends it when we die, and return its process id."""
    us = os.getpid()
    prctl = ctypes.CDLL(None, use_errno=True).prctl  # looked up before the fork
    child = os.fork()
    if child:
        return child
    try:
        # For the case that we are killed with SIGKILL and cannot end it ourselves.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != us:  # killed before the order was given
            os._exit(1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and exec keeps what is ignored
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(LOG, 1)  # so the program holds neither the report nor the lifeline
        os.execv(command[0], command)
    except BaseException as error:
        log(f"cannot run {command[0]}: {error}")
    os._exit(127)


def log(line: str) -> None:
    say(LOG, f"{time.strftime('%Y-%m-%d %H:%M:%S')} supervisor: {line}")


def say(file: int, line: str) -> None:
    # The reader may be gone or the disk full; neither may keep us from ending the program.
    with contextlib.suppress(OSError):
        os.write(file, (line + "\n").encode("utf-8", "replace"))


_HOST = "127.0.0.1"
# More than a socket holds, so that all that has come is passed on at once.
_PIECE_BYTES = 2**20
_IN, _OUT = select.EPOLLIN, select.EPOLLOUT


class _End:
    """One end of a connection, and the bytes still to be written to it."""

    def __init__(self, stream: socket.socket):
        stream.setblocking(False)
        self.stream = stream
        self.other = None
        self.pending = memoryview(b"")
        self.waits_for = 0  # events


class Forwarder:
    """Forwards what arrives at a Unix socket into a worker's own network, and the answers back."""

    def __init__(self, listener: socket.socket, port: int):
        """Create the forwarder.

        `listener` is bound but does not listen yet, and `port` is the program's on the loopback.
        """
        self._listener, self._port = listener, port
        self._epoll = select.epoll()
        self._ends: dict[int, _End] = {}
        self._piece = memoryview(bytearray(_PIECE_BYTES))
        self.listening = False

    def fileno(self) -> int:
        """Return a file descriptor that is readable when `work` has something to do."""
        return self._epoll.fileno()

    def begin(self) -> None:
        """Listen if the program listens, so that anyone who gets a connection reaches the program."""
        with contextlib.suppress(OSError):
            socket.create_connection((_HOST, self._port), timeout=1).close()
            self._listener.setblocking(False)
            self._listener.listen()
            self._epoll.register(self._listener, _IN)
            self.listening = True

    def work(self) -> None:
        """Forward what has arrived.

        An error of a connection ends only that connection.
        """
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
        client, worker = _End(outside), _End(inside)
        client.other, worker.other = worker, client
        for end in (client, worker):
            self._ends[end.stream.fileno()] = end
            self._wait(end)

    def _serve(self, end: _End, events: int) -> None:
        """Write the pending bytes to an end, then read from it unless earlier bytes from it are still pending."""
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
        for half in (end, end.other):
            del self._ends[half.stream.fileno()]
            half.stream.close()  # epoll forgets what is closed


if __name__ == "__main__":
    main()
