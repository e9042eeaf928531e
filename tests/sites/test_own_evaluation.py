"""Bags and whole documents across sites: the clients' are at the sites, those to judge by at the coordinator."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

from datasets.bags.alignment import stated_facts
from datasets.documents.pubtator import read_pubtator
from tests.bags_for_tests import HIDDEN, PCNN, bag_table, with_method, write_pubtator
from tests.documents_for_tests import document_table, marking_encoder, write_biored, write_documents
from tests.sites.sites_for_tests import NAMES, Federation, payload, simulation_inputs, stages, trained, write_site
from tests.upper_floors import assert_same_weights, command, refusal
from tff_re import api
from tff_re.errors import UserError
from tff_re.models.inputs import pieces_of
from tff_re.recipes.reading import resolve
from tff_re.runs.experiment import ExperimentBuilder
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.sites.asking import Patience, Sites
from tff_re.sites.experiments import CoordinatorBuilder
from tff_re.sites.messages import unpack
from tff_re.sites.prepared import AgreedEncoding, coordinated, prepared
from tff_re.sites.run import train_at_sites
from tff_re.sites.set_up import _agree
from tff_re.tasks import TASKS
from tff_re.tasks.data_paths import DataPaths


def bag_sites(folder, **tables):
    """(files of the sites, one with the documents of all): of a site's documents two are those of the site before under
    other numbers."""
    files, whole = {}, ""
    for number, site in enumerate(NAMES):
        blocks = write_pubtator(folder / "made", range(4 * number, 4 * number + 4)).read_text("utf-8").split("\n\n")
        again = write_pubtator(folder / "made", range(4 * number - 2, 4 * number)).read_text("utf-8").split("\n\n")
        again = ["\n".join(f"9{line}" for line in block.splitlines()) for block in again if number]
        data_of_site = "\n\n".join(block.strip() for block in [*blocks, *again]) + "\n"
        files[site] = write_site(
            folder / site, site, {}, data={"dataset": "cdr_aligned", "path": "texts.pubtator"}, **tables
        )
        (folder / site / "texts.pubtator").write_text(data_of_site, "utf-8")
        whole += data_of_site + "\n"
    (folder / "whole.pubtator").write_text(whole, "utf-8")
    return files, folder / "whole.pubtator"


def bag_recipe(folder, task=None, **sections):
    test = write_pubtator(folder / "test.pubtator", range(40, 48))
    data_of_site = {
        "dataset": "cdr_aligned",
        "path": None,
        "test_path": str(test),
        "new_pairs": False,
        "min_clients": 2,
    }
    training = {"rounds": 2, "clients_per_round": 3}
    return resolve(bag_table(task=data_of_site | (task or {}), training=training, **sections), "tiny-bags.toml")


def assert_same_metrics(run):
    there, here = (read_history(RunFolder(run.folder / name)) for name in ("run", "simulated"))
    assert len(there) == 2 and {"dev", "test"} <= {name.split("/")[0] for name in there[0]}
    for ours, simulated in zip(there, here, strict=True):
        assert {name: value for name, value in ours.items() if not name.startswith("sites/")} == simulated
    assert run.result.chosen == run.simulated.chosen and run.result.chosen is not None


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bags")
    return trained(folder, bag_recipe(folder), *bag_sites(folder / "sites"))


def test_lazy_mil_selects_across_sites_what_it_selects_in_one_place(bags):
    assert_same_weights(bags.result.weights, bags.simulated.weights)
    assert_same_metrics(bags)
    facts = bags.experiment.prepared.num_triples
    assert facts == bags.simulation.prepared.num_triples == 12 * 3
    assert sum(len(site.train["y"]) for site in bags.experiment.prepared.examples.clients) > facts  # some at two sites


def test_of_facts_a_coordinator_sees_digests_and_scores(bags):
    digests = {site: unpack(a)[1][0] for site, m, a in bags.sent if unpack(m)[0]["kind"] == "facts"}
    assert [digests[site].shape for site in NAMES] == [(4 * 3, 16), (6 * 3, 16), (6 * 3, 16)]
    shared = {row.tobytes() for row in digests["aachen"]} & {row.tobytes() for row in digests["bonn"]}
    assert len(shared) == 2 * 3
    files_of_run = b"".join(p.read_bytes() for p in (bags.folder / "run").rglob("*") if p.is_file())
    for where in (b"".join(answer for _, _, answer in bags.sent), files_of_run):
        for alone in (b"drug1", b'"C1"', b"CID"):  # a word of one site, an entity, a relation of it
            # But for the names of all relations; a message has JSON in JSON.
            assert alone not in where.replace(b"\\", b"").replace(b'"CID"]', b"")
    for name in NAMES:
        up = sum(payload(sums) for site, _, _, (_, sums) in stages(bags) if site == name)
        assert up == 2 * bags.simulation.traffic.up


def test_the_coordinator_evaluates_a_run_on_its_own_bags(bags, capsys):
    typed = command(capsys, "evaluate", bags.folder / "run", "--runtime", "in-process")
    (chosen, _), history = bags.result.chosen, read_history(RunFolder(bags.folder / "run"))
    assert typed.code == 0 and f"test examples at the server after round {chosen}" in " ".join(typed.out.split())
    assert f"{history[chosen - 1]['test/auc']:.4f}" in typed.out
    typed = command(capsys, "evaluate", bags.folder / "run", "--split", "train", "--runtime", "in-process")
    refusal(typed, "its train examples are at the sites", "--sites aachen,bonn,celle")


@pytest.mark.slow
def test_a_run_on_bags_is_exported(bags):
    exported = api.export(bags.folder / "run", bags.folder / "export", formats="keras", runtime="in-process")
    assert (exported / "model.keras").exists()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mil_one", "mil_att"])
def test_others_on_bags(tmp_path, method):
    """All bags are one batch, without dropout: facts have other numbers than in one place, and stand in their order."""
    recipe = bag_recipe(tmp_path, algorithm=with_method(method, batch_size=64), model={**PCNN, "dropout": 0.0})
    run = trained(tmp_path, recipe, *bag_sites(tmp_path / "sites"))
    for ours, simulated in zip(run.result.weights.trainable, run.simulated.weights.trainable, strict=True):
        np.testing.assert_allclose(ours, simulated, rtol=0, atol=1e-6)
    assert run.result.chosen == run.simulated.chosen


@pytest.mark.parametrize(
    ("task", "tables", "line"),
    [
        ({"algorithm": "lazy_mil_alias"}, {}, "gives the sentences of each client to all others"),
        ({"new_pairs": True}, {}, "task.new_pairs: only the sites know which pairs of entities are trained on"),
        ({"dataset": "planted", "test_path": None}, {}, "generates its sentences, so sites cannot have them"),
        ({"knowledge_base": "facts.tsv"}, {}, "names a file by task.knowledge_base; its operator sets it"),
        ({}, {"vocabulary": {"secret": ""}}, "bags need the sites' secret"),
    ],
)
def test_what_does_not_go_with_bags(tmp_path, task, tables, line):
    files, _ = bag_sites(tmp_path / "sites", vocabulary={"least_clients": 1, **tables.get("vocabulary", {})})
    for path in files.values():
        path.write_text(path.read_text("utf-8").replace('secret = ""', ""), "utf-8")
    federation, method = Federation(files), with_method(task.pop("algorithm", "lazy_mil"))
    with pytest.raises(UserError, match=line):
        recipe = bag_recipe(tmp_path, {"min_clients": 1} | task, algorithm=method)
        train_at_sites(recipe, tmp_path / "run", federation.engine)
    federation.close()


def document_sites(folder, dataset="cdr", write=write_documents, **keys):
    """(files of the sites, one with the documents of all); the longest document is at the coordinator."""
    files, numbers = {}, {}
    for number, site in enumerate(NAMES):
        data_of_site = {"dataset": dataset, "path": "texts.pubtator"}
        files[site] = write_site(
            folder / site, site, {}, data=data_of_site, set={"task.tokenizer": str(marking_encoder())}, **keys
        )
        numbers[site] = [n for n in range(number, 12, 3) if n != 8]
        write(folder / site / "texts.pubtator", numbers[site])
    return files, write(folder / "whole.pubtator", [n for data_of_site in numbers.values() for n in data_of_site])


def document_recipe(task=None, **sections):
    training = {"rounds": 2, "clients_per_round": 3}
    table = document_table(task={"path": None} | (task or {}), training=training, **sections)
    return resolve(table, "tiny-documents.toml")


def test_documents_are_encoded_as_in_one_place(tmp_path):
    files, whole = document_sites(tmp_path)
    federation, recipe = Federation(files), document_recipe()
    agreement, numbers = _agree(Sites(federation.engine, Patience()), recipe, DataPaths(), "0" * 32)
    simulated, partition = simulation_inputs(tmp_path / "one place", recipe, files, whole)
    expected = ExperimentBuilder(DataPaths(partition=partition)).prepare(simulated)
    ours = coordinated(recipe, DataPaths(), agreement)
    assert not numbers and ours.inputs == expected.inputs and ours.pair_relations == ("CID",)
    longest = [unpack(a)[0]["document_form"][0] for _, _, a in federation.sent if b"document_form" in a]
    assert max(longest) < ours.inputs.max_length  # the longest document is at the coordinator
    for service, client in zip(federation.services.values(), expected.examples.clients, strict=True):
        data = service._runs[agreement.run].data
        (held,) = data.examples(agreement, ours.encoding, ours.inputs, None).values()
        assert held[2] is None and held[0].keys() == client.train.keys()
        for name, array in client.train.items():
            np.testing.assert_array_equal(held[0][name], array)
    for split in ("dev", "test"):
        there, here = (p.held_out.examples(ours.local_model(recipe.model), split) for p in (ours, expected))
        for name in there:
            np.testing.assert_array_equal(there[name], here[name])
    federation.close()


@pytest.mark.slow
def test_fedlcc_on_documents_of_sites(tmp_path):
    run = trained(tmp_path, document_recipe(), *document_sites(tmp_path / "sites"))
    assert_same_weights(run.result.weights, run.simulated.weights)
    assert_same_metrics(run)
    assert not any(HIDDEN.encode() in answer for _, _, answer in run.sent)
    assert json.loads((tmp_path / "run" / "sites.json").read_text())["relations"] == ["CID"]
    assert all(np.isfinite(layer).all() for layer in run.result.weights.trainable)


def biored_recipe(folder, **model):
    test = write_biored(folder / "test.pubtator", range(100, 112))
    task = {"dataset": "biored", "test_path": str(test)}
    return document_recipe(task, model={"loss": "adaptive_threshold", "type_embedding": 2, **model})


@pytest.mark.slow
def test_documents_with_types_and_several_relations_at_sites(tmp_path):
    run = trained(tmp_path, biored_recipe(tmp_path), *document_sites(tmp_path / "sites", "biored", write_biored))
    assert_same_weights(run.result.weights, run.simulated.weights)
    assert_same_metrics(run)
    assert len(run.experiment.prepared.pair_relations) == 8
    assert run.result.server_evaluation.metrics["dev/threshold"] == 0.5


@pytest.mark.parametrize("model", [{"frozen_layers": 1}, {"frozen_layers": 1, "type_embedding": 0}, {}], ids=str)
def test_types_of_entities_at_a_site(model, tmp_path):
    """A site's own examples and what stands for the others' have the same arrays, behind frozen layers, too."""
    files, _ = document_sites(tmp_path, "biored", write_biored)
    federation, recipe = Federation(files), biored_recipe(tmp_path, **model)
    agreement, _ = _agree(Sites(federation.engine, Patience()), recipe, DataPaths(), "0" * 32)
    ours = coordinated(recipe, DataPaths(), agreement)
    agreed = AgreedEncoding.of(recipe.task, 0, agreement.paths(DataPaths(), at_site=False))
    service = federation.services[NAMES[1]]
    held = service._runs[agreement.run].data.examples(agreement, ours.encoding, ours.inputs, None)
    here = prepared(TASKS[recipe.task.name], agreement, agreed, held).precomputed(recipe.model, 0)
    typed = bool(recipe.model.options.type_embedding)
    assert pieces_of(here.inputs).typed == typed == ("entity_type" in here.inputs.specs)
    for client in here.examples.clients:
        assert set(here.inputs.specs) <= set(client.train)
        for name, spec in here.inputs.specs.items():
            assert client.train[name].shape[1:] == tuple(spec.shape[1:]), (client.client_id, name)
    federation.close()


def test_another_file_of_the_coordinator_is_other_data(tmp_path):
    files, _ = document_sites(tmp_path, "biored", write_biored)
    federation, recipe = Federation(files), biored_recipe(tmp_path)
    agreement, _ = _agree(Sites(federation.engine, Patience()), recipe, DataPaths(), "0" * 32)

    def digest():
        return CoordinatorBuilder(coordinated(recipe, DataPaths(), agreement)).prepare(recipe).data_digest

    before, path = digest(), tmp_path / "test.pubtator"
    text = path.read_text("utf-8")
    path.write_text(text.replace(HIDDEN, HIDDEN[::-1], 1), "utf-8")
    assert digest() != before
    path.write_text(text, "utf-8")
    assert digest() == before
    federation.close()


def real_documents(folder, dataset, **overrides):
    """(files of the sites, one with the documents of all, one for the coordinator), of BioCreative V CDR."""
    if "TFF_RE_DATA" not in os.environ:
        pytest.skip("TFF_RE_DATA names no folder")
    blocks = {}
    for split in ("train", "dev"):
        path = Path(os.environ["TFF_RE_DATA"]) / "cdr" / f"{split}.pubtator.gz"
        blocks[split] = gzip.decompress(path.read_bytes()).decode("utf-8").strip().split("\n\n")[:45]
    files, whole = {}, []
    for number, site in enumerate(NAMES):
        data_of_site = {"dataset": dataset, "path": "texts.pubtator"}
        files[site] = write_site(
            folder / site, site, {}, data=data_of_site, set={f"task.{key}": value for key, value in overrides.items()}
        )
        blocks_here = blocks["train"][number::3]
        (folder / site / "texts.pubtator").write_text("\n\n".join(blocks_here) + "\n", "utf-8")
        whole += blocks_here
    for name, content in (("whole", whole), ("test", blocks["dev"])):
        (folder / f"{name}.pubtator").write_text("\n\n".join(content) + "\n", "utf-8")
    return files, folder / "whole.pubtator", folder / "test.pubtator"


@pytest.mark.slow
@pytest.mark.real_data
def test_lazy_mil_on_cdr_cut_in_three(tmp_path):
    """One knowledge base at all parties, of the facts that all documents state."""
    facts = tmp_path / "facts.tsv"
    files, whole, test = real_documents(tmp_path, "cdr_aligned", knowledge_base=str(facts))
    stated = dict.fromkeys((f.head_id, f.relation, f.tail_id) for f in stated_facts(read_pubtator(whole)))
    facts.write_text("".join("\t".join(fact) + "\n" for fact in stated), "utf-8")
    task = {"test_path": str(test), "knowledge_base": str(facts), "max_length": 60}
    run = trained(tmp_path, bag_recipe(tmp_path, task), files, whole)
    assert run.experiment.prepared.num_triples == run.simulation.prepared.num_triples
    assert_same_weights(run.result.weights, run.simulated.weights)
    assert_same_metrics(run)


@pytest.mark.slow
@pytest.mark.real_data
def test_fedlcc_on_cdr_cut_in_three(tmp_path):
    files, whole, test = real_documents(tmp_path, "cdr", tokenizer=str(marking_encoder()))
    recipe = document_recipe({"path": None, "test_path": str(test)}, model={"block_size": 8})
    run = trained(tmp_path, recipe, files, whole)
    assert_same_weights(run.result.weights, run.simulated.weights)
    assert_same_metrics(run)
