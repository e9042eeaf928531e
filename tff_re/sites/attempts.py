"""What a site has sent masked, signed and opened in a run.

`decisions` says what it allows.
"""

from __future__ import annotations

import hashlib
import json

import attrs

from tff_re.sites import protocol
from tff_re.sites.requests import Request
from tff_re.sites.survey_messages import MaskedDistance, MaskedSurvey

FILE = "masks.json"
"""The file of a run's `Attempts`."""


@attrs.define
class Attempt:
    """The newest attempt that the site has answered.

    Attributes:
      number: see `protocol.Masked`.
      request: digest of this site's request.
      context: digest of what all sites were asked for alike; keys of masks are made of it.
      sums: which sums these are, whoever takes part: purpose, split, round and stage.
      sites: all that were asked.
      clients: digest of this site's clients that were asked for, and their states.
      run: the id of the run, or of the survey.
      own_key: the key of the site's own mask, in hexadecimal.
      roster: the sites that it signed for; None: it has signed nothing yet.
    """

    number: int
    request: str
    context: str
    sums: str
    sites: list[str]
    clients: str = ""
    run: str = ""
    own_key: str = ""
    roster: list[str] | None = None

    @classmethod
    def from_question(cls, question: protocol.Masked) -> Attempt:
        """Make the attempt of a question, before it is answered."""
        request = Request(question)
        what = [question.purpose, question.split, question.round, question.stage]
        context = [question.run, question.program, question.attempt, question.sites, *what, request.arrays]
        digests = request.digest, _digest(context), _digest(what)
        clients = _digest([question.clients, question.versions])
        return cls(question.attempt, *digests, list(question.sites), clients, question.run)

    @classmethod
    def of_survey(cls, question: MaskedSurvey, sums: str) -> Attempt:
        """Make the attempt of a survey.

        `sums`: digest of what is counted, which is the same whatever the survey's id and whoever takes part.
        """
        asked = [question.recipe, question.least_count, question.epsilon, question.labels]
        request = _digest(["survey", question.run, *asked])
        context = _digest(["survey", question.run, question.attempt, question.sites, *asked])
        return cls(question.attempt, request, context, sums, list(question.sites), run=question.run)

    @classmethod
    def of_distance(cls, question: MaskedDistance, sums: str) -> Attempt:
        """Make the attempt of a distance of labels (see `of_survey`)."""
        asked = [question.labels, question.counts.tolist(), question.texts]
        request = _digest(["distance", question.run, *asked])
        context = _digest(["distance", question.run, question.attempt, question.sites, *asked])
        return cls(question.attempt, request, context, sums, list(question.sites), run=question.run)

    def signed_text(self, roster: list[str]) -> bytes:
        """Return what a site signs for a roster."""
        return json.dumps(["tff-re roster", self.context, roster]).encode()


class Attempts:
    """The attempts of a run, as plain values for JSON.

    Attributes:
      newest: the newest attempt; None: there was none.
      opened: `Attempt.sums` -> the rosters over which this site opened a total.
      clients: `Attempt.sums` -> `Attempt.clients` of these totals.
    """

    def __init__(self, content: bytes | None = None):
        """Read what `to_json` wrote, or start without an attempt."""
        table = {} if content is None else json.loads(content)
        newest = table.get("newest")
        self.newest: Attempt | None = None if newest is None else Attempt(**newest)
        self.opened: dict[str, list[list[str]]] = table.get("opened", {})
        self.clients: dict[str, str] = table.get("clients", {})

    def to_json(self) -> bytes:
        """Return the table that `Attempts` reads."""
        newest = None if self.newest is None else attrs.asdict(self.newest)
        return json.dumps({"newest": newest, "opened": self.opened, "clients": self.clients}).encode()


def _digest(what: list) -> str:
    return hashlib.sha256(json.dumps(what).encode("utf-8", "surrogatepass")).hexdigest()
