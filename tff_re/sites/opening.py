"""How the coordinator opens a total of masked sums, with the sites' signatures and keys."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from tff_re.errors import UserError
from tff_re.sites import protocol
from tff_re.sites.asking import SiteLost, SiteRefused, Sites
from tff_re.sites.masked_layout import layouts_of
from tff_re.sites.masks import Layout, added, unmask
from tff_re.sites.program import SiteStage
from tff_re.sites.survey_messages import MaskedSurveyAnswer


class SitesFailed(Exception):
    """Sites that must be excluded, each with a reason."""

    def __init__(self, sites: dict[str, str]):
        super().__init__("; ".join(sites.values()))
        self.sites = sites


class Opening:
    """Opens the totals of one run."""

    def __init__(self, sites: Sites, run: str):
        self._sites, self._run, self._newest = sites, run, 0
        self._rosters: dict[tuple, tuple[str, ...]] = {}

    def next_attempt(self) -> int:
        """Return a number that grows even over restarts of the coordinator: the clock in milliseconds."""
        self._newest = max(self._newest + 1, time.time_ns() // 1_000_000)
        return self._newest

    def roster_of(self, sums: tuple) -> tuple[str, ...] | None:
        """Return the sites over which a total of these sums was opened before, or None.

        Sites open no other total of them. `sums` is (purpose, split, round), as sites tell sums apart.
        """
        return self._rosters.get(sums)

    def fits(self, stage: SiteStage, answer: protocol.MaskedAnswer) -> bool:
        """Return whether a site's masked sums have the types and shapes of a stage's sums."""
        layouts = layouts_of(stage)
        same_number = len(layouts) == len(answer.arrays)
        return same_number and all(layout.fits(array) for layout, array in zip(layouts, answer.arrays, strict=True))

    def total(
        self,
        stage: SiteStage,
        attempt: int,
        asked: Sequence[str],
        answers: Mapping[str, protocol.MaskedAnswer],
        sums: tuple,
    ) -> list[np.ndarray]:
        """Return the arrays of the stage's sums over the sites that answered (see `total_of`)."""
        return self.total_of(layouts_of(stage), attempt, asked, answers, sums)

    def total_of(
        self,
        layouts: Sequence[Layout],
        attempt: int,
        asked: Sequence[str],
        answers: Mapping[str, protocol.MaskedAnswer | MaskedSurveyAnswer],
        sums: tuple,
    ) -> list[np.ndarray]:
        """Return the total over the sites that answered, as arrays of these layouts.

        Args:
          layouts: of the arrays.
          attempt: of the questions.
          asked: all sites that were asked.
          answers: in the sites' order; they fit.
          sums: see `roster_of`.

        Raises:
          SitesFailed: sites were lost before the total was open.
          UserError: a site refuses to open it.
        """
        roster = tuple(answers)
        total = added([answer.arrays for answer in answers.values()], layouts)
        ways = {"run": self._run, "attempt": attempt, "sites": roster}
        signed = self._ask(dict.fromkeys(roster, protocol.Roster(**ways)))
        signatures = np.stack([signed[site].signature for site in roster])
        self._rosters[sums] = roster
        opened = self._ask(dict.fromkeys(roster, protocol.Open(**ways, signatures=signatures)))
        lost = [site for site in asked if site not in roster]
        if bad := [site for site in roster if len(opened[site].shared_keys) != len(lost)]:
            raise SitesFailed({site: f"site {site}: it opens other masks than it was asked for" for site in bad})
        own_keys = {site: opened[site].own_key.tobytes() for site in roster}
        with_lost = {
            site: {other: row.tobytes() for other, row in zip(lost, opened[site].shared_keys, strict=True)}
            for site in roster
        }
        unmask(total, layouts, own_keys, with_lost)
        return [layout.decoded(numbers) for layout, numbers in zip(layouts, total, strict=True)]

    def _ask(self, questions: Mapping[str, protocol.Question]) -> dict:
        answers, failed = self._sites.ask_all(questions), {}
        for site, answer in answers.items():
            if isinstance(answer, SiteRefused):
                raise UserError(str(answer))
            if isinstance(answer, SiteLost):
                failed[site] = str(answer)
        if failed:
            raise SitesFailed(failed)
        return answers
