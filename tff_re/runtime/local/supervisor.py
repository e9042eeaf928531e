"""Runs one program as a child and ends it as soon as the process that asked for it is gone, however that one ended.

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
LISTENS_CHECK_SECONDS = 0.02


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
    say(LOG, f"{stamp()} supervisor: process {child} started: {' '.join(command)}")

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
            seconds = LISTENS_CHECK_SECONDS
        readable, _, _ = select.select(files, [], [], seconds)
        if forwarder in readable:
            forwarder.work()
        if LIFELINE in readable and not os.read(LIFELINE, 64):
            ending = True
        if signals in readable and any(number != signal.SIGCHLD for number in os.read(signals, 64)):
            ending = True

    if path:
        remove(path)
    code = os.waitstatus_to_exitcode(status)
    outcome = f"exited {code}" if code >= 0 else f"killed {-code}"
    say(LOG, f"{stamp()} supervisor: process {child} {outcome}{' as asked' if ending else ''}")
    say(REPORT, outcome)
    os._exit(0)


def forward(path: str, port: int):
    """Moves into a network of our own and makes the socket; None where the machine does not allow it."""
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # at the end: the standard library goes first
    from forwarder import Forwarder
    from private_network import enter_private_network

    if reason := enter_private_network():
        say(REPORT, f"exposed {reason}")
        say(LOG, f"{stamp()} supervisor: no network of its own: {reason}")
        return None
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(mask)
    return Forwarder(listener, port)


def remove(path: str) -> None:
    """Removes the socket and its folder, which the parent may be unable to."""
    for take_away, name in ((os.unlink, path), (os.rmdir, os.path.dirname(path))):
        with contextlib.suppress(OSError):
            take_away(name)


def start(command: list) -> int:
    """Starts the program with the kernel's order to die with us; returns its process id."""
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
        say(LOG, f"{stamp()} supervisor: cannot run {command[0]}: {error}")
    os._exit(127)


def say(file: int, line: str) -> None:
    # The reader may be gone or the disk full; neither may keep us from ending the program.
    with contextlib.suppress(OSError):
        os.write(file, (line + "\n").encode("utf-8", "replace"))


def stamp() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


if __name__ == "__main__":
    main()
