"""PubTator files as texts with entities."""

from __future__ import annotations

from collections.abc import Sequence

from datasets.documents.pubtator import read_marked_texts
from datasets.entities.building import EntityBuilder
from datasets.entities.records import EntitySpan
from datasets.files import PathLike


def read_pubtator_texts(
    path: PathLike,
    builder: EntityBuilder,
    prefix: str,
    *,
    kinds: Sequence[str] | None = None,
    labelled: bool = True,
) -> None:
    """Add the documents of a PubTator file as ``<prefix>-<id>``.

    A text is the title, a blank and the abstract, or the title only.

    Args:
      path: The file, compressed or not.
      builder: Gets the documents.
      prefix: Part of their ids.
      kinds: The types that there are; None: any.
      labelled: Whether mentions are read.

    Raises:
      DataError: as `read_marked_texts` and `EntityBuilder.add`.
    """
    for fail, document in read_marked_texts(path, kinds=kinds, annotated=labelled, tally=builder.counts):
        text, title_length = document.text, document.title_length
        if len(text) == title_length + 1:
            text = text[:title_length]
        spans = [EntitySpan(m.start, m.end, builder.checked_type(m.kind, fail)) for m in document.mentions]
        if any(span.end > len(text) for span in spans):
            raise fail("an entity lies beyond the text", remedy="end it with the title, which has no abstract")
        builder.add(
            f"{prefix}-{document.document_id}", document.document_id, text, spans, fail, title_length=title_length
        )
