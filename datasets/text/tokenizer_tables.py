"""A BERT tokenizer's treatment of each character, as arrays for a graph without Python.

A table is read off the tokenizer itself, code point by code point, so that it holds whatever version of Unicode the
tokenizer's library was built with.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field

import numpy as np
from tokenizers import normalizers, pre_tokenizers

from datasets.errors import DataError
from datasets.text.piece_encoding import PieceEncoding
from datasets.text.relation_encoding import RelationEncoding

CODE_POINTS = 0x110000
PAGE = 256
NOTHING, LETTER, ALONE, BLANK = range(4)
"""What a character is: none (dropped), part of a word, a word by itself (punctuation, Chinese), between words."""

_LONGEST = 3


@dataclass(frozen=True)
class CharacterTable:
    """What normalization makes of each code point.

    Equal pages of 256 code points are stored once.

    Code point c has the entry ``entry_of[page_of[c // 256], c % 256]``; of entry e come up to three characters, the
    code points ``c + shift[e]`` with the kinds ``kind[e]``.

    Attributes:
      page_of: int32 [4352].
      entry_of: int32 [pages, 256].
      shift: int32 [entries, 3].
      kind: int32 [entries, 3]: `NOTHING`, `LETTER`, `ALONE` or `BLANK`.
    """

    page_of: np.ndarray = field(repr=False)
    entry_of: np.ndarray = field(repr=False)
    shift: np.ndarray = field(repr=False)
    kind: np.ndarray = field(repr=False)


@dataclass(frozen=True)
class TokenizerTables:
    """An encoding's tokenizer as arrays.

    A word is a run of letters or a character that stands alone. With a `prefix` it is cut into the longest pieces from
    the left, those behind the first with the prefix; without one it is looked up whole.

    Attributes:
      characters: From text to words.
      pieces: The vocabulary, and int32 `ids` of the pieces.
      prefix: Of pieces that do not begin a word, e.g. ``##``; None where the vocabulary holds whole words.
      max_characters: A longer word is unknown; None: there is no limit.
      cls_id, sep_id, pad_id, unknown_id: Of the special pieces.
      marker_ids: Of the four markers; none where whole texts are encoded.
    """

    characters: CharacterTable
    pieces: tuple[str, ...] = field(repr=False)
    ids: np.ndarray = field(repr=False)
    prefix: str | None
    max_characters: int | None
    cls_id: int
    sep_id: int
    pad_id: int
    unknown_id: int
    marker_ids: tuple[int, ...]


def tables_of(encoding: RelationEncoding | PieceEncoding) -> TokenizerTables:
    """Return the tables of an encoding's tokenizer: BERT's normalization and splitting before pieces or words.

    One thing that depends on more than a character is not in the tables: the canonical order of two or more combining
    marks that take room (Mc) and have different combining classes.

    Raises:
      DataError: a tokenizer of another kind (byte pairs, sentence pieces, another normalization).
    """
    tokenizer = encoding.tokenizer
    try:
        config = json.loads(tokenizer.backend_tokenizer.to_str())
    except AttributeError:
        raise DataError("the tokenizer is not a fast one of transformers", remedy=_REMEDY) from None
    for part, expected in (("normalizer", "BertNormalizer"), ("pre_tokenizer", "BertPreTokenizer")):
        kind = (config[part] or {}).get("type")
        if kind != expected:
            raise DataError(f"the tokenizer's {part} is {kind}, not {expected}", remedy=_REMEDY)
    model = config["model"]
    if model["type"] not in ("WordPiece", "WordLevel"):
        raise DataError(f"the tokenizer's model is {model['type']}", remedy=_REMEDY)
    characters = _character_table(json.dumps(config["normalizer"], sort_keys=True))
    _check_added(config["added_tokens"], {*tokenizer.all_special_tokens, *encoding.markers}, characters)
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    return TokenizerTables(
        characters=characters,
        pieces=tuple(pieces),
        ids=np.array([model["vocab"][piece] for piece in pieces], np.int32),
        prefix=model.get("continuing_subword_prefix"),
        max_characters=model.get("max_input_chars_per_word"),
        cls_id=tokenizer.cls_token_id,
        sep_id=tokenizer.sep_token_id,
        pad_id=tokenizer.pad_token_id,
        unknown_id=tokenizer.unk_token_id,
        marker_ids=tuple(tokenizer.convert_tokens_to_ids(marker) for marker in encoding.markers),
    )


_REMEDY = "use an encoder with BERT's own tokenizer (BERT, DistilBERT, BioBERT, PubMedBERT, SciBERT, MiniLM, ...)"


def _check_added(added: list[dict], special: set[str], characters: CharacterTable) -> None:
    """Check the pieces that the library looks for in a text before the others.

    The encoding cuts special ones after their first character, which changes nothing if that character is split off
    anyway.
    """
    for piece in added:
        content = piece["content"]
        if content not in special or not content or kinds_of(characters, content[0]) != [ALONE]:
            raise DataError(
                "the tokenizer has a piece outside its vocabulary that is not special",
                record=f"piece with id {piece['id']}",
                remedy=_REMEDY,
            )


def kinds_of(table: CharacterTable, character: str) -> list[int]:
    """Return the kinds of what a character becomes."""
    page, index = divmod(ord(character), PAGE)
    return [kind for kind in table.kind[table.entry_of[table.page_of[page], index]].tolist() if kind != NOTHING]


@functools.lru_cache(maxsize=4)
def _character_table(normalizer_form: str) -> CharacterTable:
    """Return the table of a BertNormalizer, given as JSON, before a BertPreTokenizer."""
    options = json.loads(normalizer_form)
    normalizer = normalizers.BertNormalizer(
        **{name: options[name] for name in ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")}
    )
    splitter = pre_tokenizers.BertPreTokenizer()
    numbers: dict[tuple, int] = {(): 0}
    entries = np.zeros(CODE_POINTS, np.int32)
    for start in range(0, CODE_POINTS, PAGE):
        if 0xD800 <= start < 0xE000:  # halves of surrogate pairs stand in no text
            continue
        codes = range(start, start + PAGE)
        between = "\u2603" if 0x2603 not in codes else "\u2705"  # a symbol of another page, which stays as it is
        characters = list(map(chr, codes))
        normalized = normalizer.normalize_str(between.join(characters)).split(between)
        if not any(normalized):
            continue
        # Most pages hold only letters.
        if normalized == characters and len(splitter.pre_tokenize_str("".join(characters))) == 1:
            entries[start : start + PAGE] = numbers.setdefault(((0, LETTER),), len(numbers))
            continue
        # Each character between two letters: in one word with them, in none, or a third one.
        words = splitter.pre_tokenize_str("".join(f"a{c}a " for made in normalized for c in made))
        kinds = iter(np.bincount([word_start // 4 for _, (word_start, _) in words]).tolist())
        for code, made in zip(codes, normalized, strict=True):
            shifts = [(ord(c) - code, {1: LETTER, 2: BLANK, 3: ALONE}[next(kinds)]) for c in made]
            # Which blank it is does not matter: all Chinese characters share an entry.
            entry = tuple((0 if kind == BLANK else difference, kind) for difference, kind in shifts)
            entries[code] = numbers.setdefault(entry, len(numbers))
    shift, kind = np.zeros((2, len(numbers), _LONGEST), np.int32)
    for entry, number in numbers.items():
        for position, (difference, character_kind) in enumerate(entry):
            shift[number, position], kind[number, position] = difference, character_kind
    pages, page_of = np.unique(entries.reshape(-1, PAGE), axis=0, return_inverse=True)
    return CharacterTable(page_of.astype(np.int32).ravel(), pages.astype(np.int32), shift, kind)
