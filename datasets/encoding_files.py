"""Conversion of encodings, including the tokenizer or vocabulary, to JSON and back, for exported models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from datasets.documents.encoding import DocumentEncoding
from datasets.entities.encoding import TaggedPieceEncoding, TaggedTokenEncoding
from datasets.errors import DataError
from datasets.text.encoding import encoding_from_json
from datasets.text.piece_encoding import PieceEncoding
from datasets.text.relation_encoding import RelationEncoding

VERSION = 1

SENTENCES, DOCUMENTS, PIECES = "sentences", "documents", "pieces"
TAGGED_TOKENS, TAGGED_PIECES = "tagged tokens", "tagged pieces"

_RARE = "\ua66e"
"""A letter of a single manuscript, which hardly any vocabulary has."""


def relation_encoding_to_json(encoding: RelationEncoding) -> str:
    """Return a RelationEncoding as JSON.

    Raises DataError for a tokenizer that cannot be stored.
    """
    return _text(
        {
            "encoding": SENTENCES,
            "max_length": encoding.max_length,
            "blind": encoding.blind,
            "markers": list(encoding.markers),
            "type_texts": None if encoding.type_texts is None else dict(encoding.type_texts),
            "unit": encoding.unit,
        },
        encoding.tokenizer,
    )


def document_encoding_to_json(encoding: DocumentEncoding) -> str:
    """Return a DocumentEncoding as JSON.

    Raises DataError for a tokenizer that cannot be stored.
    """
    types = {"types": list(encoding.types)} if encoding.types else {}
    return _text(
        {"encoding": DOCUMENTS, "marker": encoding.marker, "longest": encoding.longest, **types}, encoding.tokenizer
    )


def piece_encoding_to_json(encoding: PieceEncoding) -> str:
    """Return a PieceEncoding as JSON.

    Raises DataError for a tokenizer that cannot be stored.
    """
    return _text({"encoding": PIECES, "max_length": encoding.max_length}, encoding.tokenizer)


def tagged_encoding_to_json(encoding: TaggedTokenEncoding | TaggedPieceEncoding) -> str:
    """Return an encoding of entities as JSON.

    Raises DataError for a tokenizer that cannot be stored.
    """
    tags = {"entity_types": list(encoding.entity_types), "scheme": encoding.scheme}
    if isinstance(encoding, TaggedPieceEncoding):
        return _text({"encoding": TAGGED_PIECES, **tags, "max_length": encoding.max_length}, encoding.tokenizer)
    stored = {
        "encoding": TAGGED_TOKENS,
        **tags,
        "version": VERSION,
        "text": json.loads(encoding.text_encoding.to_json()),
    }
    return json.dumps(stored, ensure_ascii=False)


def tagged_encoding_from_json(text: str) -> TaggedTokenEncoding | TaggedPieceEncoding:
    """Read what `tagged_encoding_to_json` wrote.

    Raises DataError for anything else.
    """
    keys, kind = ("entity_types", "scheme"), _kind(text)
    if kind == TAGGED_TOKENS:
        value = _value(text, TAGGED_TOKENS, (*keys, "text"), tokenizer=False)
    else:
        value = _value(text, TAGGED_PIECES, (*keys, "max_length"))
    _check(_all_strings(value["entity_types"], list), '"entity_types" is not a list of strings')
    _check(isinstance(value["scheme"], str), '"scheme" is not a string')
    types, scheme = tuple(value["entity_types"]), value["scheme"]
    if kind == TAGGED_TOKENS:
        text_encoding = encoding_from_json(json.dumps(value["text"], ensure_ascii=False))
        return TaggedTokenEncoding(text_encoding, types, scheme)
    return TaggedPieceEncoding(_tokenizer(value), types, scheme, value["max_length"])


def piece_encoding_from_json(text: str) -> PieceEncoding:
    """Read what `piece_encoding_to_json` wrote.

    Raises DataError for anything else.
    """
    value = _value(text, PIECES, ("max_length",))
    return PieceEncoding(_tokenizer(value), value["max_length"])


def relation_encoding_from_json(text: str) -> RelationEncoding:
    """Read what `relation_encoding_to_json` wrote.

    Raises DataError for anything else.
    """
    value = _value(text, SENTENCES, ("max_length", "blind", "markers", "type_texts", "unit"))
    types = value["type_texts"]
    _check(isinstance(value["blind"], bool), '"blind" is not true or false')
    _check(_all_strings(value["markers"], list), '"markers" is not a list of strings')
    _check(types is None or _all_strings(types, dict), '"type_texts" is not an object of strings')
    _check(isinstance(value["unit"], str), '"unit" is not a string')
    return RelationEncoding(
        _tokenizer(value),
        value["max_length"],
        blind=value["blind"],
        markers=tuple(value["markers"]),
        type_texts=types,
        unit=value["unit"],
    )


def document_encoding_from_json(text: str) -> DocumentEncoding:
    """Read what `document_encoding_to_json` wrote.

    Raises DataError for anything else.
    """
    value = _value(text, DOCUMENTS, ("marker", "longest"))
    _check(isinstance(value["marker"], str), '"marker" is not a string')
    types = value.get("types", [])
    _check(_all_strings(types, list), '"types" is not a list of strings')
    return DocumentEncoding(_tokenizer(value), longest=value["longest"], marker=value["marker"], types=tuple(types))


def special_pieces(tokenizer: Any) -> dict[str, str | list[str]]:
    """Return the special pieces of a `transformers` tokenizer, by names such as `cls_token`."""
    return {
        name: [str(piece) for piece in value] if isinstance(value, list | tuple) else str(value)
        for name, value in tokenizer.special_tokens_map.items()
    }


def _text(value: Mapping[str, Any], tokenizer: Any) -> str:
    """Return JSON with all that determines the ids of a fast `transformers` tokenizer.

    `tokenizer` is what the library `tokenizers` writes (`tokenizer.json`), and `special` has the pieces by names such
    as `cls_token`.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise DataError("the tokenizer is not a fast one and cannot be stored", remedy="use a fast tokenizer")
    tables = {"special": special_pieces(tokenizer), "tokenizer": json.loads(backend.to_str())}
    stored = {**value, "version": VERSION, **tables}
    return json.dumps(stored, ensure_ascii=False)


def _tokenizer(value: Mapping[str, Any]) -> Any:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    problem = None
    try:
        backend = Tokenizer.from_str(json.dumps(value["tokenizer"], ensure_ascii=False))
        _refuse_shared_ids(backend.get_vocab())
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **value["special"])
        tokenizer(_RARE)  # a vocabulary that lost its unknown piece fails only at a text that needs it
        return tokenizer
    except Exception as error:  # whatever a damaged file makes of the tokenizers library
        problem = type(error).__name__
    raise DataError(f"is not the JSON of a tokenizer ({problem})", remedy="export the model again")


def _refuse_shared_ids(vocabulary: Mapping[str, int]) -> None:
    """Refuse two pieces with one id, of which the library keeps either at each copy, and not always the same."""
    if len(set(vocabulary.values())) != len(vocabulary):
        raise ValueError("two pieces have one id")


def _check(good: bool, reason: str) -> None:
    if not good:
        raise DataError(reason, remedy="export the model again")


def _all_strings(value: Any, kind: type) -> bool:
    """Return whether a value is a list, or the values of an object, of non-empty strings."""
    items = value.values() if isinstance(value, dict) else value
    return isinstance(value, kind) and all(isinstance(item, str) and item for item in items)


def _kind(text: str) -> Any:
    """Return the kind of encoding that JSON declares, or None for anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value.get("encoding") if isinstance(value, dict) else None


def _value(text: str, kind: str, keys: tuple[str, ...], *, tokenizer: bool = True) -> dict[str, Any]:
    value = json.loads(text) if _kind(text) == kind else {}
    if value.get("version") != VERSION:
        raise DataError(f"is not the JSON of an encoding of {kind}", remedy="export the model again")
    missing = [key for key in (*keys, *(("tokenizer", "special") if tokenizer else ())) if key not in value]
    if missing:
        raise DataError(f'has no "{missing[0]}"', remedy="export the model again")
    return value
