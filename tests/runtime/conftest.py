"""Looks at the process table: whatever a test starts has to be gone when its module ends."""

import os
import shutil
import subprocess
import time
import uuid

import psutil
import pytest

from tff_re.runtime.local import supervised
from tff_re.runtime.local.worker import reserve_port
from tff_re.runtime.tls import Tls

_MARK = "TFF_RE_RUNTIME_TEST"
_OURS = ("worker_binary", "supervisor.py")


class Processes:
    """Workers and supervisors started by one test module, in this process or in others, orphans too."""

    def __init__(self, mark):
        self._mark = mark

    def running(self):
        """Their process ids; zombies do not count, since not every container has an init that reaps."""
        found = []
        for process in psutil.process_iter():
            try:
                if (
                    any(name in argument for argument in process.cmdline() for name in _OURS)
                    and process.environ().get(_MARK) == self._mark
                ):
                    found.append(process.pid)
            except psutil.Error:
                continue
        return found

    @staticmethod
    def alive(pid):
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def wait_until_gone(self, *pids, seconds=5.0):
        """Whether all these processes end within so many seconds."""
        return wait_until(lambda: not any(map(self.alive, pids)), seconds)


def free_port():
    with reserve_port() as keeper:
        return keeper.getsockname()[1]


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def supervisor_without_namespaces(folder):
    """Path of a copy of `supervisor.py` to whom the machine refuses a network of its own."""
    for name in ("supervisor.py", "private_network.py"):
        shutil.copy(supervised._SUPERVISOR.with_name(name), folder)
    with open(folder / "private_network.py", "a") as module:
        module.write("\n\ndef _enter():\n    return 'not on this machine'\n")
    return folder / "supervisor.py"


@pytest.fixture(scope="module", autouse=True)
def processes():
    """The processes of this module; fails at its end if one is left. Fixtures that start processes ask for this one."""
    mark = uuid.uuid4().hex
    os.environ[_MARK] = mark  # inherited by everything that is started
    table = Processes(mark)
    try:
        yield table
    finally:
        del os.environ[_MARK]
    gone = wait_until(lambda: not table.running(), 5)
    left = table.running()
    for pid in left:
        psutil.Process(pid).kill()
    assert gone, f"processes left behind: {left}"


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """Tls of a worker, of a client, of one whose certificate has expired, and of a stranger whom another authority
    signed."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed, which makes the certificates of this test")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    (folder / "extensions").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    made = {}
    for authority, members in (("ours", ("worker", "client", "expired")), ("theirs", ("stranger",))):
        openssl(
            "req", "-x509", *key, "-keyout", f"{authority}.key", "-out", f"{authority}.pem", "-subj", f"/CN={authority}"
        )
        for name in members:
            openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
            signing = ("-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial")
            days = "-1" if name == "expired" else "30"
            signing += ("-days", days, "-extfile", "extensions")
            openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.pem")
            made[name] = Tls(folder / f"{name}.pem", folder / f"{name}.key", folder / "ours.pem")
    return made
