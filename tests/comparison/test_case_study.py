"""The case study: which sentences of a fact each method trains on, against what the runs' models say."""

from __future__ import annotations

import dataclasses
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from tests.bags_for_tests import HIDDEN, planted_table, prepare, train_table, trained, trained_without_dev
from tests.upper_floors import builder, command, refusal, share_computations, tiny
from tff_re.comparison.case_study import Case, CaseSentence, _facts, case_csv, study
from tff_re.errors import UserError
from tff_re.recipes.reading import resolve
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.runs.run import train_run
from tff_re.runtime import DEFAULT_RUNTIME
from tff_re.tasks.data_paths import DataPaths

pytestmark = pytest.mark.xdist_group("bags")

METHODS = ("mil_none", "mil_one", "lazy_mil")


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


@pytest.fixture(scope="module")
def runs(runtime):
    return {name: trained(runtime, name) for name in METHODS}


@pytest.fixture(scope="module")
def cases(runs, runtime):
    """All facts with sentences on two platforms, over the three runs."""
    return study([run.folder for run in runs.values()], DataPaths(), DEFAULT_RUNTIME, facts=100)


def by_platform(case):
    """Platform -> its sentences of the fact."""
    sentences_of = {}
    for sentence in case.sentences:
        sentences_of.setdefault(sentence.platform, []).append(sentence)
    return sentences_of


def logits_of(run, case):
    """Sentence id -> (log p(relation | sentence), the relation's logit), from Keras."""
    prepared = run.experiment.prepared
    model = run.experiment.model.keras_model(run.result.weights)
    label = prepared.label_names.index(case.relation)
    logits_by_id = {}
    sentence_of = {sentence.sentence_id: sentence for sentence in prepared.corpora[0].sentences}
    for client, samples in zip(prepared.examples.clients, prepared.partition.clients.values(), strict=True):
        ids = [i for i in samples.train for _ in sentence_of[i].relations]
        rows = {name: client.train[name] for name in prepared.inputs.specs}
        logits = np.asarray(model(rows, training=False)["logits"], np.float64)
        logarithms = logits[:, label] - np.log(np.exp(logits).sum(axis=1))
        logits_by_id |= dict(zip(ids, zip(logarithms, logits[:, label], strict=True), strict=True))
    return logits_by_id


def test_the_facts_with_most_sentences_on_two_platforms_come_first(cases):
    sizes = [len(case.sentences) for case in cases]
    assert sizes == sorted(sizes, reverse=True) and len(cases) > 3
    for case in cases:
        assert case.relation != "NA" and len(by_platform(case)) > 1
        assert all(sentence.states is None and set(sentence.shares) == set(METHODS) for sentence in case.sentences)
    assert len({(case.pair, case.relation) for case in cases}) == len(cases)
    assert {case.relation for case in cases if case.pair == ("h1", "t1")} == {"/a/visits", "/b/likes"}


@pytest.mark.slow
def test_ave_trains_on_all_alike_and_att_by_what_its_model_says(runtime):
    runs = {name: trained(runtime, name) for name in ("mil_ave", "mil_att")}
    for case in study([run.folder for run in runs.values()], DataPaths(), DEFAULT_RUNTIME, facts=3):
        for sentences in by_platform(case).values():
            assert [s.shares["mil_ave"] for s in sentences] == pytest.approx([1 / len(sentences)] * len(sentences))
            weights = np.exp([logits_of(runs["mil_att"], case)[s.sentence_id][1] for s in sentences])
            assert [s.shares["mil_att"] for s in sentences] == pytest.approx(weights / weights.sum(), abs=1e-5)


def test_methods_train_on_what_their_models_say(cases, runs):
    """None on all, One on the most probable sentence of each platform, Lazy MIL on that of all."""

    def most_probable(sentences, method):
        best = max(sentences, key=lambda s: scores[method][s.sentence_id][0])
        return [float(s is best) for s in sentences]

    for case in cases[:3]:
        scores = {name: logits_of(runs[name], case) for name in ("mil_one", "lazy_mil")}
        assert all(s.shares["mil_none"] == 1 for s in case.sentences)
        assert [s.shares["lazy_mil"] for s in case.sentences] == most_probable(case.sentences, "lazy_mil")
        for sentences in by_platform(case).values():
            assert [s.shares["mil_one"] for s in sentences] == most_probable(sentences, "mil_one")


@pytest.mark.slow
def test_made_up_sentences_tell_whether_they_state_their_fact(runtime):
    """On a run of Lazy MIL's control, which selects what Lazy MIL does."""
    from datasets.bags.planted import planted

    folder, _, _ = trained_without_dev(runtime)
    row = read_history(RunFolder(folder))[-1]
    assert row["clients/counted"] == 2 and row["local/steps"] == 2 * -(-row["selection/sentences"] // 8)
    expressed = planted(24, 0.4, num_relations=2, zipf=0.5, seed=0).expressed
    cases = study([folder], DataPaths(), DEFAULT_RUNTIME, facts=100)
    assert {s.states for case in cases for s in case.sentences} == {True, False}
    for case in cases:
        assert all(s.states == (expressed[s.sentence_id] == case.relation) for s in case.sentences)
        assert sum(s.shares[folder.name] for s in case.sentences) == 1


def made(count: int, **shares) -> Case:
    def sentence(n):
        shares_of_sentence = {name: values[n] for name, values in shares.items()}
        return CaseSentence(
            f"s{n}", f"d{n}", f"client {n % 2}", f"{HIDDEN} {n}", (0, 1), (2, 3), None, shares_of_sentence
        )

    return Case(("h", "t"), "r", tuple(map(sentence, range(count))))


def test_the_sentences_that_are_trained_on_most():
    case = made(5, a=[1, 0, 0, 1, 0], b=[0.1, 0.2, 0.3, 1, 0.4])
    assert [s.sentence_id for s in case.top_trained(3)] == ["s0", "s3", "s4"]
    assert [s.sentence_id for s in case.top_trained(9)] == ["s0", "s1", "s2", "s3", "s4"]
    assert HIDDEN not in repr(case) and HIDDEN not in repr(case.sentences[0])


def test_a_file_of_the_shares(tmp_path):
    case = made(2, a=[1.0, 0.0], b=[0.25, 0.75])
    known = dataclasses.replace(case, sentences=tuple(dataclasses.replace(s, states=True) for s in case.sentences))
    case_csv(tmp_path / "c.csv", [case, known])
    lines = (tmp_path / "c.csv").read_text("utf-8").splitlines()
    assert lines[0] == "head,relation,tail,sentence,document,platform,states,a,b"
    assert lines[1:3] == ["h,r,t,s0,d0,client 0,,1.0,0.25", "h,r,t,s1,d1,client 1,,0.0,0.75"]
    assert lines[3] == "h,r,t,s0,d0,client 0,1,1.0,0.25" and HIDDEN not in "\n".join(lines)


# The command.


def test_the_command_shows_and_writes_no_text_unless_told(cases, runs, capsys, tmp_path):
    folders = [runs[name].folder for name in ("mil_one", "lazy_mil")]
    typed = command(capsys, "cases", *folders, "--facts", 2, "--out", tmp_path / "c.csv")
    assert typed.code == 0 and typed.err == ""
    for case in cases[:2]:
        assert f"{case.pair[0]}, {case.relation}, {case.pair[1]}: {len(case.sentences)} sentences" in typed.out
        assert all(s.sentence_id in typed.out for s in case.sentences)
    assert typed.out.count("✓") == sum(
        s.shares[n] for c in cases[:2] for s in c.sentences for n in ("mil_one", "lazy_mil")
    )
    assert "states it" not in typed.out
    assert HIDDEN not in typed.out and HIDDEN not in (tmp_path / "c.csv").read_text("utf-8")
    with_text = command(capsys, "cases", folders[1], "--facts", 1, "--show-text", "--sentences", 1)
    assert with_text.code == 0 and with_text.out.count(HIDDEN) == 1
    assert f"{len(cases[0].sentences) - 1} more, of which methods train on less" in " ".join(with_text.out.split())


def test_the_command_for_a_pair(runs, capsys):
    typed = command(capsys, "cases", runs["mil_one"].folder, "--pair", "h1, t1")
    assert typed.code == 0 and "h1, /a/visits, t1" in typed.out and "h1, /b/likes, t1" in typed.out
    assert typed.out.count("sentences") == 2
    typed = command(capsys, "cases", runs["mil_one"].folder, "--pair", "h3,t3")  # without a fact
    refusal(typed, "no training sentence states a fact about h3 and t3; give another --pair")
    for pair in ("h1", "h1,", "a,b,c"):
        refusal(command(capsys, "cases", runs["mil_one"].folder, "--pair", pair), f"--pair {pair}: must be two ident")


@pytest.mark.slow
def test_runs_that_do_not_belong_together(runs, runtime, capsys, tmp_path):
    table = {**runs["mil_none"].table, "training": {"rounds": 1, "client_fraction": 0.67}}
    train_table(table, tmp_path / "seed1", runtime, seed=1, details=False)
    typed = command(capsys, "cases", runs["mil_none"].folder, tmp_path / "seed1")
    refusal(typed, f"{tmp_path / 'seed1'}: its data or partition differ from", "use runs with the same seed")
    train_run(tiny("training.rounds=1"), tmp_path / "other", builder=builder(), runtime=runtime, details=False)
    typed = command(capsys, "cases", runs["mil_none"].folder, tmp_path / "other")
    refusal(typed, f"{tmp_path / 'other'}: is a run of the task synthetic, but cases need a run on bags of sentences")
    refusal(command(capsys, "cases", tmp_path / "none"), f"{tmp_path / 'none'}: no such folder")
    refusal(command(capsys, "cases", runs["mil_none"].folder, "--out", tmp_path / "no" / "c.csv"), "c.csv")


def test_runs_of_one_name_are_told_apart(runs, tmp_path):
    for name in ("a", "b"):
        shutil.copytree(runs["mil_none"].folder, tmp_path / name / "run")
    (case,) = study([tmp_path / name / "run" for name in ("a", "b")], DataPaths(), DEFAULT_RUNTIME, facts=1)
    assert list(case.sentences[0].shares) == [str(tmp_path / name / "run") for name in ("a", "b")]


@pytest.mark.parametrize(
    ("sections", "wanted"),
    [
        ({"partition": {"name": "iid", "num_clients": 1}}, "no fact has sentences on more than one platform"),
        (
            {"task": {"train_on": "stated"}},
            "a part of its rows (task.train_on); give a run that was trained on all of them",
        ),
    ],
)
def test_runs_without_facts_to_show(sections, wanted, tmp_path):
    table = planted_table(**sections)
    experiment = SimpleNamespace(prepared=prepare(table), recipe=resolve(table, "r.toml"))
    with pytest.raises(UserError) as caught:
        _facts(SimpleNamespace(experiment=experiment, folder=RunFolder(tmp_path)), 3, None)
    assert wanted in str(caught.value)
