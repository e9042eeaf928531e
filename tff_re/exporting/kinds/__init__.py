"""The kinds of input that exports have: a folder each, with what is read (`__init__.py`) and written (`form.py`)."""

from __future__ import annotations

from typing import Any

from tff_re.exporting.kind import Kind
from tff_re.exporting.kinds.bags import BagKind
from tff_re.exporting.kinds.documents import DocumentKind
from tff_re.exporting.kinds.entities import EntityKind
from tff_re.exporting.kinds.relations import RelationKind
from tff_re.exporting.kinds.text_pieces import TextPieceKind
from tff_re.exporting.kinds.texts import TextKind
from tff_re.exporting.kinds.vectors import VectorKind

KINDS: dict[str, Kind] = {
    name: kind
    for kind in (TextKind(), TextPieceKind(), VectorKind(), RelationKind(), BagKind(), DocumentKind(), EntityKind())
    for name in kind.names
}
"""`input.kind` of export.json -> the kind."""


def kind_of(inputs: Any) -> Kind | None:
    """The kind of a model's inputs (`tff_re.models.inputs`), or None if such models cannot be exported."""
    return next((kind for kind in KINDS.values() if kind.form.takes(inputs)), None)
