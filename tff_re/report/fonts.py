"""A font for class names: matplotlib's own has no Chinese, and shows a box for each character that it lacks."""

from __future__ import annotations

import functools

_OWN = "DejaVu Sans"
_PREFERRED = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Microsoft YaHei",
    "PingFang SC",
    "SimHei",
    "Droid Sans Fallback",
)
# They have a glyph for every code point: a box.
_BOXES = ("last resort", "lastresort", "notdef")


def families_for(texts) -> list[str] | None:
    """Font families that together show every character of the texts, or None if no installed font does."""
    characters = frozenset(ord(c) for text in texts for c in text)
    if any(not chr(c).isprintable() for c in characters):
        return None
    return _families(characters)


@functools.lru_cache(maxsize=8)
def _families(characters: frozenset[int]) -> list[str] | None:
    from matplotlib.font_manager import fontManager

    files = {}
    for entry in fontManager.ttflist:
        if entry.style != "normal" or any(mark in entry.name.lower() for mark in _BOXES):
            continue
        # The regular weight stands for its family: it is the one that gets drawn.
        if entry.name not in files or entry.weight in (400, "normal", "regular"):
            files[entry.name] = entry.fname
    missing = characters - _covered(files[_OWN]) if _OWN in files else characters
    if not missing:
        return [_OWN]
    for name in [*_PREFERRED, *sorted(files)]:
        if name in files and missing <= _covered(files[name]):
            return [_OWN, name]
    return None


@functools.lru_cache(maxsize=512)
def _covered(file: str) -> frozenset[int]:
    from matplotlib.font_manager import get_font

    try:
        return frozenset(get_font(file).get_charmap())
    except (OSError, RuntimeError):  # a font file that is gone or broken
        return frozenset()
