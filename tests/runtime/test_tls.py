"""Our own certificate and key, looked at before anybody is connected to."""

import shutil
import subprocess

import pytest

from tff_re.runtime import RemoteRuntime, RuntimeProblem
from tff_re.runtime.connection import open_channel
from tff_re.runtime.tls import Tls


@pytest.fixture
def copy(certificates, tmp_path):
    """A client's files, to be changed."""
    for path in (certificates["client"].cert, certificates["client"].key):
        shutil.copy(path, tmp_path)
    return Tls(tmp_path / "client.pem", tmp_path / "client.key", certificates["client"].ca)


def test_a_certificate_that_is_valid(certificates):
    for as_client in (False, True):
        assert certificates["client"].check(as_client=as_client).endswith(" GMT")


@pytest.mark.parametrize("mode", [0o620, 0o604])
def test_a_key_that_others_may_use(copy, mode):
    copy.key.chmod(mode)
    for use in (copy.check, copy.contents, lambda: open_channel("localhost:1", copy)):
        with pytest.raises(RuntimeProblem, match=rf"other users may use it \(mode {mode:04o}\); chmod 600 {copy.key}"):
            use()
    copy.key.chmod(0o400)
    assert copy.check()


def test_a_certificate_that_has_expired(certificates, tmp_path):
    for as_client in (False, True):
        with pytest.raises(RuntimeProblem, match=r"expired\.pem: has expired"):
            certificates["expired"].check(as_client=as_client)
    with pytest.raises(RuntimeProblem, match=r"expired\.pem: has expired"):  # before anything is connected
        RemoteRuntime(tmp_path / "log", addresses="localhost:1", tls=certificates["expired"]).__enter__()


def test_a_certificate_that_is_not_valid_yet(copy, certificates):
    config = copy.cert.with_name("ca.cnf")
    config.write_text(
        "[ca]\ndefault_ca = own\n[own]\nnew_certs_dir = .\ndatabase = index\nserial = serial\ndefault_md = sha256\n"
        "policy = any\n[any]\ncommonName = supplied\n"
    )
    config.with_name("index").touch()
    config.with_name("serial").write_text("01\n")
    authority = certificates["client"].ca
    request = certificates["client"].cert.with_suffix(".csr")
    signing = ["openssl", "ca", "-batch", "-config", config, "-in", request, "-out", copy.cert, "-notext"]
    by_whom = ["-cert", authority, "-keyfile", authority.with_suffix(".key")]
    when = ["-startdate", "20800101000000Z", "-enddate", "20900101000000Z"]
    subprocess.run([*signing, *by_whom, *when], cwd=config.parent, check=True, capture_output=True)
    for as_client in (False, True):
        with pytest.raises(RuntimeProblem, match=r"client\.pem: is not valid yet; check this machine's clock"):
            copy.check(as_client=as_client)


def _sign(certificates, cert, *, usage, days="30"):
    """A certificate of the client's key, for one end alone."""
    authority, extensions = certificates["client"].ca, cert.with_name("extensions")
    extensions.write_text(f"extendedKeyUsage={usage}\n")
    request = certificates["client"].cert.with_suffix(".csr")
    signing = ["-CA", authority, "-CAkey", authority.with_suffix(".key"), "-set_serial", "7", "-days", days]
    command = ["openssl", "x509", "-req", "-in", request, *signing, "-extfile", extensions, "-out", cert]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.parametrize(("usage", "as_client"), [("clientAuth", True), ("serverAuth", False)])
def test_a_certificate_for_one_end(usage, as_client, copy, certificates):
    _sign(certificates, copy.cert, usage=usage)
    assert copy.check(as_client=as_client).endswith(" GMT")
    with pytest.raises(RuntimeProblem, match=r"client\.pem: .*purpose"):
        copy.check(as_client=not as_client)
    _sign(certificates, copy.cert, usage=usage, days="-1")
    with pytest.raises(RuntimeProblem, match=r"client\.pem: has expired"):
        copy.check(as_client=as_client)


def test_files_that_do_not_go_together_or_cannot_be_read(copy, certificates):
    key, cert = copy.key.read_bytes(), copy.cert.read_text()
    shutil.copy(certificates["worker"].key, copy.key)
    with pytest.raises(RuntimeProblem, match=r"client\.key: is not the key of .*client\.pem"):
        copy.check()
    copy.key.write_bytes(key)
    secret = ["openssl", "ec", "-in", copy.key, "-out", copy.key, "-aes128", "-passout", "pass:secret"]
    subprocess.run(secret, check=True, capture_output=True)
    with pytest.raises(RuntimeProblem, match="OpenSSL cannot use them"):  # and asks nobody for a password
        copy.check()
    copy.key.write_bytes(key)
    copy.cert.write_text(cert[:200])
    with pytest.raises(RuntimeProblem, match="OpenSSL cannot use them"):
        copy.check()
