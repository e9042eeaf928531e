"""The messages of a survey: protected counts of a site's data under a recipe, before a run."""

from __future__ import annotations

from typing import ClassVar, Literal

import attrs
import numpy as np
from attrs.validators import and_, optional

from tff_re.sites.fields import (
    ATTEMPT,
    DIGEST_BYTES,
    HEX,
    MAX_CLASSES,
    MAX_OCCURRENCES,
    MAX_TEXT,
    NAME,
    NAMES,
    ROSTER,
    UNIQUE,
    array,
    arrays,
    each,
    length,
    number,
)
from tff_re.sites.questions import Answer, Question

TRAIN, DEV, TEST = "train", "dev", "test"

MAX_LEAST_COUNT = 1_000_000

DISTANCE_UNITS = 1_000_000
"""Of a distance from 0 to 1 that is sent as a whole number."""

_NAME = Literal["texts", "clients", "client_sizes", "labels", "lengths", "unknown", "repeats", "left_out"]
_ROWS = and_(length(1, 3), UNIQUE)
_COLUMNS = and_(length(1, MAX_CLASSES + 1), each(NAME), UNIQUE)
_SCALE = number(1e-9, 1e9)
_EPSILON = number(0.001, 1e6)
_COUNT = optional(number(-MAX_OCCURRENCES, MAX_OCCURRENCES))


@attrs.frozen
class CountTable:
    """A table of counts, of texts or of clients.

    Attributes:
      name: what is counted: `texts`: the texts of a split; `clients`: the clients that have texts of a split;
        `client_sizes`: clients by the number of their training texts; `labels`: texts that have a label; `lengths`:
        texts by their number of tokens; `unknown`: texts by their share of unknown tokens; `repeats`: texts by whether
        they occur before, see `survey_tables`; `left_out`: texts that take no part.
      rows: splits.
      columns: of the counts.
      counts: row by row; None: the count is hidden.
      scale: of the discrete Laplace noise that each count has; None: there is none.
    """

    name: _NAME
    rows: tuple[Literal["train", "dev", "test"], ...] = attrs.field(validator=_ROWS)
    columns: tuple[str, ...] = attrs.field(validator=_COLUMNS)
    counts: tuple[tuple[int | None, ...], ...] = attrs.field(validator=each(each(_COUNT)), repr=False)
    scale: float | None = attrs.field(default=None, validator=optional(_SCALE))

    def __attrs_post_init__(self):
        if [len(row) for row in self.counts] != [len(self.columns)] * len(self.rows):
            raise ValueError("'counts' must have a number for each row and column")

    def row(self, split: str) -> tuple[int | None, ...]:
        """Return the counts of a split, which are all None if it has no row."""
        return self.counts[self.rows.index(split)] if split in self.rows else (None,) * len(self.columns)


@attrs.frozen
class TableForm:
    """The form of a table of counts that are masked.

    Attributes:
      name, rows, columns, scale: see `CountTable`.
    """

    name: _NAME
    rows: tuple[Literal["train", "dev", "test"], ...] = attrs.field(validator=_ROWS)
    columns: tuple[str, ...] = attrs.field(validator=_COLUMNS)
    scale: float | None = attrs.field(default=None, validator=optional(_SCALE))


@attrs.frozen(kw_only=True, eq=False)
class Surveyed(Answer):
    """What an answer says of how a site's data were counted.

    Attributes:
      recipe: digest of the recipe as the site reads it.
      least_count: no smaller count of texts or clients is shown; None with noise.
      epsilon: of all noise of the answer together; None without noise.
      one_client: whether the site is one client.
      max_length: tokens of a text that are used; longer texts are cut. None: no text is cut.
      check: shows whether the sites' secrets are the same; None: no digests.
      digests: uint8 [n, 16], keyed digests of the words that at least `least_count` training texts hold; None: none.
    """

    recipe: str = attrs.field(validator=HEX)
    least_count: int | None = attrs.field(validator=optional(number(1, MAX_LEAST_COUNT)))
    epsilon: float | None = attrs.field(validator=optional(_EPSILON))
    one_client: bool
    max_length: int | None = attrs.field(validator=optional(number(1, MAX_OCCURRENCES)))
    check: str | None = attrs.field(default=None, validator=optional(HEX))
    digests: np.ndarray | None = attrs.field(**array("u1", None, DIGEST_BYTES, optional=True))

    def __attrs_post_init__(self):
        if len({table.name for table in self.tables}) < len(self.tables):
            raise ValueError("'tables' must not hold the same twice")
        if "texts" not in {table.name for table in self.tables}:
            raise ValueError("'tables' must count the texts")
        if (self.least_count is None) == (self.epsilon is None):
            raise ValueError("the answer must have a least count or noise")
        if (self.check is None) != (self.digests is None):
            raise ValueError("'check' must come with digests")
        if self.digests is not None and len({row.tobytes() for row in self.digests}) < len(self.digests):
            raise ValueError("'digests' must not hold the same twice")


@attrs.frozen(kw_only=True, eq=False)
class SurveyAnswer(Surveyed):
    """Protected counts of a site's data.

    Attributes:
      tables: what was counted, each once.
      show_distance: whether the page may show how far the site's labels are from those of all sites.
    """

    tables: tuple[CountTable, ...] = attrs.field(validator=length(1, 8))
    show_distance: bool

    def __attrs_post_init__(self):
        super().__attrs_post_init__()
        for table in self.tables:
            if (table.scale is None) != (self.epsilon is None):
                raise ValueError("'scale' must come with noise")
            counts = [count for row in table.counts for count in row]
            if self.least_count is None:
                if None in counts:
                    raise ValueError("'counts' must not be hidden where they have noise")
            elif any(count is not None and count != 0 and count < self.least_count for count in counts):
                raise ValueError("'counts' must not be smaller than the least count")

    def table(self, name: str) -> CountTable | None:
        """Return the table of this name, or None."""
        return next((table for table in self.tables if table.name == name), None)


@attrs.frozen(kw_only=True, eq=False)
class Survey(Question):
    """How do the site's data fit a recipe?

    Attributes:
      recipe: the file that `policy.for_sites` makes.
      least_count: the least count that the coordinator asks for; a site may hide more. None: noise is asked for.
      epsilon: of the noise; None: a least count is asked for.
      labels: names of labels to count where the recipe does not list them; None: those of the site's files.
    """

    kind: ClassVar[str] = "survey"
    answer: ClassVar[type] = SurveyAnswer
    recipe: str = attrs.field(validator=length(0, MAX_TEXT), repr=False)
    least_count: int | None = attrs.field(validator=optional(number(1, MAX_LEAST_COUNT)))
    epsilon: float | None = attrs.field(validator=optional(_EPSILON))
    labels: tuple[str, ...] | None = attrs.field(validator=optional(NAMES))

    def __attrs_post_init__(self):
        if (self.least_count is None) == (self.epsilon is None):
            raise ValueError("a survey must ask for a least count or for noise")


@attrs.frozen(kw_only=True, eq=False)
class MaskedSurveyAnswer(Surveyed):
    """Protected counts of a site's data, masked.

    Attributes:
      tables: what was counted, each once, in the order of the counts.
      arrays: one array, of (count, 1 if it is hidden and counted as 0) of each cell, masked; see `survey_tables`.
    """

    tables: tuple[TableForm, ...] = attrs.field(validator=length(1, 8))
    arrays: tuple[np.ndarray, ...] = attrs.field(**arrays())


@attrs.frozen(kw_only=True, eq=False)
class MaskedSurvey(Survey):
    """A survey whose counts leave the site masked. The total over the sites is opened as that of a stage.

    Attributes:
      attempt, sites: see `Masked`.
    """

    kind: ClassVar[str] = "masked_survey"
    answer: ClassVar[type] = MaskedSurveyAnswer
    attempt: int = attrs.field(validator=ATTEMPT)
    sites: tuple[str, ...] = attrs.field(validator=ROSTER)


@attrs.frozen(kw_only=True, eq=False)
class MaskedDistanceAnswer(Answer):
    """How far the site's training labels are from those of all sites, masked.

    Attributes:
      arrays: one array, of the distance in units of 1 / `DISTANCE_UNITS`, and 1 if there is one, else twice 0.
    """

    arrays: tuple[np.ndarray, ...] = attrs.field(**arrays())


@attrs.frozen(kw_only=True, eq=False)
class MaskedDistance(Question):
    """How far are the site's training labels from those of all sites? Asked once the total of a masked survey is open.

    Attributes:
      attempt, sites: see `Masked`; of this survey, whose id is `run`.
      labels: those that every site shows.
      counts: int64 [n], their training texts at all sites.
      texts: all training texts.
    """

    kind: ClassVar[str] = "masked_distance"
    answer: ClassVar[type] = MaskedDistanceAnswer
    attempt: int = attrs.field(validator=ATTEMPT)
    sites: tuple[str, ...] = attrs.field(validator=ROSTER)
    labels: tuple[str, ...] = attrs.field(validator=NAMES)
    texts: int = attrs.field(validator=number(1, MAX_OCCURRENCES))
    counts: np.ndarray = attrs.field(**array("i8", None))

    def __attrs_post_init__(self):
        if len(self.counts) != len(self.labels):
            raise ValueError("'counts' must have one for each of the labels")
        if not ((self.counts >= 0) & (self.counts <= MAX_OCCURRENCES)).all():
            raise ValueError(f"'counts' must be from 0 to {MAX_OCCURRENCES}")
