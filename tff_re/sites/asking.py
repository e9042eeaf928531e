"""How the coordinator asks sites.

It asks again if a site does not answer, and says which sites it is waiting for.

A site that was given up is lost. While the others are enough, it gets a short message with growing pauses, and takes
part in full once it answers.
"""

from __future__ import annotations

import concurrent.futures
import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tff_re.runtime import events
from tff_re.runtime.errors import RuntimeClosed, RuntimeProblem
from tff_re.runtime.logs import Event
from tff_re.sites import protocol
from tff_re.sites.messages import Malformed
from tff_re.sites.transport import Engine, NoAnswer

_log = logging.getLogger("tff_re.runtime")

LINE_SECONDS = 10.0
"""Between two lines that say what is waited for."""

LINES_OF_A_STAGE = 6
"""While sites that can be reached compute a stage, one of so many lines is printed, the first one too."""

FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0
"""Seconds until a lost site is looked for again; they double each time."""

Outcome = protocol.Answer | RuntimeProblem
Enough = Callable[[set[str]], bool]


class SiteRefused(RuntimeProblem):
    """A site refuses a request, and its line says why."""


class SiteLost(RuntimeProblem):
    """A site does not answer, or has lost what it stored for this round."""


class BadAnswer(SiteLost):
    """A site's answer is malformed or belongs to another site."""


@dataclass(frozen=True)
class Patience:
    """How long the coordinator waits for sites.

    Attributes:
      stage_seconds: for an answer.
      retry_seconds: for a site that does not answer to come back, within a stage; the same message is sent again.
      quorum: fraction of a round's clients whose sums are enough; a site that fails is then left out of the round.
      probe_seconds: for a lost site to answer a short message.
    """

    stage_seconds: float = 600.0
    retry_seconds: float = 300.0
    quorum: float = 1.0
    probe_seconds: float = 20.0


class Clock:
    """A clock that tells the time and waits."""

    def now(self) -> float:
        """Return the time in seconds."""
        return time.monotonic()

    def wait(self, futures: Collection[concurrent.futures.Future], seconds: float) -> None:
        """Return when one of the futures is done or the time is up."""
        if futures:
            concurrent.futures.wait(futures, timeout=seconds, return_when=concurrent.futures.FIRST_COMPLETED)
        else:
            time.sleep(seconds)


@dataclass
class _Asked:
    """A site that has not answered yet.

    Attributes:
      question, message: what it is sent, again if nothing comes.
      due: when it is sent next.
      future: of the call that is under way.
      reason: why the call before gave no answer.
    """

    question: protocol.Question
    message: bytes
    due: float
    future: concurrent.futures.Future | None = None
    reason: str | None = None


@dataclass
class _Absence:
    """Why a site is lost, how long the next pause is, and when the site is asked again."""

    reason: str
    pause: float
    until: float


class Sites:
    """Asks sites, from one thread."""

    def __init__(
        self,
        engine: Engine,
        patience: Patience,
        *,
        on_line: Callable[[str], None] = lambda line: None,
        clock: Clock | None = None,
    ):
        """Create the asker.

        `on_line` is called with a line for the user that says which sites it is waiting for, and which are lost or
        back.
        """
        self.engine, self.patience, self._on_line = engine, patience, on_line
        self.closed = False
        self._clock = clock or Clock()
        self._lost: dict[str, _Absence] = {}

    def ask_all(
        self, questions: Mapping[str, protocol.Question], enough: Enough = lambda answered: False
    ) -> dict[str, Outcome]:
        """Ask several sites at once, and return an answer or an error for each question, in their order.

        A site gets the same question again while it does not answer. Once the sites that answered are `enough`, the
        others are left out. An error is SiteRefused (it refused), BadAnswer (its answer is malformed) or SiteLost
        (it did not answer in time, or lost what it kept).

        Raises:
          RuntimeClosed: `close` was called meanwhile.
        """
        outcomes = self._collect(questions, self.patience.stage_seconds, self.patience.retry_seconds, enough)
        for site, answer in outcomes.items():
            if isinstance(answer, NoAnswer):
                self._lost[site] = _Absence(str(answer), FIRST_PAUSE, self._clock.now() + FIRST_PAUSE)
                outcomes[site] = SiteLost(str(answer))
            else:
                self._is_back(site)
        return outcomes

    def ask_every(self, questions: Mapping[str, protocol.Question]) -> dict[str, Any]:
        """Like `ask_all`, but raise the first error."""
        outcomes = self.ask_all(questions)
        for answer in outcomes.values():
            if isinstance(answer, RuntimeProblem):
                raise answer
        return outcomes

    def still_lost(self, sites: Iterable[str], run: str) -> dict[str, str]:
        """Return why each lost site was lost (by site), for those that do not answer a short message either.

        They are sent one after pauses that double; in between they count as lost unasked.
        """
        sites, now = list(sites), self._clock.now()
        due = [site for site in sites if site in self._lost and self._lost[site].until <= now]
        for site, answer in self._collect(
            dict.fromkeys(due, protocol.Ping(run=run)), self.patience.probe_seconds
        ).items():
            if isinstance(answer, NoAnswer):
                pause = min(2 * self._lost[site].pause, LONGEST_PAUSE)
                self._lost[site] = _Absence(self._lost[site].reason, pause, self._clock.now() + pause)
            else:
                self._is_back(site)
        return {site: self._lost[site].reason for site in sites if site in self._lost}

    def say(self, event: Event, **fields: Any) -> None:
        """Print an event's line for the user and append the event to the run's log."""
        if logging.getLogger("tff_re").handlers:  # else it would be printed by the root's
            event.log(_log, **fields)
        self._on_line(event.line(**fields))

    def close(self) -> None:
        """Stop sending messages."""
        self.closed = True

    def _is_back(self, site: str) -> None:
        if self._lost.pop(site, None) is not None:
            self.say(events.SITE_BACK, site=site)

    def _collect(
        self,
        questions: Mapping[str, protocol.Question],
        seconds: float,
        retry_seconds: float | None = None,
        enough: Enough = lambda answered: False,
    ) -> dict[str, Outcome | NoAnswer]:
        """Ask the sites as in `ask_all`, with NoAnswer for a site that is given up.

        Without `retry_seconds` each site is asked once, and nothing is printed.
        """
        began = self._clock.now()
        asked = {site: _Asked(question, protocol.to_bytes(question), began) for site, question in questions.items()}
        asks_stage = any(isinstance(question, protocol.Stage) for question in questions.values())
        deadline, lines, outcomes = began + (retry_seconds or 0.0), 0, {}
        while asked and not enough({site for site, answer in outcomes.items() if not isinstance(answer, Exception)}):
            if self.closed:
                raise RuntimeClosed()
            now = self._clock.now()
            for site, pending in asked.items():
                if pending.future is None and pending.due <= now:
                    pending.future = _begun(self.engine.call, site, pending.message, seconds)
            running = [pending.future for pending in asked.values() if pending.future is not None]
            next_line = math.inf if retry_seconds is None else began + (lines + 1) * LINE_SECONDS
            dues = [pending.due for pending in asked.values() if pending.future is None]
            self._clock.wait(running, max(0.0, min([next_line, now + LINE_SECONDS, *dues]) - now))
            now = self._clock.now()
            for site in [
                site for site, pending in asked.items() if pending.future is not None and pending.future.done()
            ]:
                pending, error = asked[site], asked[site].future.exception()
                if error is not None and not isinstance(error, NoAnswer):
                    raise error
                if error is None:
                    outcomes[site] = self._read(site, pending)
                    if pending.reason is not None and site not in self._lost:
                        self.say(events.SITE_BACK, site=site)
                elif retry_seconds is None or now >= deadline:
                    outcomes[site] = error
                else:
                    first, pending.reason = pending.reason is None, _reason(site, error)
                    pending.future, pending.due = None, now + min(1.0, retry_seconds / 4)
                    if first:
                        self._say_failing(site, pending, deadline - now)
            asked = {site: pending for site, pending in asked.items() if site not in outcomes}
            if asked and now >= next_line:
                lines = int((now - began) / LINE_SECONDS)
                quiet = asks_stage and lines % LINES_OF_A_STAGE != 1
                self._say_waiting(asked, deadline - now, began + seconds - now, quiet)
        return {site: outcomes[site] for site in questions if site in outcomes}

    def _say_waiting(self, asked: Mapping[str, _Asked], left: float, stage_left: float, quiet: bool) -> None:
        computing = [site for site, pending in asked.items() if pending.reason is None]
        if computing and not quiet:
            self.say(events.SITES_WAITING, sites=computing, seconds=max(stage_left, 0))
        for site, pending in asked.items():
            if pending.reason is not None:
                self._say_failing(site, pending, left)

    def _say_failing(self, site: str, pending: _Asked, left: float) -> None:
        self.say(events.SITE_FAILING, site=site, reason=pending.reason, seconds=max(left, 0))

    def _read(self, site: str, pending: _Asked) -> Outcome:
        """Return a site's answer, or the error that says what is wrong with it."""
        try:
            answer = protocol.answer_of(type(pending.question), pending.future.result())
        except Malformed as error:
            kind = pending.question.kind
            return BadAnswer(
                f"site {site}: malformed answer to '{kind}': {error}; is it running another version of tff-re?"
            )
        if isinstance(answer, protocol.No):
            return (SiteRefused if answer.refused is not None else SiteLost)(_line(answer.reason))
        if answer.site != site:
            return BadAnswer(f"site {site}: another site answers in its place; name it as its site.toml does")
        return answer


def _begun(call: Callable, *arguments) -> concurrent.futures.Future:
    """Start a call in a daemon thread, which does not delay the end of the program (for example after Ctrl-C)."""
    future: concurrent.futures.Future = concurrent.futures.Future()

    def work():
        try:
            future.set_result(call(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="tff-re-site", daemon=True).start()
    return future


def _reason(site: str, error: NoAnswer) -> str:
    text = str(error)
    return text.replace(f"site {site} ", "it ", 1) if text.startswith(f"site {site} ") else text


def _line(text: object) -> str:
    """Return a site's text as one line without control characters."""
    return "".join(letter for letter in " ".join(str(text).split()) if letter.isprintable())[:500]
