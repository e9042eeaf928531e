"""A fast tokenizer as JSON and back, so that what a model was trained with can be given away beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from datasets.errors import DataError


def tokenizer_to_json(tokenizer: Any) -> dict[str, Any]:
    """All that makes the ids of a fast tokenizer of `transformers`: `tokenizer` as the library `tokenizers` writes it
    (`tokenizer.json`), and `special`, names such as `cls_token` to the pieces.

    Raises:
      DataError: it is none of the fast ones, whose rules are not data.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise DataError("the tokenizer is not a fast one and cannot be stored", remedy="use a fast tokenizer")
    special = {
        name: [str(piece) for piece in value] if isinstance(value, list | tuple) else str(value)
        for name, value in tokenizer.special_tokens_map.items()
    }
    return {"special": special, "tokenizer": json.loads(backend.to_str())}


def tokenizer_from_json(value: Mapping[str, Any]) -> Any:
    """The tokenizer that `tokenizer_to_json` wrote.

    Raises:
      DataError: the value is not of that form.
    """
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    problem = None
    try:
        backend = Tokenizer.from_str(json.dumps(value["tokenizer"], ensure_ascii=False))
        return PreTrainedTokenizerFast(tokenizer_object=backend, **value["special"])
    except Exception as error:  # whatever a damaged file makes of the tokenizers library
        problem = type(error).__name__
    raise DataError(f"is not the JSON of a tokenizer ({problem})", remedy="write it with tokenizer_to_json")
