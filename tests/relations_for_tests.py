"""Mention pairs that are hard to tokenize, and files of relations in the neutral format."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

from datasets.relations.records import RelationMention

HARD = (
    *("[SEP]", "[CLS]", "[UNK]", "[PAD]", "[MASK]", "<e1>", "</e1>", "<e2>", "</e2>", "##ing", "[unused1]"),
    *("\x00", "\x07", "\u200d", "\u200b", "\ufffd", "\ufeff", "\xad", "\x85", "\x1c"),
    *("é", "e\u0301", "\u0130", "ΑΣ", "ς", "ß", "ﬁ", "Ǆ", "Å", "\u212b", "ñ" * 60, "각", "한국어", "ไทย", "עִבְ", "日本"),
    *(" ", "\u3000", "\t", "\n", "\r", "\xa0", "\u2028"),
    *("...", "’", "β-catenin", "IL-2Rα", "$3.14^2", "x_1", "p<0.05", "a" * 99, "a" * 100, "a" * 101, "ab" * 60),
    *("\U0001f468\u200d\U0001f469", "\U00020bb7", "\U000e0001", "\ue000", "\U0010ffff"),
)


def hard_mentions(count: int, seed: int = 0) -> list[RelationMention]:
    """`count` mention pairs in texts of 1 to about 200 characters; the types are hard as well."""
    draw = random.Random(seed)
    return [_mention(draw, number) for number in range(count)]


def _mention(draw: random.Random, number: int) -> RelationMention:
    text = "".join(_word(draw) + draw.choice(["", " "]) for _ in range(draw.choice([1, 2, 4, 8, 30]))) or "a"
    head = _span(draw, len(text))
    tail = head if draw.random() < 0.1 else _span(draw, len(text))
    types = [draw.choice(["drug", "gene or protein", "[SEP]", "\u200d", "é", "<e2>"]) for _ in "ab"]
    return RelationMention(f"m{number}", "d", text, head, tail, *types, "r", number % 3)


def _span(draw: random.Random, length: int) -> tuple[int, int]:
    start = draw.randrange(length)
    return start, min(length, start + draw.choice([1, 2, 6, 6, length]))


def _word(draw: random.Random) -> str:
    kind = draw.random()
    if kind < 0.5:
        return "".join(draw.choice("abcdeghirnuXYZ -,.()01") for _ in range(draw.randint(1, 8)))
    if kind < 0.85:
        return draw.choice(HARD)
    codes = (draw.randrange(1, 0x110000) for _ in range(3))
    return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)


def record_bytes(records, ending) -> bytes:
    """Records of `datasets.relations.neutral` in the form of the ending, not compressed."""
    if ".jsonl" in ending:
        return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
    rows = []
    for record in records:
        row = dict(record)
        for side in ("head", "tail"):
            row[f"{side}_start"], row[f"{side}_end"] = row.pop(side)
        rows.append({key: "" if value is None else str(value) for key, value in row.items()})
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, *([row.get(name, "") for name in names] for row in rows)]
    return "".join("\t".join(line) + "\n" for line in lines).encode()


def write_records(folder, records, ending=".jsonl", name="own") -> Path:
    """The file of these records, compressed where its ending says so."""
    path, data = Path(folder) / f"{name}{ending}", record_bytes(records, ending)
    path.write_bytes(gzip.compress(data) if ending.endswith(".gz") else data)
    return path
