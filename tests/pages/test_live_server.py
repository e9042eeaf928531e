"""`watch` serves a run's page on 127.0.0.1 to those who have the token, and leaves nothing behind."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest

from scripts.browser import BROWSER, browse
from tests.pages.live_runs_for_tests import SECRET, write_rows, write_run
from tests.pages.test_page import Read
from tests.upper_floors import command, refusal
from tff_re.errors import UserError
from tff_re.pages import live_server
from tff_re.pages.live_server import LiveServer, new_token, token_of

TOKEN = "a-token-of-thirty-two-characters"
LOCAL = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


@pytest.fixture
def server(run):
    server = LiveServer(run, TOKEN)
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield server
    server.stop()
    thread.join(30)
    server.close()
    assert not thread.is_alive()


def asked(server, target, method="GET", body=None, **headers):
    """(status, headers, text) of a request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request(method, target, body=body, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode("utf-8")
    connection.close()
    return answer.status, answer.headers, text


def test_the_page_and_the_metrics_are_for_those_who_have_the_token(server):
    status, headers, text = asked(server, f"/?token={TOKEN}")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8" and "live, seed 5" in text
    assert headers["Cache-Control"] == "no-store" and headers["Referrer-Policy"] == "no-referrer"
    assert headers["Server"].strip() == "tff-re"
    for ways in ({"target": f"/metrics?token={TOKEN}"}, {"target": "/metrics", "Authorization": f"Bearer {TOKEN}"}):
        status, headers, text = asked(server, **ways)
        assert status == 200 and headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert "\ntff_re_round 3\n" in text
    assert asked(server, f"/metrics?token={TOKEN}", Host=f"localhost:{server.port}")[0] == 200


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("/", {}),
        ("/metrics", {}),
        ("/?token=", {}),
        (f"/?token={TOKEN}x", {}),
        (f"/?token={TOKEN[:-1]}", {}),
        ("/?token=%E5%AE%9D", {}),
        ("/metrics", {"Authorization": TOKEN}),
        ("/metrics", {"Authorization": f"Basic {TOKEN}"}),
        ("/recipe.toml", {}),
        (f"/?token={TOKEN}", {"Host": "attacker.example"}),  # a name that was rebound to this machine
        (f"/?token={TOKEN}", {"Host": "127.0.0.1"}),
    ],
)
def test_without_it_nothing_is_told(server, target, headers):
    status, _, text = asked(server, target, **headers)
    assert status == 403 and re.fullmatch(r"403: [\w ,;]+\n", text)


@pytest.mark.parametrize("target", ["/recipe.toml", "/../run/recipe.toml", "//x", "/metrics/", "/%2e%2e/", "/run.log"])
def test_there_are_two_pages_and_no_files(server, target):
    status, _, text = asked(server, f"{target}?token={TOKEN}")
    assert (status, text) == (404, "404: there are / and /metrics\n")


def test_an_address_that_is_none(server):
    assert server.answer(f"http://[?token={TOKEN}", f"127.0.0.1:{server.port}", "")[0] == 400


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_only_get_is_answered(server, method):
    body = b"x" * 100 if method in ("POST", "PUT", "PATCH") else None
    status, headers, text = asked(server, f"/?token={TOKEN}", method, body)
    assert (status, headers["Allow"]) == (405, "GET") and text == ("" if method == "HEAD" else "405: only GET\n")


def test_it_is_bound_to_this_machine_only(server):
    assert server._server.socket.getsockname() == ("127.0.0.1", server.port)
    assert server.link == f"http://127.0.0.1:{server.port}/?token={TOKEN}"


def test_a_file_that_is_damaged_meanwhile_is_named_until_it_is_whole_again(server, run):
    whole = (run / "metrics.csv").read_bytes()
    (run / "metrics.csv").write_text("round\r\n7\r\n", "utf-8")
    status, _, text = asked(server, f"/?token={TOKEN}")
    assert status == 200 and "metrics.csv: is damaged" in Read(text).text
    status, _, text = asked(server, f"/metrics?token={TOKEN}")
    assert status == 503 and text.startswith("503: ") and "metrics.csv: is damaged" in text
    (run / "metrics.csv").write_bytes(whole)
    assert asked(server, f"/metrics?token={TOKEN}")[0] == 200


def test_nothing_of_the_folder_changes(server, run):
    def files():
        return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in run.rglob("*")}

    before = files()
    for target in ("/", "/metrics"):
        assert asked(server, f"{target}?token={TOKEN}")[0] == 200
    assert files() == before


def test_many_readers_at_once(server, run):
    statuses, log = [], run / "run.log"

    def read():
        for _ in range(10):
            with log.open("a") as file:
                file.write("2026-03-01 10:00:07,000 INFO round 3 of 4: 2.00 s\n")
            statuses.append(asked(server, f"/?token={TOKEN}&part=1")[0])
            statuses.append(asked(server, f"/metrics?token={TOKEN}")[0])

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 80
    text = asked(server, f"/metrics?token={TOKEN}")[2]
    assert 'tff_re_log_events_total{event="round.finished",level="INFO"} 42\n' in text


def test_tokens(tmp_path):
    assert len({new_token() for _ in range(10)}) == 10 and len(new_token()) == 43
    path = tmp_path / "token"
    for content, mode, said in (
        (None, 0, "cannot be read"),
        (TOKEN, 0o644, "other users may read it; run chmod 600"),
        ("short", 0o600, "needs at least 20 letters, digits or "),
        ("two words of a token and more", 0o600, "needs at least 20"),
        ("宝" * 30, 0o600, "needs at least 20"),
    ):
        if content is not None:
            path.write_text(content, "utf-8")
            path.chmod(mode)
        with pytest.raises(UserError, match=said):
            token_of(path)
    path.write_text(f"{TOKEN}\n", "utf-8")
    assert token_of(path) == TOKEN


# The command


def test_mistakes_end_with_one_line(capsys, tmp_path, run):
    refusal(command(capsys, "watch", tmp_path / "no"), f"{tmp_path / 'no'}: no such folder")
    refusal(command(capsys, "watch", tmp_path), f"{tmp_path}: holds no run (recipe.toml is missing)")
    refusal(command(capsys, "watch", run / "run.log"), "is a file; give the folder of a run")
    refusal(command(capsys, "watch", run, "--port", "0"), "--port")
    refusal(command(capsys, "watch", run, "--token-file", tmp_path / "none"), "--token-file", "cannot be read")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refusal(command(capsys, "watch", run, "--port", str(port)), f"--port {port}: cannot be used", "another port")


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_and_nothing_is_left(run, tmp_path, end):
    before = sorted(path.name for path in run.iterdir())
    line = [sys.executable, "-m", "tff_re.run", "watch", str(run)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(line, **pipes) as process:
        try:
            link, hint = process.stdout.readline().strip(), process.stdout.readline()
            port, token = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{43})", link).groups()
            connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
            connection.request("GET", f"/metrics?token={token}")
            assert connection.getresponse().status == 200
            process.send_signal(end)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == (0 if end == signal.SIGINT else 128 + end) and err == ""
    assert hint.startswith("Ctrl-C ends it") and token not in hint and out == ""
    assert sorted(path.name for path in run.iterdir()) == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port)), timeout=10)


# In a browser


PROBE = """<script>
setTimeout(() => {
  const sources = Bokeh.documents.map((chart) => chart.get_model_by_name("curves: f1: 0"));
  document.body.dataset.probe = JSON.stringify(sources.filter(Boolean).map((source) => source.data.mean));
}, 8000);
</script></body>"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here to show a page in")
def test_a_browser_follows_the_run_without_loading_the_page_again(server, run, tmp_path, monkeypatch):
    original, pages = live_server.live_page, []

    def page(live, *, part=False):
        pages.append(part)
        if len(pages) == 2:  # the first refreshing
            write_rows(run, 4)
            live = server._folder.read()
        return original(live, part=part).replace("</body>", PROBE)

    monkeypatch.setattr(live_server, "live_page", page)
    browser = browse(server.link, tmp_path, LOCAL, "--dump-dom", timeout=600)
    drawn = Read(browser.stdout)
    assert pages[0] is False and all(pages[1:]) and len(pages) >= 2
    (subtitle, connection) = [a for _, a in drawn.elements if a.get("class") == "subtitle"]
    assert "not running, round 4 of 4, ε 3.50 spent" in drawn.text and "hidden" in connection and not subtitle.get("id")
    assert "4 of 4 – live, seed 5" in drawn.text  # the window's title
    assert sum(attributes.get("class") == "bk-Figure" for _, attributes in drawn.elements) == 4
    assert drawn.attributes("data-probe") == ["[[0.25,0.75,0.8]]"], "the chart has the new round"
    assert not re.findall(r"CONSOLE.*(?:rror|Refused).*", browser.stderr) and SECRET not in browser.stdout


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here to show a page in")
def test_a_browser_says_when_watch_has_ended(server, tmp_path, monkeypatch):
    answers = []

    def answer(target, host, authorization):
        answers.append(target)
        return server.answer(target, host if len(answers) == 1 else "elsewhere", authorization)

    monkeypatch.setattr(server._server, "RequestHandlerClass", live_server._handler(answer))
    browser = browse(server.link, tmp_path, LOCAL, "--dump-dom", timeout=600)
    (connection,) = [a for _, a in Read(browser.stdout).elements if a.get("id") == "connection"]
    assert "hidden" not in connection and len(answers) >= 2


FRAME = """<body><iframe src="LINK" width="390" height="800"></iframe><script>
setTimeout(() => {
  const phone = frames[0], page = phone.document;
  const drawn = page.querySelectorAll(".bk-Figure").length;
  document.body.dataset.probe = JSON.stringify([phone.innerWidth, page.scrollingElement.scrollWidth, drawn]);
}, 7000);
</script></body>"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here to show a page in")
def test_on_a_phone_the_page_is_as_wide_as_the_screen(server, tmp_path, monkeypatch):
    """In a frame of 390 pixels, as Chromium's own window has at least 500."""

    def answer(target, host, authorization):
        if target == "/frame":
            return 200, "text/html", FRAME.replace("LINK", server.link)
        return server.answer(target, host, authorization)

    monkeypatch.delitem(live_server._HEADERS, "X-Frame-Options")
    monkeypatch.setattr(server._server, "RequestHandlerClass", live_server._handler(answer))
    address = f"http://127.0.0.1:{server.port}/frame"
    browser = browse(address, tmp_path, LOCAL, "--dump-dom", "--hide-scrollbars", timeout=600)
    assert Read(browser.stdout).attributes("data-probe") == ["[390,390,4]"]
