"""Addresses of workers, `HOST:PORT` separated by commas."""

from __future__ import annotations

import ipaddress
import re

from tff_re.runtime.errors import UnknownRuntime

_FORM = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


def parse_address(text: str) -> tuple[str, int]:
    """(host, port) of `HOST:PORT`, an IPv6 address in brackets; raises UnknownRuntime for another form."""
    found = _FORM.fullmatch(text)
    if not found or not 0 < int(found["port"]) < 65536:
        raise UnknownRuntime(
            f"{text!r} is not the address of a worker; it must be HOST:PORT, e.g. ward3:8000 or [fd00::3]:8000"
        )
    return found["host"], int(found["port"])


def parse_addresses(text: str) -> tuple[str, ...]:
    """The addresses of `HOST:PORT,HOST:PORT`; raises UnknownRuntime for none, a malformed one, or a duplicate."""
    if not text.strip():
        raise UnknownRuntime("the runtime 'remote' needs the workers' addresses: remote:HOST:PORT,HOST:PORT")
    addresses = []
    for part in text.split(","):
        host, port = parse_address(part.strip())
        address = f"{host.lower()}:{port}"
        if address in addresses:
            raise UnknownRuntime(f"duplicate worker {address}; name each worker once")
        addresses.append(address)
    return tuple(addresses)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and nothing else."""
    host = host.strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
