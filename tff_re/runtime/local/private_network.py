"""A network namespace for this process, so that no other reaches a program that listens on all interfaces."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_INTERFACE_REQUEST = "16sH22x"
_ENTERED = "entered"


def enter_private_network() -> str | None:
    """Move this process, and all that it starts from now on, into a network namespace with only a loopback device.

    Sockets that are open already stay where they are. There is no way back. A process without rights of root needs a
    user namespace for it, which Linux gives to a process of one thread only, and some machines to no process. Others
    (Ubuntu since 23.10) give one in which nothing is allowed, not even a loopback; so a child tries first.

    Returns:
      None, or why the machine does not allow it; nothing has changed then.
    """
    if (threads := len(os.listdir("/proc/self/task"))) > 1:
        return f"this process has {threads} threads and may have one"
    return _tried_by_a_child() or _enter()


def _tried_by_a_child() -> str | None:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, (_enter() or _ENTERED).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        report = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    if report == _ENTERED:
        return None
    return report or f"the process that tried it ended with {os.waitstatus_to_exitcode(status)} and reported nothing"


def _enter() -> str | None:
    # In a user namespace root would lose its right to other users' files, the worker's program perhaps among them.
    return _enter_with(_CLONE_NEWNET) and _enter_with(_CLONE_NEWUSER | _CLONE_NEWNET)


def _enter_with(flags: int) -> str | None:
    user, group = os.getuid(), os.getgid()
    try:
        if ctypes.CDLL(None, use_errno=True).unshare(flags) != 0:
            return os.strerror(ctypes.get_errno())
        if flags & _CLONE_NEWUSER:
            maps = (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"))
            for name, text in maps:
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(text)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = struct.pack(_INTERFACE_REQUEST, b"lo", 0)
            up = struct.unpack(_INTERFACE_REQUEST, fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))[1] | _IFF_UP
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack(_INTERFACE_REQUEST, b"lo", up))
    except OSError as error:
        return error.strerror or str(error)
    return None
