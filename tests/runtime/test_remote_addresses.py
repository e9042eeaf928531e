"""What may be written behind `--runtime remote:`, and what TLS needs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_re.runtime import RuntimeProblem, UnknownRuntime, check_runtime_name, open_runtime, tls
from tff_re.runtime.addresses import is_loopback, parse_address, parse_addresses

HOSTS = st.from_regex(r"[a-z][a-z0-9-]{0,8}(\.[a-z]{2,3})?", fullmatch=True) | st.ip_addresses(v=4).map(str)
ADDRESSES = st.tuples(HOSTS | st.ip_addresses(v=6).map(lambda a: f"[{a}]"), st.integers(1, 65535))


@settings(max_examples=10)
@given(st.lists(ADDRESSES, min_size=1, max_size=5, unique=True))
def test_what_is_written_is_read(addresses):
    written = [f"{host}:{port}" for host, port in addresses]
    assert parse_addresses(", ".join(written)) == tuple(written)
    assert [parse_address(text) for text in written] == addresses


@given(st.text(alphabet="ab.:,[]-0123456789 \n药", max_size=20))
def test_anything_else_is_refused_in_one_line(text):
    try:
        assert parse_addresses(text)
    except UnknownRuntime as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("remote:", "needs the workers' addresses"),
        ("remote:ward3", "'ward3' is not the address of a worker; it must be HOST:PORT"),
        ("remote:ward3:65536", "'ward3:65536' is not the address"),
        ("remote:ward3:8000,", "'' is not the address"),
        ("remote:http://ward3:8000", "is not the address"),
        ("remote:ward3:8000,WARD3:8000", "duplicate worker ward3:8000"),
        ("remotes:ward3:8000", "no runtime named 'remotes:ward3:8000'"),
        ("local:ward3:8000", "no runtime named 'local:ward3:8000'"),
    ],
)
def test_malformed_names(name, part):
    with pytest.raises(UnknownRuntime, match=part.replace("[", r"\[")):
        check_runtime_name(name)
    with pytest.raises(UnknownRuntime):
        open_runtime(name, log_path="never-written")


@pytest.mark.parametrize("host", ["localhost", "127.8.0.1", "[::1]"])
def test_loopback(host):
    assert is_loopback(host)
    assert not is_loopback(host.replace("1", "2").replace("localhost", "localhost.example.org"))


def test_tls_needs_all_three_files(tmp_path):
    assert tls.from_environment({}) is None
    everything = {variable: str(tmp_path / name) for name, variable in tls.VARIABLES.items()}
    assert tls.from_environment(everything).cert == tmp_path / "cert"
    for name, variable in tls.VARIABLES.items():
        with pytest.raises(RuntimeProblem, match=rf"missing: --tls-{name} \({variable}\)$"):
            tls.from_environment({**everything, variable: ""})


def test_tls_files_that_are_none(tmp_path):
    files = tls.Tls(*(tmp_path / name for name in ("cert", "key", "ca")))
    with pytest.raises(RuntimeProblem, match=r"cert.*No such file"):
        files.contents()
    files.cert.write_text("-----BEGIN CERTIFICATE-----\n")
    files.key.write_text("no key")
    with pytest.raises(RuntimeProblem, match=r"key.*is not a PEM file"):
        files.contents()
