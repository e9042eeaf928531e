"""Mutual TLS between us and workers on other machines: three files, named by the environment or given.

Imports neither gRPC nor anything that starts threads: a worker's process must have one thread alone.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tff_re.runtime.errors import RuntimeProblem

VARIABLES = {"cert": "TFF_RE_TLS_CERT", "key": "TFF_RE_TLS_KEY", "ca": "TFF_RE_TLS_CA"}
# OpenSSL's codes: issuer not found, self-signed, self-signed in the chain, issuer not found locally, unverifiable leaf.
_UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21)
_UNTIMELY = {10: "has expired; get a new one signed", 9: "is not valid yet; check this machine's clock"}
# TLS alerts with which a worker's proxy refuses a certificate, by the end of OpenSSL's name.
_ALERTS = {
    "CERTIFICATE_EXPIRED": "it has expired",
    "UNKNOWN_CA": "it is not signed by the worker's CA certificate (--tls-ca)",
    "CERTIFICATE_REVOKED": "it was revoked",
    "CERTIFICATE_REQUIRED": "none was sent",
    "BAD_CERTIFICATE": "it is damaged, or not valid yet",
    "UNSUPPORTED_CERTIFICATE": "it is not meant for clients",
    "CERTIFICATE_UNKNOWN": "no reason given",
}


@dataclass(frozen=True)
class Tls:
    """Our certificate, its key, and the CA certificate of the peers; PEM files."""

    cert: Path
    key: Path
    ca: Path

    def contents(self) -> dict[str, bytes]:
        """What is in the files; raises RuntimeProblem if one is no readable PEM file or others may use the key."""
        found = {}
        for name in VARIABLES:
            path = getattr(self, name)
            try:
                with open(path, "rb") as file:
                    mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                    found[name] = file.read()
            except OSError as error:
                raise RuntimeProblem(f"TLS, {name}: {path}: {error.strerror}") from None
            if b"-----BEGIN " not in found[name]:
                raise RuntimeProblem(f"TLS, {name}: {path}: is not a PEM file")
            if name == "key" and mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise RuntimeProblem(f"TLS, key: {path}: other users may use it (mode {mode:04o}); chmod 600 {path}")
        return found

    def check(self, *, as_client: bool = False) -> str:
        """Checks our own files; returns the end of the certificate's validity, as OpenSSL writes it.

        The standard library reads no certificate, but verifies one: ours does a handshake in memory, at the end at
        which it is used, since its extended key usage may allow no other.

        Raises:
          RuntimeProblem: see `contents`; or certificate and key do not go together, or the certificate is not valid
            now, or not meant for this end.
        """
        import ssl

        self.contents()
        server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        verifier = server if as_client else client
        client.check_hostname = False
        client.verify_mode = server.verify_mode = ssl.CERT_NONE
        verifier.verify_mode = ssl.CERT_REQUIRED
        verifier.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trusted by itself, without its authority
        try:
            for end in (client, server) if as_client else (server,):  # no server without a certificate
                end.load_cert_chain(self.cert, self.key, password="")
            verifier.load_verify_locations(self.cert)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise RuntimeProblem(f"TLS, key: {self.key}: is not the key of {self.cert}") from None
            raise RuntimeProblem(
                f"TLS: {self.cert} and {self.key}: OpenSSL cannot use them ({error.reason or 'a key with a password?'})"
            ) from None
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)
        try:
            for end in ends * 2:
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
            return ends[as_client].getpeercert()["notAfter"]
        except ssl.SSLCertVerificationError as error:
            what = _UNTIMELY.get(error.verify_code, error.verify_message)
            raise RuntimeProblem(f"TLS, cert: {self.cert}: {what}") from None
        except ssl.SSLError as error:
            raise RuntimeProblem(f"TLS: {self.cert}: OpenSSL cannot use it ({error.reason})") from None


def chosen(**given: Path | None) -> Tls | None:
    """Tls of `cert`, `key` and `ca`, None where none is given; raises RuntimeProblem where only some are."""
    missing = [name for name in VARIABLES if not given.get(name)]
    if len(missing) == len(VARIABLES):
        return None
    if missing:
        named = ", ".join(f"--tls-{name} ({VARIABLES[name]})" for name in missing)
        raise RuntimeProblem(f"TLS needs a certificate, its key and the CA certificate of the peers; missing: {named}")
    return Tls(**{name: Path(given[name]) for name in VARIABLES})


def from_environment(environment: Mapping[str, str] = os.environ) -> Tls | None:
    """`chosen` of the variables TFF_RE_TLS_CERT, TFF_RE_TLS_KEY and TFF_RE_TLS_CA."""
    return chosen(**{name: environment.get(variable) or None for name, variable in VARIABLES.items()})


def why_refused(host: str, port: int, tls: Tls, seconds: float) -> str | None:
    """Why we refuse the worker's certificate, or the worker ours, which gRPC does not say; None if neither does.

    With TLS 1.3 a worker checks our certificate after the handshake, so that its alert comes in place of an answer.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(tls.ca)
        context.load_cert_chain(tls.cert, tls.key, password="")
        context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection((host.strip("[]"), port), timeout=seconds) as stream,
            context.wrap_socket(stream, server_hostname=host.strip("[]")) as secured,
        ):
            secured.recv(1)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in _UNKNOWN_AUTHORITY:
            return f"the worker's certificate is not signed by the CA certificate {tls.ca}"
        return f"the worker's certificate is refused: {error.verify_message}"
    except ssl.SSLError as error:
        reason = error.reason or ""
        if reason == "WRONG_VERSION_NUMBER":
            return "the worker does not use TLS"
        if words := _ALERTS.get(reason.partition("ALERT_")[2]):
            return f"the worker refuses our certificate {tls.cert}: {words}"
    except OSError:
        pass
    return None
