"""Serves a run's live page and metrics on 127.0.0.1 to those who have the token. It answers only GET."""

from __future__ import annotations

import hmac
import re
import secrets
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tff_re.errors import UserError
from tff_re.pages.live_page import live_page, problem_page
from tff_re.pages.prometheus import CONTENT_TYPE, exposition
from tff_re.runs.live import LiveFolder, LiveRun

HOST = "127.0.0.1"
LEAST_TOKEN = 20
"""Characters of a token that a user chose."""

_HTML = "text/html; charset=utf-8"
_PLAIN = "text/plain; charset=utf-8"
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",  # the token is in the address
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}

Answer = tuple[HTTPStatus, str, str]
"""(status, content type, text)."""


def new_token() -> str:
    """A random token of 256 bits."""
    return secrets.token_urlsafe(32)


def token_of(path: Path) -> str:
    """The token in a file that only this user may read.

    Raises:
      UserError: there is no such file, others may read it, or it is too short.
    """
    try:
        token = path.read_text("utf-8").strip()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UserError(f"--token-file {path}: cannot be read ({reason})") from None
    if mode & 0o077:
        raise UserError(f"--token-file {path}: other users may read it; run chmod 600 {path}")
    if not re.fullmatch(rf"[A-Za-z0-9._~=-]{{{LEAST_TOKEN},}}", token):
        raise UserError(f"--token-file {path}: the token needs at least {LEAST_TOKEN} letters, digits or . _ ~ = -")
    return token


class LiveServer:
    """A server of a run's folder, on a port of this machine that other machines do not reach."""

    def __init__(self, path: Path, token: str, port: int = 0):
        """Args:
        path: the run's folder.
        token: what a request has to have.
        port: 0: any free one.

        Raises:
          UserError: the folder holds no run, or the port is taken.
        """
        self._token, self._folder, self._lock = token, LiveFolder(path), threading.Lock()
        self._title = path.name
        try:
            self._server = _Server((HOST, port), _handler(self.answer))
        except OSError as error:
            raise UserError(f"--port {port}: cannot be used ({error.strerror}); give another port") from None

    @property
    def port(self) -> int:
        """The port."""
        return self._server.server_address[1]

    @property
    def link(self) -> str:
        """The page's address, with the token."""
        return f"http://{HOST}:{self.port}/?token={self._token}"

    def serve(self) -> None:
        """Answers until `stop` is called or Ctrl-C."""
        self._server.serve_forever(poll_interval=0.2)

    def stop(self) -> None:
        """Ends `serve`, from another thread."""
        self._server.shutdown()

    def close(self) -> None:
        """Closes the port."""
        self._server.server_close()

    def answer(self, target: str, host: str, authorization: str) -> Answer:
        """The answer to a GET request.

        Args:
          target: the path with the query.
          host, authorization: these headers, or empty.
        """
        try:
            parts = urlsplit(target)
        except ValueError:
            return HTTPStatus.BAD_REQUEST, _PLAIN, "400: this is not an address\n"
        query = parse_qs(parts.query)
        # Another name for this machine is a page elsewhere that was rebound to it.
        if host not in (f"{HOST}:{self.port}", f"localhost:{self.port}"):
            return HTTPStatus.FORBIDDEN, _PLAIN, "403: use the link that watch printed\n"
        scheme, _, bearer = authorization.partition(" ")
        tokens = [*query.get("token", ()), *([bearer.strip()] if scheme.lower() == "bearer" else ())]
        if not any(hmac.compare_digest(token.encode(), self._token.encode()) for token in tokens):
            return HTTPStatus.FORBIDDEN, _PLAIN, "403: the token is missing or wrong; use the link that watch printed\n"
        with self._lock:  # a run that was read shares its log with the next one
            if parts.path == "/":
                return self._page(part="part" in query)
            if parts.path == "/metrics":
                return self._metrics()
        return HTTPStatus.NOT_FOUND, _PLAIN, "404: there are / and /metrics\n"

    def _page(self, *, part: bool) -> Answer:
        run = self._read()
        if isinstance(run, str):
            return HTTPStatus.OK, _HTML, problem_page(self._title, run)
        return HTTPStatus.OK, _HTML, live_page(run, part=part)

    def _metrics(self) -> Answer:
        run = self._read()
        if isinstance(run, str):
            return HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN, f"503: {run}\n"
        return HTTPStatus.OK, CONTENT_TYPE, exposition(run)

    def _read(self) -> LiveRun | str:
        """The run at this moment, or a line that says why it cannot be read."""
        try:
            return self._folder.read()
        except UserError as error:
            return str(error)
        except OSError as error:
            return f"{error.filename}: {error.strerror}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of a browser that has gone."""


def _handler(answer: Callable[[str, str, str], Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10
        server_version, sys_version = "tff-re", ""

        def do_GET(self) -> None:
            host, authorization = (self.headers.get(name, "") for name in ("Host", "Authorization"))
            self._send(*answer(self.path, host, authorization))

        def _refuse(self) -> None:
            self.close_connection = True  # what else was sent is not read
            self._send(HTTPStatus.METHOD_NOT_ALLOWED, _PLAIN, "405: only GET\n", {"Allow": "GET"})

        do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse

        def _send(self, status: HTTPStatus, kind: str, text: str, more: dict[str, str] | None = None) -> None:
            body = text.encode("utf-8")
            self.send_response(status)
            headers = {"Content-Type": kind, "Content-Length": str(len(body)), **_HEADERS, **(more or {})}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Writes nothing: an address holds the token."""

    return Handler
