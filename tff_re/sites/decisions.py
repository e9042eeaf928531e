"""How a site decides what it refuses a coordinator, from the first message of a run to the last.

    recipe       allow.recipes, allow.privacy, and what the recipe's [privacy] may leave open
    clients      clients.least_examples
    begin        allow.runs, the same data as when the run was begun
    words        vocabulary.least_clients, the other sites' keys
    computation  allow.least_clients, the same computation as at the coordinator
    stage        the form of a request, its order, allow.evaluation, most_rounds, most_bytes_up, the budgets of ε
    comparison   allow.comparison
    masks        allow.least_sites, the other sites' keys, one answer to an attempt, one total, all signatures

A lying coordinator gains by asking twice: the difference of two answers shows what both sums hide. So the first request
for a round fixes its clients and broadcast values; the same request is answered with the same bytes, and any other is
refused.

What site.toml may say is in `policy`, what was asked for and spent before in `requests` and `ledger`. Every refusal is
a line that goes to the coordinator, so it holds nothing of the data.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

import tensorflow as tf
from cryptography.exceptions import InvalidSignature

from computations.errors import CompositionError
from computations.privacy.options import rounded_up
from tff_re import __version__
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.features.privacy import accounting_in, require_private_statistics
from tff_re.runs.features.shares import least_sites, noise_is_shared, sums_are_masked
from tff_re.sites.agreement import SPLITS
from tff_re.sites.attempts import Attempt, Attempts
from tff_re.sites.ledger import Ledger, TrainingData
from tff_re.sites.masked_layout import require_sums
from tff_re.sites.messages import Refused
from tff_re.sites.noise_share import require_noised
from tff_re.sites.policy import Site, recipe_table, table_digest
from tff_re.sites.requests import EVALUATE, REQUESTS, TRAIN, Record, Request, groups
from tff_re.sites.spending import RELEASE

MAX_REPEATS = 8
"""Different requests for a later stage of a round, per attempt of the recipe: sites that leave change the sums."""

MAX_WEIGHTS = 3
"""Different weights that are evaluated on a split in a round: the round's, the chosen ones, more after a fault."""

SPARE_EVALUATIONS = 8
"""Of a split, beyond those that `evaluation.every` asks for: the last round, the chosen one, finished runs, faults."""

CHECKPOINTS = 2
"""Rounds whose checkpoints a coordinator keeps: it resumes from one of them."""

MIN_SITES = 2
"""Of a total that is opened, where allow.least_sites is not set."""

SLACK = 1 + 1e-9
"""A budget may be exceeded by a rounding error."""


class Decisions:
    """What a site allows.

    Each method raises Refused for a request that the site does not allow.

    Attributes:
      ledger: what all runs on the site's data have spent.
    """

    def __init__(self, site: Site):
        self._site, self._allow = site, site.options.allow

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self._site.state, self._allow)

    # Before the first round

    def recipe(self, text: str) -> Recipe:
        """Return a coordinator's recipe with this site's files."""
        try:
            table = recipe_table(text)
            digest = table_digest(table)
            if self._site.digests is not None and digest not in self._site.digests:
                raise UserError(
                    f"the recipe {digest[:16]}… is not accepted here; its operator allows it by allow.recipes"
                )
            recipe = self._site.local_recipe(table)
            self.require_privacy(recipe)
            self.require_masks(recipe)
            require_private_statistics(recipe, at_sites=True)
        except UserError as error:  # of the policy and the recipe, which the coordinator has
            raise Refused(str(error)) from None
        return recipe

    def require_privacy(self, recipe: Recipe) -> None:
        """Raise UserError if the recipe lacks the privacy that this site requires."""
        needed, unit = self._allow.privacy, recipe.privacy_unit
        if needed != "none" and unit is None:
            raise UserError("the recipe has no [privacy], and this site asks for it")
        if needed == "shares" and unit != "example" and not noise_is_shared(recipe):
            raise UserError(
                "this site asks for noise that the sites add: privacy.unit = 'example', or 'client' with "
                "privacy.least_sites"
            )
        if needed == "example" and unit != "example":
            raise UserError("this site asks for privacy.unit = 'example', whose noise it adds itself")

    def require_masks(self, recipe: Recipe) -> None:
        """Raise UserError if the recipe lacks masks that this site requires, or the site lacks the keys for them."""
        if not sums_are_masked(recipe):
            if self._allow.least_sites is not None:
                raise UserError(
                    "the recipe has no aggregation.secure = 'masks', and this site asks for it (allow.least_sites)"
                )
            return
        if not self._site.options.mask_keys or not self._site.options.sites:
            raise UserError(
                "the recipe masks sums, and this site has no keys of other sites; its operator lists them in [sites] "
                "and [mask_keys] (`site SITE.TOML --key` and `--mask-key` print them there)"
            )

    def clients(self, sizes: Collection) -> None:
        """Return the clients that have enough training examples.

        There has to be at least one.
        """
        if not sizes:
            raise Refused(f"no client has {self._site.options.clients.least_examples} training examples")

    def begin(self, data: TrainingData, run: str, recipe: Recipe) -> None:
        """Write to the ledger that a run begins, or resumes after a restart."""
        began = self.ledger.begun_on(run)
        if began is not None:
            if began != (data.digest, data.partition):
                raise Refused("the run was begun with other data of this site; begin a new one")
            return
        if self._allow.runs is not None and self.ledger.runs_on(data) >= self._allow.runs:
            raise Refused(f"{self._allow.runs} runs were begun on its data (allow.runs), and no more may be")
        if self._allow.epsilon_total is not None and self.ledger.other_guarantees(data, recipe):
            raise Refused(
                "runs on its data had noise of another kind (privacy.unit = 'example', or 'client' in shares), and "
                "allow.epsilon_total counts one kind only"
            )
        self.ledger.begin(data, run, recipe)

    def words(self, min_clients: int) -> None:
        """Check that `task.min_clients` suffices to reveal words, and that claims to hold a word can be verified."""
        least = self._site.options.vocabulary.least_clients
        if min_clients < least:
            raise Refused(
                f"it shows words that at least {least} clients hold (vocabulary.least_clients), and task.min_clients "
                f"is {min_clients}; raise task.min_clients"
            )
        if self._site.secret() is not None and not self._site.others():
            raise Refused(
                "it has a secret for words (vocabulary.secret) and no key of another site to check who holds a word; "
                "its operator lists the others' keys in [sites] (`site SITE.TOML --key` prints them there), or leaves "
                "the secret out, to show only words that enough of its own clients hold"
            )

    def programs(self, recipe: Recipe, programs: Mapping[str, Any]) -> None:
        """Check that the sums of a run's computations, by purpose, may leave."""
        if self._allow.least_clients > 1 and programs[TRAIN].collects:
            raise Refused(
                "the recipe's rule needs each client's own update, and this site's sums are over at least "
                f"{self._allow.least_clients} of its clients (allow.least_clients); take another aggregation.rule"
            )
        if not sums_are_masked(recipe):
            return
        for purpose, program in programs.items():
            try:
                require_sums(program)
                if purpose == TRAIN and noise_is_shared(recipe):
                    require_noised(program)
            except CompositionError as error:
                raise Refused(str(error)) from None

    def computation(self, programs: Mapping[str, Any], digests: Mapping[str, str]) -> None:
        """Check the computations of a run by purpose against their digests at the coordinator."""
        for purpose, digest in digests.items():
            if programs[purpose].digest != digest:
                raise Refused(
                    f"the recipe gives another computation here than at the coordinator ({purpose}); use the same "
                    f"versions of tff-re ({__version__} here) and of TensorFlow ({tf.__version__})"
                )

    def comparison(self, recipe: Recipe) -> str:
        """Return what may be told of a comparison of the site's own model with the federated one.

        With masked sums a site's own accuracy would tell the sums of the others. The noise of [privacy] is not in the
        site's own model.
        """
        if recipe.privacy_unit is not None:
            return "nothing"
        allowed = self._allow.comparison
        return "direction" if allowed == "interval" and sums_are_masked(recipe) else allowed

    # Masked sums

    def sums(self, recipe: Recipe, *, masked: bool) -> None:
        """Check that the sums of a recipe may leave in the requested form."""
        if sums_are_masked(recipe) != masked:
            raise Refused(f"the sums of this recipe leave {'in the clear' if masked else 'masked'}, and not otherwise")

    def masked(self, attempts: Attempts, attempt: Attempt, recipe: Recipe) -> None:
        """Check a question for masked sums before they are computed.

        It checks which sites are asked, and that each attempt is answered only once.
        """
        if self._site.options.name not in attempt.sites:
            raise Refused("it is not among the sites whose sums are asked for")
        self._enough(attempt.sites, recipe)
        known = self._site.others().keys() & self._site.mask_keys().keys()
        if unknown := [site for site in attempt.sites if site not in known and site != self._site.options.name]:
            raise Refused(f"it has no keys of {', '.join(unknown)}; its operator lists them in [sites] and [mask_keys]")
        newest = attempts.newest
        if newest is not None and attempt.number <= newest.number:
            self.newest(attempts, attempt.number)
            if (newest.request, newest.context) != (attempt.request, attempt.context):
                raise Refused("this attempt was asked for otherwise before; an attempt is answered once")

    def newest(self, attempts: Attempts, number: int) -> None:
        """Refuse to open masks of an older attempt after a newer one was answered."""
        if number < attempts.newest.number:
            raise Refused("a newer attempt was answered already; attempts grow with the coordinator's clock")

    def roster(self, attempts: Attempts, roster: list[str], recipe: Recipe) -> None:
        """Check that the site may sign for a total over these sites, in the newest attempt.

        Of the same sums it opens one total: two may tell few sites apart, alone or with totals of other sites.
        """
        attempt = attempts.newest
        if roster != [site for site in attempt.sites if site in roster] or self._site.options.name not in roster:
            raise Refused("the total is not over sites that were asked in this attempt, with this site among them")
        self._enough(roster, recipe)
        if attempt.roster not in (None, roster):
            raise Refused("it has signed for other sites in this attempt; it signs once")
        if attempts.clients.get(attempt.sums, attempt.clients) != attempt.clients:
            raise Refused(
                "a total with other clients of this site was opened before in this round, and both would tell sums "
                "of this site"
            )
        opened = attempts.opened.get(attempt.sums, [])
        if opened and roster not in opened:
            before = ", ".join(opened[-1])
            raise Refused(
                f"a total over {before} was opened before, and one over {', '.join(roster)} would tell the sums of "
                "fewer sites apart"
            )

    def opening(self, attempts: Attempts, roster: list[str], signatures: Collection[bytes]) -> None:
        """Check that the site may open the total over a roster, which it and all others must have signed."""
        attempt, keys = attempts.newest, self._site.others()
        if attempt.roster != roster:
            raise Refused("it has not signed for these sites in this attempt")
        for site, signature in zip(roster, signatures, strict=True):
            if site == self._site.options.name:
                continue
            try:
                keys[site].verify(signature, attempt.signed_text(roster))
            except InvalidSignature:
                raise Refused(
                    f"the signature of {site} does not hold for this total; its key in [sites] is another one, or it "
                    "was asked for something else"
                ) from None

    def _enough(self, sites: Collection[str], recipe: Recipe) -> None:
        allowed, shared = self._allow.least_sites or MIN_SITES, least_sites(recipe)
        if len(sites) < max(allowed, shared):
            key = "allow.least_sites" if allowed >= shared else "privacy.least_sites"
            least = max(allowed, shared)
            raise Refused(f"it opens totals over at least {least} sites ({key}), and not over {len(sites)}")

    # A stage: its form, then its place among what was asked before, then what it costs

    def check(
        self,
        request: Request,
        recipe: Recipe,
        sizes: Mapping[str, tuple[int, int, int]],
        *,
        stages: int,
        keeps_states: bool,
    ) -> None:
        """Check that a request is one that an honest coordinator could send.

        Args:
          request: read.
          recipe: of the run.
          sizes: client of this site -> its examples of `SPLITS`.
          stages: of the computation.
          keeps_states: whether clients keep a state between rounds.
        """
        first = 1 if request.purpose == TRAIN else 0  # finished runs are evaluated as round 0
        if not first <= request.round <= recipe.training.rounds:
            raise Refused(f"the recipe has rounds {first} to {recipe.training.rounds}, and not {request.round}")
        if request.stage >= stages:
            raise Refused(f"the computation has {stages} stages, and no stage {request.stage}")
        self._check_split(request, recipe)
        split = SPLITS.index(request.split)
        holding = {client for client, counts in sizes.items() if counts[split]}
        clients, least = set(request.clients), self._allow.least_clients
        if not clients <= holding:
            raise Refused(f"these are not clients of this site with {request.split} examples")
        if request.purpose == EVALUATE and clients != holding:
            raise Refused("it evaluates all of its clients together")
        if request.purpose == TRAIN and len(clients) < least:
            raise Refused(
                f"its sums are over at least {least} of its clients (allow.least_clients), not {len(clients)}"
            )
        wanted = len(request.clients) if request.purpose == TRAIN and keeps_states else 0
        if len(request.versions) != wanted or any(version >= request.round for version in request.versions):
            raise Refused("a client's state is one of a round before, where clients keep states")

    def _check_split(self, request: Request, recipe: Recipe) -> None:
        if request.purpose == TRAIN:
            possible: Collection[str] = ("train",)
        else:
            if self._allow.evaluation == "none":
                raise Refused("it takes no part in evaluations (allow.evaluation)")
            of_train = recipe.evaluation.train_split and recipe.privacy_unit is None
            there = {"test": True, "train": of_train, "dev": recipe.has_choice}
            possible = [split for split, is_there in there.items() if is_there]
        if request.split not in possible:
            what = "trains" if request.purpose == TRAIN else "evaluates"
            raise Refused(f"the recipe {what} on {' and '.join(possible)} examples only")

    def stage(self, run: Any, request: Request, size: int) -> str:
        """Check a well-formed request before it is computed, and write it to the run's record and to the ledger.

        Args:
          run: the site's, with `recipe`, `store` and `experiment`.
          request: see `check`.
          size: bytes of the answer.

        Returns:
          the digest of the round's request for stage 0 with these clients
        """
        record = Record(run.store.read(REQUESTS))
        begins, first = record.is_new_round(request), self.admit(record, request, run.recipe, size)
        if begins:
            self._charge(run, request, record)
        self.ledger.charge_bytes(request.run, size)
        run.store.write(REQUESTS, record.to_json())
        return first

    def admit(self, record: Record, request: Request, recipe: Recipe, size: int) -> str:
        """Like `stage`, but change only `record`, and nothing if the request is refused."""
        limit = self._allow.most_bytes_up
        if record.bytes_up + size > limit:
            raise Refused(f"{limit} bytes have left for this run (allow.most_bytes_up), and no more may")
        if request.purpose == EVALUATE:
            first = _admit_evaluation(record, request, recipe)
        elif request.stage == 0:
            first = self._admit_round(record, request, recipe)
        else:
            first = _admit_later_stage(record, request, recipe)
        record.bytes_up += size
        return first

    def _admit_round(self, record: Record, request: Request, recipe: Recipe) -> str:
        known = record.trained.get(str(request.round))
        if known is None:
            if request.round < record.newest:
                raise Refused(f"round {request.round} comes after round {record.newest}; rounds only grow")
            if record.rounds >= self._allow.most_rounds:
                raise Refused(f"it answers {self._allow.most_rounds} rounds of a run (allow.most_rounds), and no more")
            record.begin_round(request, oldest=request.round - CHECKPOINTS)
            return request.digest
        again = f"round {request.round} was asked for with other"
        if known["arrays"] != request.arrays:
            raise Refused(f"{again} weights before; a round is answered once")
        if request.asked_clients not in known["sets"]:
            sets = [*(asked["clients"] for asked in known["sets"]), request.clients]
            if len(sets) > _attempts(recipe):
                raise Refused(f"{again} clients before; a round is answered once")
            if min(map(len, groups(sets))) < self._allow.least_clients:
                raise Refused(f"{again} clients before, and few of these would tell both sums apart")
            known["sets"].append(request.asked_clients)
        return request.digest

    def _charge(self, run: Any, request: Request, record: Record) -> None:
        """Charge a new training round to the recipe's budget of ε, and to the site's for all runs on its data."""
        accounting, noise, releases = accounting_in(run.experiment), None, {}
        over = f"round {request.round} would spend more than the recipe's ε"
        if noise_is_shared(run.recipe):
            if accounting.budget is not None and accounting.epsilon(record.rounds) > accounting.budget * SLACK:
                raise Refused(f"{over} = {accounting.budget:g}")
            noise, releases = accounting.noise_multiplier, dict.fromkeys(request.clients, RELEASE)
        if accounting is not None and accounting.unit != "client":
            taken = collections.Counter(self.ledger.rounds_of(request.run)) + collections.Counter(request.clients)
            if accounting.budget is not None and accounting.epsilon_of(taken) > accounting.budget * SLACK:
                raise Refused(f"{over} = {accounting.budget:g}")
            noise = accounting.noise_multiplier
            releases = {client: accounting.releases[client] for client in request.clients}
        self.charge_round(request.run, request.round, noise, releases)

    def charge_round(
        self, run: str, round_num: int, noise_multiplier: float | None, releases: Mapping[str, tuple[float, int]]
    ) -> None:
        """Write a round to the ledger if the budget of all runs on these data allows it (see `Ledger.charged`)."""
        charged, limit = self.ledger.charged(run, round_num, noise_multiplier, releases), self._allow.epsilon_total
        if charged is None:
            return
        if limit is not None and (after := self.ledger.epsilon_with(run, charged)) > limit * SLACK:
            spent = rounded_up(self.ledger.epsilon_with(run))
            raise Refused(
                f"its data have spent ε = {spent}, and round {round_num} would make it {rounded_up(after)}, above "
                f"{limit:g} (allow.epsilon_total)"
            )
        self.ledger.write(charged)


def _admit_evaluation(record: Record, request: Request, recipe: Recipe) -> str:
    of_split = record.evaluated.get(request.split, {})
    known = of_split.get(str(request.round), [])
    if request.digest not in known:
        limit = -(-recipe.training.rounds // recipe.evaluation.every) + SPARE_EVALUATIONS
        if len(known) >= MAX_WEIGHTS:
            raise Refused(f"it evaluates {MAX_WEIGHTS} weights on {request.split} examples in a round, and no more")
        if sum(map(len, of_split.values())) >= limit:
            raise Refused(f"it evaluates {limit} weights on {request.split} examples in this run, and no more")
        record.evaluated.setdefault(request.split, {})[str(request.round)] = [*known, request.digest]
    return request.digest


def _admit_later_stage(record: Record, request: Request, recipe: Recipe) -> str:
    known, name = record.trained.get(str(request.round)), f"stage {request.stage} of round {request.round}"
    first = record.first_of(request)
    if first is None:
        raise Refused(f"{name} comes without the stages before it")
    digests = known["stages"].setdefault(str(request.stage), [])
    if request.digest not in digests:
        if len(digests) >= MAX_REPEATS * _attempts(recipe):
            raise Refused(f"{name} was asked for too often with other sums")
        digests.append(request.digest)
    return first


def _attempts(recipe: Recipe) -> int:
    """Return how many sets of clients may be tried in a round."""
    return recipe.training.max_attempts if recipe.privacy_unit is None else 1
