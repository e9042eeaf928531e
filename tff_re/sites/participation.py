"""Who takes part in the rounds of a run across sites, as observed and not as drawn from a seed."""

from __future__ import annotations

import numpy as np

from tff_re.runs.features.failures import COUNTED, REPEATED, Answers, Attempt, Participation
from tff_re.runtime.errors import RuntimeProblem

NO_ANSWER = "no_answer"
"""What became of a client whose site failed or did not answer in time; see `tff_re.runs.features.failures`."""


class TooFewAnswers(RuntimeProblem):
    """Fewer than `training.min_clients` clients' sites answered in an attempt of a round."""


class ParticipationOfSites(Participation):
    """Who is asked in each round and whose answers counted, as observed and not as drawn from a seed.

    Of a site with several clients in a round, all count or none.
    """

    def __init__(self, *arguments, runtime):
        """Like `Participation`.

        `runtime` says what became of the clients of its latest call (`not_counted`).
        """
        super().__init__(*arguments)
        self._runtime = runtime

    def of_round(self, round_num, compute, not_finite) -> Answers:
        """See `Participation.of_round`.

        Clients whose answers do not count keep their earlier states.
        """
        del not_finite
        done = []
        for attempt in self.attempts(round_num):
            self._runtime.not_counted, output = {}, None
            enough = len(attempt.outcomes) >= self._training.min_clients
            try:
                output = compute(attempt.answered) if enough else None
            except TooFewAnswers:
                enough = False
            outcomes = {i: self._runtime.not_counted.get(self._ids[i], COUNTED) for i in attempt.outcomes}
            if enough:
                return Answers(attempt.answered, output, [*done, Attempt(attempt.number, outcomes)])
            repeated = {i: REPEATED if outcome == COUNTED else outcome for i, outcome in outcomes.items()}
            done.append(Attempt(attempt.number, repeated))
        raise self._no_quorum(round_num, done)

    def _tried(self, round_num: int, number: int, asked: np.ndarray) -> Attempt:
        return Attempt(number, dict.fromkeys(map(int, asked), COUNTED))
