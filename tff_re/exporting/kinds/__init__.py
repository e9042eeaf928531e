"""The kinds of input that exports have: a folder each, with what is written (`form.py`) and read (`predictor.py`).

`register` takes a further kind.
"""

from __future__ import annotations

from typing import Any

from tff_re.exporting.kind import Kind
from tff_re.exporting.kinds.bags import BagKind
from tff_re.exporting.kinds.documents import DocumentKind
from tff_re.exporting.kinds.relations import RelationKind
from tff_re.exporting.kinds.texts import TextKind
from tff_re.exporting.kinds.vectors import VectorKind

_KINDS: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Adds a kind under all of its names.

    Raises:
      ValueError: a name is taken.
    """
    for name in kind.names:
        if name in _KINDS:
            raise ValueError(f"there is a kind '{name}' already")
    _KINDS.update(dict.fromkeys(kind.names, kind))


for _kind in (TextKind(), VectorKind(), RelationKind(), BagKind(), DocumentKind()):
    register(_kind)


def kinds() -> dict[str, Kind]:
    """`input.kind` of export.json -> the kind."""
    return dict(_KINDS)


def kind_of(inputs: Any) -> Kind | None:
    """The kind of a model's inputs (`tff_re.models.inputs`); None if models of these cannot be exported."""
    return next((kind for kind in _KINDS.values() if type(inputs) in kind.form.inputs), None)
