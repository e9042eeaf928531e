import gzip
import hashlib
import json

import pytest
from datasets_for_tests import SECRET, message
from hypothesis import given
from hypothesis import strategies as st

from datasets.errors import DataError
from datasets.files import (
    parse_json,
    read_byte_lines,
    read_bytes,
    read_json_lines,
    sha256_of,
    write_atomically,
)


def refused(data: bytes) -> str:
    with pytest.raises(DataError) as caught:
        parse_json(data, "f.json")
    return message(caught.value)


def test_broken_json_is_placed_in_bytes_not_characters():
    data = ('{"a": "' + SECRET + '",\n "b": }').encode()
    at = data.rindex(b"}")
    assert refused(data) == (
        f"f.json: line 2: byte {at}: is not JSON (expecting value); repair the file or copy it again"
    )


@pytest.mark.parametrize(
    "data, reason",
    [
        (b'{"a": NaN}', "is not JSON (NaN or Infinity)"),
        (b'{"a": 1, "a": 2}', "an object has the same key twice"),
        (b"[" * 100_000, "is nested too deeply"),
        (b'"\\ud800"', "holds half of a surrogate pair"),
        (b"9" * 5000, "holds a number that is too long"),
        (b"", "is not JSON (expecting value)"),
        (b"\xef\xbb\xbf[}", "line 1: byte 4: is not JSON"),
        (SECRET.encode() + b"\n\xff", "f.json: line 2: byte 25: is not UTF-8; convert the file to UTF-8"),
    ],
)
def test_what_python_would_let_pass_is_refused(data, reason):
    assert reason in refused(data)


def test_truncated_and_damaged_gzip(tmp_path):
    path = tmp_path / "a.json.gz"
    whole = gzip.compress(json.dumps([SECRET] * 50).encode())
    path.write_bytes(whole[:-9])
    with pytest.raises(DataError) as caught:
        read_bytes(path)
    assert message(caught.value) == f"{path}: the gzip file is truncated; copy or download it again"
    path.write_bytes(whole[:20] + b"\0\0\0\0" + whole[24:])
    with pytest.raises(DataError, match=r"the gzip file is (damaged|truncated)"):
        read_bytes(path)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DataError) as caught:
        read_bytes(tmp_path / "none")
    assert message(caught.value) == f"{tmp_path / 'none'}: no such file; check the path"
    for read in (read_bytes, sha256_of, lambda path: next(read_byte_lines(path))):
        with pytest.raises(DataError, match="cannot be read"):
            read(tmp_path)


def test_json_lines_place_the_error_in_the_file(tmp_path):
    path = tmp_path / "a.jsonl"
    first = json.dumps({"t": SECRET}, ensure_ascii=False).encode()
    path.write_bytes(first + b"\n[1 2]\n")
    lines = read_json_lines(path)
    assert next(lines) == (1, {"t": SECRET})
    with pytest.raises(DataError) as caught:
        next(lines)
    assert f"line 2: byte {len(first) + 1 + 3}: is not JSON" in message(caught.value)
    path.write_bytes(b"[1]\n\n[2]\n")
    with pytest.raises(DataError, match="line 2: byte 4: is empty"):
        list(read_json_lines(path))
    path.write_bytes('["a\u2028b"]\n'.encode())
    assert list(read_json_lines(path)) == [(1, ["a\u2028b"])]


def test_lines_are_read_one_after_the_other(tmp_path):
    path = tmp_path / "a.jsonl"
    data = b"[1]\r\n[2]\n  "
    for content in (data, gzip.compress(data)):
        path.write_bytes(content)
        assert list(read_byte_lines(path)) == [b"[1]\r\n", b"[2]\n", b"  "]
        assert list(read_json_lines(path)) == [(1, [1]), (2, [2])]
    packed = gzip.compress(b"[1]\n" * 200_000)
    path.write_bytes(packed[: len(packed) // 2])
    lines = read_json_lines(path)
    assert next(lines) == (1, [1]), "what stands before the damage is read"
    with pytest.raises(DataError) as caught:
        list(lines)
    assert message(caught.value) == f"{path}: the gzip file is truncated; copy or download it again"
    for empty in (b"", b" "):
        path.write_bytes(empty)
        assert list(read_json_lines(path)) == []


def test_writing_replaces_whole_files_and_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "a"
    write_atomically(path, b"old")

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(DataError, match="cannot be written"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_digest_is_of_the_bytes_on_the_disk(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    assert sha256_of(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    packed = gzip.compress(bytes(3 << 20))
    path.write_bytes(packed)
    assert sha256_of(path) == hashlib.sha256(packed).hexdigest()


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text('a"\\é😀\n'), st.lists))
def test_valid_json_is_read_as_it_is(value):
    assert parse_json(json.dumps(value).encode()) == value
