"""What a survey finds out: sums over sites."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cell:
    """A sum over sites: of the counts that are shown, and the number of sites whose count is hidden."""

    total: int = 0
    hidden: int = 0

    def __add__(self, other: Cell) -> Cell:
        return Cell(self.total + other.total, self.hidden + other.hidden)


@dataclass(frozen=True)
class TotalTable:
    """The sum of the sites' tables of one name.

    Attributes:
      columns: see `CountTable`.
      rows: split -> column -> sum.
      sites: how many sites sent the table.
      noise: standard deviation of a sum's noise; None: there is none.
    """

    columns: tuple[str, ...]
    rows: dict[str, dict[str, Cell]]
    sites: int
    noise: float | None


@dataclass(frozen=True)
class Skew:
    """How far the sites' training labels are from those of all sites together.

    Attributes:
      mean: mean over sites of the total variation distance: half the sum of the differences of shares, from 0 (alike)
        to 1.
      at_least: whether labels that a site hides were taken together, so that the distance may be larger.
      partial: whether such labels were left out, because texts have any number of labels.
      distances: site -> its own, of those sites whose policy allows it.
    """

    mean: float
    at_least: bool
    partial: bool
    distances: dict[str, float]


@dataclass(frozen=True)
class WordOverlap:
    """Words that enough training texts of a site hold, told apart by keyed digests.

    Attributes:
      least_count: how many texts, at the strictest site.
      distinct: different words of all sites.
      shared: those of them that at least two sites hold.
      everywhere: those that all sites hold.
      mean_shared: mean over sites of the share of a site's words that another site holds, too.
    """

    least_count: int
    distinct: int
    shared: int
    everywhere: int
    mean_shared: float


@dataclass(frozen=True)
class SurveyResult:
    """What a survey found out.

    Attributes:
      recipe, digest: name and digest of the recipe.
      sites: names.
      least_counts: the smallest and largest least count of the sites; None with noise.
      epsilon: of each site's noise; None with least counts.
      max_length: tokens of a text that are used; None: all.
      own_vocabulary: whether the recipe's words come from the sites.
      masked: whether the counts were opened only as totals over the sites.
      tables: name -> sums.
      skew, words: None where the counts do not tell.
      warnings: what a person should look at.
      notes: what the survey does not tell, and why.
    """

    recipe: str
    digest: str
    sites: tuple[str, ...]
    least_counts: tuple[int, int] | None
    epsilon: float | None
    max_length: int | None
    own_vocabulary: bool
    masked: bool
    tables: dict[str, TotalTable]
    skew: Skew | None
    words: WordOverlap | None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
