"""A coordinator that lies to a site: in the set-up of a run, and about its stages."""

from __future__ import annotations

import json
import os
import re

import attrs
import numpy as np
import pytest

from tests.sites.adversaries.federations import KEYS, SITES
from tests.sites.adversaries.tricks import trick
from tests.sites.adversaries.victims import Victim, changed, shifted
from tests.sites.sites_for_tests import recipe_of
from tff_re.errors import UserError
from tff_re.recipes.reading import resolve, tomllib
from tff_re.sites import protocol
from tff_re.sites.policy import FILE_KEYS, for_sites, read_site
from tff_re.sites.requests import EVALUATE, TRAIN
from tff_re.sites.site import SiteService

OTHER_RUN = "f" * 32


class LyingCoordinator:
    """Attributes:
    site: that it lies to.
    fresh: gives a copy of the site that may be changed.
    run: the run that has begun.
    """

    def __init__(self, site: Victim, fresh):
        self.site, self.fresh, self.begun = site, fresh, site.begun
        self.run = self.asked("hello").run

    def asked(self, kind: str, **values) -> protocol.Question:
        """The first honest question of a kind with these values."""
        return self.begun.questions(kind, self.site.name, **values)[0]


class AboutStages(LyingCoordinator):
    """Tricks in the rounds, after the first was answered."""

    @property
    def first(self) -> protocol.Stage:
        """The first question of the round that was answered."""
        return self.asked("stage", purpose=TRAIN)

    def next(self, **changes) -> protocol.Stage:
        """A first question of the round after it, which is honest but for these changes."""
        return attrs.evolve(self.first, **{"round": 2, **changes})

    @property
    def stages(self) -> int:
        return len(self.begun.questions("stage", self.site.name, purpose=TRAIN))

    @trick("stage", holds="the bytes that were sent", every=True)
    def replayed_requests(self):
        """It sends the round's requests again, the last stage first, for new noise or another sum."""
        self.site.require_as_before()

    @trick("stage", holds="weights before; a round is answered once", every=True)
    def other_weights_of_a_round(self):
        """It asks a round again with other weights, and subtracts (mend issue D)."""
        for by in (1.0, -1e6, np.nan, np.inf):
            yield attrs.evolve(self.first, arrays=shifted(self.first.arrays, by))

    @trick("stage", holds="clients before; a round is answered once", every=True)
    def other_clients_of_a_round(self):
        """It asks a round again for fewer clients or in another order, and subtracts (mend issues B and C)."""
        clients, versions = self.first.clients, self.first.versions
        assert len(clients) > 2
        for rows in (slice(0, 2), slice(None, None, -1)):
            yield attrs.evolve(self.first, clients=clients[rows], versions=versions[rows])

    @trick("stage", holds="over at least 2 of its clients (allow.least_clients), not 1", every=True)
    def one_client(self):
        """It asks for the sums of one client (mend issue C)."""
        yield self.next(clients=self.first.clients[:1], versions=self.first.versions[:1])

    @trick("stage", holds="these are not clients of this site", every=True)
    def clients_of_another_site(self):
        """It names clients that the site does not have, so that sums are over fewer (mend issue C)."""
        others = self.begun.questions("stage", SITES[0], purpose=TRAIN)[0].clients
        for more in (others[:1], ("bonn/99",), ("bonn/../../etc/passwd",)):
            versions = self.first.versions[:1] * (len(self.first.versions) and len(self.first.clients) + 1)
            yield self.next(clients=(*self.first.clients, *more), versions=versions)

    @trick("stage", holds="and no stage", every=True)
    def a_stage_that_there_is_not(self):
        """It asks for a stage after the last one."""
        for stage in (self.stages, 1000):
            yield self.next(stage=stage)

    @trick("stage", holds="unknown key 'given'")
    def values_of_clients(self):
        """It says what clients hold, so that the shares of all but one are zero (mend issue C)."""
        clients = self.first.clients
        yield changed(self.next(), given={})
        yield changed(self.next(), clients=[{"id": c, "given": {}} for c in clients]), "'clients' must be"
        yield changed(self.next(), clients=[clients[0]] * 4), "'clients' must not hold the same twice"

    @trick("stage", holds="comes without the stages before it", every=True)
    def a_later_stage_first(self):
        """It asks for a round's last stage before the first, with sums of its own making."""
        last = self.stages - 1
        line = f"stage {last} of round 2 comes without the stages before it" if last else "weights before"
        asked = self.asked("stage", purpose=TRAIN, stage=last)
        yield attrs.evolve(asked, round=2 if last else 1, arrays=shifted(asked.arrays)), line

    @trick("stage", holds="the recipe has rounds 1 to 2", every=True)
    def rounds_that_the_recipe_has_not(self):
        """It asks for more rounds than the recipe has (mend issue D)."""
        for number in (0, 3, 1000, 1 << 31):
            yield self.next(round=number)

    @trick("stage", holds="trains on train examples only", every=True)
    def another_split(self):
        """It trains on test examples, with the noise of the training examples (mend issue B)."""
        for round_num in (1, 2):
            for split in ("test", "dev"):
                yield self.next(split=split, round=round_num)

    @trick("stage", holds="would compute something else for this run", every=True)
    def another_computation(self):
        """It names a computation of its own, or that of evaluations for training."""
        evaluation = self.site.service._run(self.run).programs[EVALUATE].digest
        for program in ("0" * 64, evaluation):
            yield self.next(program=program)
        yield self.next(purpose=EVALUATE, split="test")

    @trick("stage", holds="a client's state is one of a round before", every=True)
    def states_of_other_rounds(self):
        """It names states of clients that they have not left yet, or some where clients keep none."""
        count = len(self.first.clients)
        for version in (2, 1 << 31):
            yield self.next(versions=(version,) * count)
        yield self.next(versions=() if self.first.versions else (-1,) * count)

    @trick("stage", holds="the message is not as this version of tff-re makes it", every=True)
    def arrays_of_other_types(self):
        """It sends arrays of other types, shapes and numbers than the stage takes."""
        arrays = self.first.arrays
        yield self.next(arrays=(*arrays, arrays[0])), "more arrays than the stage takes"
        yield self.next(arrays=(*arrays, np.zeros(1 << 20, bool))), "more arrays than the stage takes"
        yield self.next(arrays=arrays[:-1])
        yield self.next(arrays=())
        for number, array in enumerate(arrays):
            others = [array[None], array.astype(np.float16), np.zeros([*array.shape, 0], array.dtype)]
            for other in others:
                yield self.next(arrays=(*arrays[:number], other, *arrays[number + 1 :]))

    @trick("masked", "roster", "open", holds="leave in the clear, and not otherwise", every=True)
    def masks_of_a_recipe_without_masks(self):
        """It asks for masked sums, a signature and keys in a run whose recipe masks nothing."""
        values = {field.name: getattr(self.next(), field.name) for field in attrs.fields(protocol.Stage)}
        yield protocol.Masked(**values, attempt=1, sites=SITES)
        roster = {"run": self.run, "attempt": 1, "sites": SITES}
        yield protocol.Roster(**roster), "it has sent no sums of this attempt"
        yield protocol.Open(**roster, signatures=np.zeros([2, 64], np.uint8)), "it has sent no sums of this attempt"

    @trick("stage", holds="it does not know the run", every=True)
    def a_stage_of_another_run(self):
        """It asks for a stage of a run that the site has not begun."""
        yield self.next(run=OTHER_RUN)

    def evaluation(self, **changes) -> protocol.Stage:
        """The honest question for the evaluation after the first round."""
        return attrs.evolve(self.asked("stage", purpose=EVALUATE), **changes)

    @trick("stage", holds="it evaluates all of its clients together")
    def evaluations_as_an_oracle(self):
        """It evaluates single clients, training examples, or many weights in a round."""
        clients = self.evaluation().clients
        yield self.evaluation(clients=clients[:1])
        yield self.evaluation(clients=clients[:2])
        for split in ("train", "dev"):
            yield self.evaluation(split=split), "evaluates on test examples only"
        site = self.fresh()
        for by in (1.0, 2.0):
            answer = site.answer(self.evaluation(arrays=shifted(self.evaluation().arrays, by)))
            assert isinstance(answer, protocol.StageAnswer)
        more = self.evaluation(arrays=shifted(self.evaluation().arrays, 3.0))
        site.require_refusal(more, "it evaluates 3 weights on test examples in a round, and no more")

    @trick("stage", holds="a refusal or sums, and the round is used")
    def weights_that_are_not_numbers(self):
        """It sends weights that are NaN or infinite, to break the site or to see single clients."""
        for value in (np.nan, np.inf, 3e38):
            site = self.fresh()
            arrays = tuple(np.full_like(a, value) if a.dtype.kind == "f" else a for a in self.first.arrays)
            answer = site.answer(self.next(arrays=arrays))
            assert isinstance(answer, protocol.StageAnswer) or answer.failed is not None, answer
            site.require_refusal(self.next(), "weights before; a round is answered once")
            site.service.close()

    @trick("stage", holds="rounds only grow")
    def an_older_round(self):
        """It asks for a round after a later one, for a sum that the later one did not need."""
        site = self.fresh()
        path = site.folder / "state" / "runs" / self.run / "requests.json"
        table = json.loads(path.read_text("utf-8"))
        path.write_text(json.dumps({**table, "trained": {}, "newest": 2}), "utf-8")
        site.require_refusal(self.first, "round 1 comes after round 2; rounds only grow")

    @trick("stage", holds="is a link; its operator puts the original back")
    def links_in_the_state(self):
        """Someone who can write to `state/` lays links there, so that the site reads, writes and deletes elsewhere."""
        for name in ("", "kept", "clients", "requests.json", "agreement.json", "recipe.toml", "secret"):
            site = self.fresh()
            path, away = site.folder / "state" / "runs" / self.run / name, site.folder / "elsewhere"
            if path.exists():
                path.rename(away)
            else:
                away.mkdir()
            path.symlink_to(away, target_is_directory=away.is_dir())
            line = "is a link; its operator puts the original back"
            before = site.disk()
            answers = [site.answer(q) for q in (self.next(), self.first, protocol.Finish(run=self.run))]
            refused = [isinstance(answer, protocol.No) and line in answer.reason for answer in answers]
            # A secret is read where there is noise, and states are written where clients keep any.
            assert any(refused) or name == "secret", (name, answers)
            assert {k: v for k, v in site.disk().items() if "elsewhere" in k} == {
                k: v for k, v in before.items() if "elsewhere" in k
            }
            site.service.close()
            os.unlink(path)
        ledger = self.fresh().folder / "state" / "ledger.json"
        ledger.rename(ledger.with_name("elsewhere.json"))
        ledger.symlink_to(ledger.with_name("elsewhere.json"))
        with pytest.raises(UserError, match=r"ledger\.json: is a link; put the original back"):
            SiteService(read_site(ledger.parents[1] / "site.toml"))


class AboutTheSetUp(LyingCoordinator):
    """Tricks before the first round, or again after it."""

    @trick("hello", holds="the run was begun with another recipe", every=True)
    def another_recipe_of_a_run(self):
        """It begins a run again with a recipe that has the same digest, and another seed."""
        hello = self.asked("hello")
        for text in (f"{hello.recipe}\n", re.sub(r"(?m)^seed = \d+$", "seed = 1", hello.recipe, count=1)):
            assert text != hello.recipe
            yield attrs.evolve(hello, recipe=text)

    @trick("hello", holds="is not accepted here; its operator allows it by allow.recipes", every=True)
    def a_recipe_that_is_not_allowed(self):
        """It sends a recipe that the site's file does not list."""
        for change in ("algorithm.learning_rate=0.2", "training.rounds=1000", "algorithm.local_epochs=9"):
            yield attrs.evolve(self.asked("hello"), run=OTHER_RUN, recipe=self.recipe_with(change))

    def recipe_with(self, *pairs: str) -> str:
        """The run's recipe with other values, as sites get it."""
        return for_sites(resolve(tomllib.loads(self.begun.recipe.to_toml()), "other.toml", pairs))

    @trick("hello", "words", "facts", "agree", "stage", holds="runs were begun on its data", every=True)
    def a_run_more_than_allowed(self):
        """It begins a new run for a new budget, and goes on with it after the refusal (mend issue D)."""
        yield attrs.evolve(self.asked("hello"), run=OTHER_RUN), "1 runs were begun on its data (allow.runs)"
        line = "it does not know the run"
        yield protocol.Words(run=OTHER_RUN), line
        yield protocol.Facts(run=OTHER_RUN), line
        yield attrs.evolve(self.asked("agree"), run=OTHER_RUN), line
        yield attrs.evolve(self.asked("stage", purpose=TRAIN), run=OTHER_RUN), line

    @trick("agree", holds="gives another computation here than at the coordinator", every=True)
    def another_computation_is_agreed_upon(self):
        """It claims to compute something else for the same recipe, and asks for stages all the same."""
        agree = self.asked("agree")
        for purpose, digest in agree.programs.items():
            yield attrs.evolve(agree, programs={**agree.programs, purpose: digest[::-1]})

    @trick("hello", "agree", "stage", holds="it has not agreed to the run yet")
    def updates_side_by_side_after_a_refusal(self):
        """It asks for single updates by a rule that the site refuses (allow.least_clients), and goes on after that."""
        site = self.fresh().restarted(recipes=["any"], runs=9)
        recipe = for_sites(recipe_of("fedavgs", *KEYS, "aggregation.rule=median"))
        assert isinstance(site.answer(protocol.Hello(run=OTHER_RUN, recipe=recipe)), protocol.HelloAnswer)
        agreement = json.dumps({**json.loads(self.asked("agree").agreement), "run": OTHER_RUN})
        agree = protocol.Agree(run=OTHER_RUN, agreement=agreement, programs={})
        stage = attrs.evolve(self.asked("stage", purpose=TRAIN), run=OTHER_RUN)
        for _ in range(2):
            site.require_refusal(agree, "the recipe's rule needs each client's own update")
            site.require_refusal(stage, "it has not agreed to the run yet")
            site = site.restarted()
        site.service.close()

    @trick("agree", holds="the run was begun with another agreement", every=True)
    def another_agreement_of_a_run(self):
        """It changes classes, words or the others' clients in mid-run, so that the same round is another sum."""
        agree = self.asked("agree")
        table = json.loads(agree.agreement)
        others = {
            "label_names": table["label_names"][::-1],
            "words": [*(table["words"] or ())[1:], "made up"],
            "server": table["server"] + 1,
            "encoding": "0" * 64,
            "facts": "0" * 64,
        }
        for key, value in others.items():
            yield attrs.evolve(agree, agreement=json.dumps({**table, key: value}, ensure_ascii=False))

    @trick("agree", holds="its clients are not those that it named", every=True)
    def an_agreement_about_other_clients(self):
        """It says that the site has other clients or sizes than it named, or that the agreement is of another run."""
        agree = self.asked("agree")
        table = json.loads(agree.agreement)
        here = [client for client in table["clients"] if client["site"] == self.site.name]
        others = [client for client in table["clients"] if client not in here]
        for clients in (others, [*others, *here[1:]], [*others, *here[::-1]], [*others, {**here[0], "train": 1}]):
            yield attrs.evolve(agree, agreement=json.dumps({**table, "clients": clients}))
        yield attrs.evolve(agree, agreement=json.dumps({**table, "run": OTHER_RUN}))

    @trick("agree", holds="the agreement is not")
    def an_agreement_of_another_form(self):
        """It sends an agreement that is none, too deep, or has fields of other types."""
        agree = self.asked("agree")
        table = json.loads(agree.agreement)
        clients = [{**client, "site": None} for client in table["clients"]]
        less = {key: value for key, value in table.items() if key != "words"}
        for other, line in (
            ({**table, "more": 1}, "unknown key 'more'"),
            (less, "the key 'words' is missing"),
            ({**table, "clients": clients}, "'clients.site' must be a text"),
            ({**table, "clients": [3]}, "'clients' must be a list of tables"),
            (
                {**table, "clients": [{**clients[0], "site": "", "train": 1.5}]},
                "'clients.train' must be a whole number",
            ),
            ({**table, "server": "1"}, "'server' must be a whole number"),
            ({**table, "server": True}, "'server' must be a whole number"),
            ([], "the agreement is not a table"),
        ):
            yield attrs.evolve(agree, agreement=json.dumps(other)), line
        for text in ("{", "[" * 100_000, "NaN", "\ud800"):
            yield attrs.evolve(agree, agreement=text), "the agreement is not"

    @trick("hello", holds="the recipe is not valid TOML")
    def a_recipe_that_is_none(self):
        """It sends a recipe that is no TOML, too deep, of half a surrogate, or no table."""
        hello = attrs.evolve(self.asked("hello"), run=OTHER_RUN)
        for text in ("[", "a = " + "[" * 100_000, "a = " + "9" * 100_000):
            yield attrs.evolve(hello, recipe=text)
        for text in ("", "task = 3", "\ud800", f"{hello.recipe}\n# \ud800", "[algorithm]\nname = 3"):
            yield attrs.evolve(hello, recipe=text), ""

    @trick("hello", holds="the recipe names a file by")
    def files_of_the_site(self):
        """It names files in the recipe that the site should read."""
        site = self.fresh().restarted(recipes=["any"], runs=9)
        hello = attrs.evolve(self.asked("hello"), run=OTHER_RUN)
        for key in FILE_KEYS:
            table, _, last = key.rpartition(".")
            if key in ("task.path", "task.test_path"):
                continue  # the site's own, whatever the recipe says
            header = f"[{table}]\n" if f"[{table}]" in hello.recipe else None
            text = hello.recipe + f'\n[{table}]\n{last} = "/etc/passwd"\n'
            if header is not None:
                text = hello.recipe.replace(header, f'{header}{last} = "/etc/passwd"\n')
            line = f"the recipe names a file by {key}" if header else ""
            site.require_refusal(attrs.evolve(hello, recipe=text), line)

    @trick("finish", "stage", holds="a round is answered once")
    def a_run_that_is_finished_goes_on(self):
        """It ends the run, so that the site forgets its answers, and asks the round again."""
        site = self.fresh()
        first = self.asked("stage", purpose=TRAIN)
        assert isinstance(site.answer(protocol.Finish(run=self.run)), protocol.FinishAnswer)
        site.require_refusal(attrs.evolve(first, arrays=shifted(first.arrays)), "a round is answered once")
        honest = next(
            answer for message, answer in self.begun.asked[site.name] if protocol.question_of(message).kind == "stage"
        )
        assert site.service.answer(protocol.to_bytes(first)) == honest
        before = site.disk()
        assert isinstance(site.answer(protocol.Finish(run=OTHER_RUN)), protocol.FinishAnswer)
        assert site.disk() == before

    @trick("ping", holds="its name, and nothing else")
    def pings_of_any_run(self):
        """It sends short messages of runs that there are not, to learn which there are or to fill the disk."""
        before = self.site.disk()
        answers = {self.site.service.answer(protocol.to_bytes(protocol.Ping(run=run))) for run in (self.run, OTHER_RUN)}
        assert len(answers) == 1 and self.site.disk() == before

    @trick("facts", holds="its examples are not in bags, and have no facts")
    def facts_of_a_run_without_bags(self):
        """It asks for digests of facts in a run whose examples are no bags."""
        yield protocol.Facts(run=self.run)

    @trick("stage", holds="'round' must be a whole number")
    def rounds_that_are_no_whole_numbers(self):
        """It counts rounds in fractions, texts or truth values, each a round of its own (mend issue D)."""
        first = self.asked("stage", purpose=TRAIN)
        for number in (1.9, True, "1", [1], 1e300):
            yield changed(first, round=number)
        yield changed(first, round=10**30), "'round' must be a number of at most 64 bits"
        yield changed(first, round=-1), "'round' must be from 0"
