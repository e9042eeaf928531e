"""Where a run finds its data. Apart from the tasks, because the command line needs it before TensorFlow is imported."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class DataPaths:
    """Where a run finds its data.

    Attributes:
      data: the data folder, or None for that of the environment variable TFF_RE_DATA.
      partition: a partition file to read instead of drawing one, or None.
      trust: whether files that can run code when read (pickles) may be read.
      words: the vocabulary that the sites of a federation agreed upon, or of the run that this one starts from, in
        place of one of the texts at hand; or None.
      vectors_width: at a site, the width of the word vectors, which the coordinator alone reads: the initial weights
        are its own; None elsewhere.
      document_form: the sizes of documents that the sites agreed upon, see `Task.largest`; or None.
    """

    data: Path | None = None
    partition: Path | None = None
    trust: bool = False
    words: tuple[str, ...] | None = field(default=None, repr=False)
    vectors_width: int | None = None
    document_form: tuple[int, ...] | None = None
