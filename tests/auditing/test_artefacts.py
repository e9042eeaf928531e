"""Raw text, rare words and ids in files: planted ones are found, and nothing is where nothing was planted."""

from __future__ import annotations

import gzip
import json
import zipfile

import numpy as np

from tff_re.auditing.artefacts import Needles, count_in, search, texts_in, windows_of

CHINESE = "宝宝昨晚高烧不退还咳嗽三天"
ENGLISH = "The patient was given forty milligrams of furosemide twice."
NEEDLES = Needles(
    windows=windows_of([CHINESE, ENGLISH, "发烧五天"]),
    words=frozenset({"卡马西平", "furosemide"}),
    ids={"id of an example": frozenset({"2026-0001/7"}), "id of a document": frozenset({"2026-0001"})},
)


def kinds_in(folder):
    held, number, unread = search(folder, NEEDLES)
    assert not unread
    return {(item.file, item.kind): (item.occurrences, item.different) for item in held}, number


def test_pieces_of_texts():
    pieces = windows_of([CHINESE, ENGLISH, "发烧五天", "好", "short"])
    assert {length: len(windows) for length, windows in pieces.items()} == {8: 6, 30: len(ENGLISH) - 29, 4: 1}
    assert CHINESE[3:11] in pieces[8] and "发烧五天" in pieces[4]


def test_planted_text_is_found_wherever_it_lies(tmp_path):
    (tmp_path / "run.log").write_text(f"INFO trained on {CHINESE[2:12]}\nnothing\n{ENGLISH[5:45]}", "utf-8")
    (tmp_path / "a.json").write_text(json.dumps({"text": CHINESE}), "utf-8")  # escaped
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(f"1,{CHINESE}\n".encode()))
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        archive.writestr("metadata", json.dumps({"note": CHINESE}, ensure_ascii=False))
    weights = np.random.default_rng(0).normal(size=20_000).astype(np.float32).tobytes()
    (tmp_path / "weights").write_bytes(weights[:40_000] + ENGLISH.encode() + weights[40_000:])
    counts_of, number = kinds_in(tmp_path)
    assert number == 5
    texts = {file: counts for (file, kind), counts in counts_of.items() if kind == "raw text"}
    assert set(texts) == {"run.log", "a.json", "b.csv.gz", "m.keras", "weights"}
    assert texts["run.log"] == (2, 3 + 11)  # pieces that overlap are one occurrence


def test_ids_and_rare_words(tmp_path):
    (tmp_path / "partition.json").write_text('{"a": ["2026-0001/7", "2026-0001"]}', "utf-8")
    (tmp_path / "words.txt").write_text("服用卡马西平片, furosemide. furosemides\n", "utf-8")
    counts_of, _ = kinds_in(tmp_path)
    assert counts_of == {
        ("partition.json", "id of an example"): (1, 1),
        ("partition.json", "id of a document"): (1, 1),
        ("words.txt", "rare word"): (2, 2),
    }


def test_nothing_is_found_where_nothing_is(tmp_path):
    (tmp_path / "run.log").write_text("INFO round 1 of 3\n宝宝昨晚\nThe patient was given a form.", "utf-8")
    (tmp_path / "weights").write_bytes(np.random.default_rng(1).normal(size=100_000).astype(np.float32).tobytes())
    assert kinds_in(tmp_path) == ({}, 2)
    assert count_in("", NEEDLES) == ({}, {})


def test_a_folder_that_is_left_out_and_damaged_files(tmp_path):
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "audit.md").write_text(CHINESE, "utf-8")
    (tmp_path / "broken.gz").write_bytes(b"\x1f\x8b" + CHINESE.encode())
    held, number, unread = search(tmp_path, NEEDLES, leave_out=tmp_path / "audit")
    assert number == 1 and not unread
    assert {(item.file, item.kind) for item in held} == {("broken.gz", "raw text")}
    assert list(texts_in("头晕".encode())) == ["头晕"]


def test_a_zip_file_with_damaged_contents_is_listed(tmp_path):
    """Its directory is whole, what was deflated is not."""
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.json", "a" * 1000 + CHINESE)
    data = bytearray(path.read_bytes())
    start = 30 + len("a.json")  # behind the local header
    data[start : start + 8] = b"\xff" * 8
    path.write_bytes(data)
    assert search(tmp_path, NEEDLES) == ([], 1, ["model.keras"])
