"""Entities recognised across sites: the numbers of the simulation, types that sites agree on, sums that are checked."""

from __future__ import annotations

import contextlib
import re
from types import SimpleNamespace

import numpy as np
import pytest

from computations import federated as tff
from computations.client_work import LocalTraining
from tests.models.encoders_for_tests import chinese_encoder
from tests.models.tagged_for_tests import local
from tests.recognition_for_tests import TYPES, recipe_of, record, write_texts
from tests.sites.sites_for_tests import NAMES, Federation, stages, trained, write_site
from tests.sites.test_lying_site import QUICK, repacked
from tests.upper_floors import SECRET, assert_same_weights
from tff_re.errors import UserError
from tff_re.models import MODELS
from tff_re.models.inputs import TaggedTokenInput
from tff_re.recipes.reading import resolve, tomllib
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.runs.run import train_run
from tff_re.runtime.compiled_form import Step
from tff_re.runtime.errors import RuntimeProblem
from tff_re.runtime.in_process.expressions import CANCELLATION, Scope
from tff_re.runtime.in_process.leaves import Cancellation
from tff_re.sites.experiments import summed_evaluation
from tff_re.sites.messages import unpack
from tff_re.sites.program import Program
from tff_re.sites.run import train_at_sites
from tff_re.sites.sums import BadSums, Limits, checked
from tff_re.sites.transport import InMemory

DATA = {"dataset": "entities", "path": "texts.jsonl"}
SHARE = {"partition": {"name": "iid", "num_clients": 3}, "training": {"rounds": 2, "clients_per_round": 3}}


def recipe(**sections):
    """Of three clients; the texts are the sites'."""
    task = {"path": None, "entity_types": [*TYPES], "min_clients": 2, **sections.pop("task", {})}
    return recipe_of("unused", task=task, training=SHARE["training"], **sections)


def shares(folder, parts=3):
    """Name -> file of sites that hold the same file, and a part of the recipe's clients each."""
    files = {}
    for number in range(1, parts + 1):
        name = f"machine{number}"
        clients = {"rule": "share", "share": f"{number}/{parts}"}
        files[name] = write_site(folder / name, name, {}, data=DATA, clients=clients)
        write_texts(folder / name / "texts.jsonl", map(record, range(32)))
        text = files[name].read_text("utf-8")  # the first share counts the words of all
        files[name].write_text(re.sub(r"\[vocabulary\]\nsecret = .*\n", "", text), "utf-8")
    return files


def run_of(files, folder, recipe, **ways):
    federation = Federation(files)
    try:
        engine = ways.pop("engine", lambda federation: federation.engine)(federation)
        experiment, result = train_at_sites(recipe, folder / "run", engine, details=False, **ways)
    finally:
        federation.close()
    return SimpleNamespace(folder=folder, experiment=experiment, result=result, sent=federation.sent)


def simulated(files, folder, recipe):
    table = tomllib.loads(recipe.to_toml())
    table["task"]["path"] = str(next(iter(files.values())).with_name("texts.jsonl"))
    return train_run(resolve(table, "simulated.toml"), folder / "simulated", runtime="in-process", details=False)


@pytest.fixture(scope="module")
def across(tmp_path_factory):
    """Three shares of a run with a CRF, whose clients annotate different types, and the simulation."""
    folder = tmp_path_factory.mktemp("across")
    annotated = {"client-0": ["drug"], "client-1": ["symptom"]}
    of_sites = recipe(
        task={"scheme": "BIOES", "annotated": annotated}, model={"crf": True}, partition=SHARE["partition"]
    )
    files = shares(folder / "sites")
    return run_of(files, folder, of_sites), simulated(files, folder, of_sites)


def test_three_shares_are_the_simulation_to_the_bit(across):
    run, (here, alone) = across
    assert run.experiment.prepared.encoding == here.prepared.encoding
    assert run.experiment.prepared.class_names == here.prepared.class_names and len(here.prepared.class_names) == 9
    assert_same_weights(run.result.weights, alone.weights)
    there, simulation = (read_history(RunFolder(run.folder / name)) for name in ("run", "simulated"))
    for ours, expected in zip(there, simulation, strict=True):
        single = {f"{split}/f1_{which}" for split in ("test", "train") for which in ("worst", "median", "best")}
        ours = {name: value for name, value in ours.items() if not name.startswith("sites/")}
        assert ours.keys() == expected.keys() - single
        np.testing.assert_allclose(list(ours.values()), [expected[name] for name in ours], rtol=1e-6)


def test_no_text_and_no_number_of_a_client_leaves_a_site(across):
    run, _ = across
    answers = b"".join(answer for _, _, answer in run.sent)
    files = b"".join(path.read_bytes() for path in (run.folder / "run").rglob("*") if path.is_file())
    for where in (answers, files):
        assert SECRET.encode() not in where and b"note-" not in where and "没吃药".encode() not in where
    evaluated = list(stages(run, "evaluate"))
    assert evaluated and all(table == {"site": site} for site, _, _, (table, _) in evaluated)


def site_files(folder, **tables):
    """Three hospitals with texts of their own, one client each."""
    files = {}
    for number, name in enumerate(NAMES):
        files[name] = write_site(folder / name, name, {}, data=DATA, **tables)
        write_texts(
            folder / name / "texts.jsonl", (record(n, prefix=f"{name}-") for n in range(number, 12 + 4 * number))
        )
    return files


@pytest.mark.parametrize(
    "sections",
    [
        pytest.param({}, id="characters"),
        pytest.param(
            {
                "task": {"encoding": "pieces", "tokenizer": str(chinese_encoder()), "min_clients": None},
                # Frozen layers would run in batches of a site's own texts, which may change last digits.
                "model": {"name": "token_encoder"},
            },
            id="pieces",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"task": {"unannotated": "global_model"}, "model": {"crf": True}}, id="global model", marks=pytest.mark.slow
        ),
        pytest.param(
            {"algorithm": {"name": "moon"}, "choice": {"dev_share": 0.3, "metric": "f1"}},
            id="moon",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_hospitals_that_annotate_different_types(sections, tmp_path):
    """Clients are named by their sites; a site reads of the others' types no more than the recipe says."""
    annotated = {"aachen": ["drug"], "bonn": ["symptom"]}
    tokenizer = sections.get("task", {}).get("tokenizer")
    files = site_files(tmp_path / "sites", **({} if tokenizer is None else {"set": {"task.tokenizer": tokenizer}}))
    everything = tmp_path / "all.jsonl"
    everything.write_text("".join(p.with_name("texts.jsonl").read_text("utf-8") for p in files.values()), "utf-8")
    task = {"annotated": annotated, **sections.get("task", {})}
    run = trained(tmp_path, recipe(**{**sections, "task": task}), files, everything)
    assert run.simulation.prepared.annotated == {"aachen": ("drug",), "bonn": ("symptom",)}
    assert_same_weights(run.result.weights, run.simulated.weights)
    assert run.result.chosen == run.simulated.chosen


@pytest.mark.parametrize(
    ("task", "line"),
    [
        ({"entity_types": None}, "task.entity_types: all sites need the same types; list them in the recipe"),
        (
            {"annotated_by": "turns"},
            "task.annotated_by: a site does not know the clients of other sites; name clients in",
        ),
        (
            {"encoding": "pieces", "tokenizer": "x", "max_length": 0, "min_clients": None},
            "task.max_length = 0: all sites need the same length; set it, e.g. to 512",
        ),
    ],
    ids=range(3),
)
def test_what_sites_cannot_agree_on_is_refused(task, line, tmp_path):
    with pytest.raises(UserError) as caught:
        run_of(site_files(tmp_path), tmp_path, recipe(task=task))
    assert line in str(caught.value) and "\n" not in str(caught.value) and not (tmp_path / "run").exists()


def test_feded_of_tokens_is_refused(tmp_path):
    server = write_texts(tmp_path / "server.jsonl", (record(n, prefix="s") for n in range(8)))
    of_sites = recipe(task={"path": str(server), "server_share": 0.2}, algorithm={"name": "feded"})
    with pytest.raises(UserError) as caught:
        run_of(site_files(tmp_path), tmp_path, of_sites)
    assert "feded on tokens cannot run across sites" in str(caught.value)


# Sums

HONEST = {
    "true_positives": [2, 1],
    "predicted": [3, 2],
    "actual": [5, 1],
    "overlapping_predicted": [2, 2],
    "overlapping_actual": [3, 1],
    "correct_tags": [30],
}


@pytest.fixture(scope="module")
def evaluation():
    """The evaluation of a tagger as a program of sites, and the server's scope of its first stage."""
    inputs = TaggedTokenInput(9, 5, TYPES, "BIO")
    options = MODELS["tagger"].Options(units=2, embedding_width=2)
    program = Program(summed_evaluation(local(MODELS["tagger"], options, inputs)))
    scope = Scope({CANCELLATION: Cancellation()})
    for step in program.steps:
        if isinstance(step, Step) and not step.is_argument:
            with contextlib.suppress(KeyError):  # needs what is given, or a sum
                scope[step.name] = program.compute(step, scope)
    yield program, scope
    program.close()


def check(evaluation, **changed):
    """`checked` of a site's answer, whose entries stand in the order of the statistics."""
    program, scope = evaluation
    values = {"examples": 40.0, "loss": 3.0, **HONEST, **changed}
    (aggregation,) = program.stages[0].sums
    names = tff.structure.name_list(aggregation.type)
    assert {*names} == {*values}
    limits = Limits(LocalTraining(), counted=False)
    return checked(
        scope,
        program.stages[0],
        [np.array(values[name], np.float32) for name in names],
        limits.bounds((4, 6), (0, 1), 3),
    )


@pytest.mark.parametrize("name", HONEST)
def test_counts_of_entities_that_no_site_can_have(name, evaluation):
    check(evaluation)
    for value, said in ((-1, f"hold -1 for '{name}'"), (np.nan, "hold NaN"), (np.inf, f"hold inf for '{name}'")):
        changed = [value, *HONEST[name][1:]]
        with pytest.raises(BadSums, match=said):
            check(evaluation, **{name: changed})
    if name not in ("predicted", "actual"):
        with pytest.raises(BadSums, match=f"its sums hold more for '{name}' than for "):
            check(evaluation, **{name: [41, *HONEST[name][1:]]})


def test_a_site_that_lies_is_named(tmp_path):
    def lying(federation):
        def call(site):
            def answered(message):
                answer, (table, _) = federation._recorded(site)(message), unpack(message)
                if site != "bonn" or table["kind"] != "stage" or table["purpose"] != "evaluate":
                    return answer
                head, arrays = unpack(answer)
                first = next(n for n, array in enumerate(arrays) if array.shape == (len(TYPES),))
                return repacked(head, [*arrays[:first], arrays[first] + 1000, *arrays[first + 1 :]])

            return answered

        return InMemory({name: call(name) for name in NAMES})

    with pytest.raises(RuntimeProblem, match="site bonn: its sums hold more for 'true_positives' than for 'predicted'"):
        run_of(site_files(tmp_path), tmp_path, recipe(), engine=lying, patience=QUICK)
