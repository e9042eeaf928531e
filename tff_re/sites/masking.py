"""How a site masks its sums and opens the total (see `tff_re.sites.masks` and docs/sites-reference.md).

    masked   its sums, with a mask shared with every other site and one of its own
    roster   its signature of the sites that sent theirs
    open     the key of its own mask, and the keys that it shares with sites that are not in the roster

It opens a total only if every site of the roster has signed it. So no coordinator gets the key of a site's own mask
from it, and the keys shared with it from the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tff_re.sites import protocol
from tff_re.sites.attempts import FILE, Attempt, Attempts
from tff_re.sites.decisions import Decisions
from tff_re.sites.keys import mask_key
from tff_re.sites.masked_layout import layouts_of
from tff_re.sites.masks import KEY_BYTES, Layout, derive_own_key, derive_pair_key, mask
from tff_re.sites.messages import Lost
from tff_re.sites.policy import Site
from tff_re.sites.store import RunStore


class SiteMasks:
    """Masks and opens the sums of all runs of a site."""

    def __init__(self, site: Site, decisions: Decisions):
        self._site, self._decisions, self._name = site, decisions, site.options.name

    def check(self, run: Any, question: protocol.Masked) -> None:
        """Check a question before anything is computed.

        Raises Refused.
        """
        self._decisions.masked(Attempts(run.store.read(FILE)), Attempt.from_question(question), run.recipe)

    def masked(self, run: Any, question: protocol.Masked, sums: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Record the attempt and return the masked sums.

        Args:
          run: the site's, with `store` and `programs`.
          question: after `check`.
          sums: of the stage.

        Raises:
          NotMaskable: a number is not finite, or too large: nothing is sent.
        """
        layouts = layouts_of(run.programs[question.purpose].stages[question.stage])
        return self.masked_attempt(run.store, Attempt.from_question(question), layouts, sums)

    def masked_attempt(
        self, store: RunStore, attempt: Attempt, layouts: Sequence[Layout], sums: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Like `masked`, for arrays of these layouts."""
        attempts = Attempts(store.read(FILE))
        numbers = [layout.encoded(array) for layout, array in zip(layouts, sums, strict=True)]
        content = hashlib.sha256()
        for array in numbers:
            content.update(array.reshape(-1).view(np.uint8))
        own_key = derive_own_key(store.secret(), attempt.context, attempt.request, content.hexdigest())
        mask(numbers, layouts, self._name, own_key, self._shared(attempt, attempt.sites))
        attempt.own_key = own_key.hex()
        if attempts.newest is None or attempts.newest.number < attempt.number:
            attempts.newest = attempt
            store.write(FILE, attempts.to_json())
        return numbers

    def signature(self, run: Any, question: protocol.Roster) -> np.ndarray:
        """Return the signature for `RosterAnswer`.

        Raises Refused or Lost.
        """
        attempts = self._attempts(run, question)
        roster = list(question.sites)
        self._decisions.roster(attempts, roster, run.recipe)
        attempts.newest.roster = roster
        run.store.write(FILE, attempts.to_json())
        return np.frombuffer(self._site.signing_key().sign(attempts.newest.signed_text(roster)), np.uint8)

    def opened(self, run: Any, question: protocol.Open) -> tuple[np.ndarray, np.ndarray]:
        """Return the key of the site's own mask, and the keys shared with sites outside the roster.

        Raises Refused or Lost.
        """
        attempts = self._attempts(run, question)
        attempt, roster = attempts.newest, list(question.sites)
        self._decisions.opening(attempts, roster, [row.tobytes() for row in question.signatures])
        rosters = attempts.opened.setdefault(attempt.sums, [])
        if roster not in rosters:
            rosters.append(roster)
            attempts.clients[attempt.sums] = attempt.clients
            run.store.write(FILE, attempts.to_json())
        shared = self._shared(attempt, [site for site in attempt.sites if site not in roster])
        keys = np.frombuffer(b"".join(shared.values()), np.uint8).reshape(-1, KEY_BYTES)
        return np.frombuffer(bytes.fromhex(attempt.own_key), np.uint8), keys

    def _attempts(self, run: Any, question: protocol.Roster | protocol.Open) -> Attempts:
        """Return the attempts with the requested one as the newest."""
        attempts = Attempts(run.store.read(FILE))
        if attempts.newest is None or attempts.newest.number < question.attempt:
            raise Lost("it has sent no sums of this attempt")
        self._decisions.newest(attempts, question.attempt)
        return attempts

    def _shared(self, attempt: Attempt, sites: Sequence[str]) -> dict[str, bytes]:
        """Return the key shared with each other site in an attempt, in the order of `sites`."""
        private, public = mask_key(self._site.signing_key()), self._site.mask_keys()
        others = [site for site in sites if site != self._name]
        return {
            other: derive_pair_key(private, public[other], (self._name, other), attempt.context) for other in others
        }
