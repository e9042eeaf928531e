"""Shared by tests of exports: exports that are only read are written once in a test run and loaded once in a process.

Runs are trained once.
"""

import json
from types import SimpleNamespace

import pytest

from tests import exports_for_tests
from tests.bags_for_tests import train_table, trained
from tests.documents_for_tests import document_table
from tests.recipe_data_for_tests import data_folder
from tests.upper_floors import share_computations
from tff_re.exporting import export_run as exporting
from tff_re.exporting import prediction
from tff_re.runs.evaluation import ServerEvaluator
from tff_re.runtime import DEFAULT_RUNTIME
from tff_re.tasks.data_paths import DataPaths


@pytest.fixture(scope="session", autouse=True)
def _shared_exports(tmp_path_factory):
    exports_for_tests.set_folder_factory(tmp_path_factory)


@pytest.fixture(scope="session", autouse=True)
def _loaded_once():
    """Loads the graph of each shared export once; the rest of `load_export` runs each time."""
    load, loaded = prediction._signature, {}

    def signature(folder, kind, source):
        if "built-once" not in folder.parts:
            return load(folder, kind, source)
        if folder not in loaded:
            loaded[folder] = load(folder, kind, source)
        return loaded[folder]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prediction, "_signature", signature)
        yield


@pytest.fixture(scope="session")
def run_of_bags(runtime, tmp_path_factory):
    """A run on bags (`experiment`, `result`, `folder`) and its `export`, also in float16.

    `export_json` is the content of export.json, `evaluation` the server's of its dev and test examples.
    """
    run, folder = trained(runtime, "mil_none"), tmp_path_factory.mktemp("bags") / "export"
    return _exported(runtime, run, folder, DataPaths(), training_digests=True)


@pytest.fixture(scope="session")
def run_of_documents(runtime, tmp_path_factory):
    """The same on documents in mixed precision, whose test split is a file; `evaluation` in float32."""
    folder, data_paths = tmp_path_factory.mktemp("documents"), DataPaths(data=data_folder())
    task = {"path": None, "test_path": None, "split": "train", "dev_split": "dev", "test_split": "test"}
    table = document_table(
        task=task,
        model={"precision": "mixed_bfloat16"},
        algorithm={"name": "fedavgs", "local_epochs": 1},
        partition={"name": "iid", "num_clients": 2},
        training={"rounds": 1, "client_fraction": 1.0},
    )
    experiment, result = train_table(table, folder / "run", runtime, data_paths=data_paths, details=False)
    run = SimpleNamespace(folder=folder / "run", experiment=experiment, result=result)
    return _exported(runtime, run, folder / "export", data_paths)


def _exported(runtime, run, folder, data_paths, **how):
    recorded = []

    def recording(experiment):
        return lambda weights: recorded.append(ServerEvaluator(experiment)(weights)) or recorded[-1]

    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        patch.setattr(exporting, "ServerEvaluator", recording)  # used by exports of mixed precision
        how = {"quantise": "float16", **how}
        export = exporting.export_run(run.folder, folder, False, data_paths, DEFAULT_RUNTIME, **how)
    evaluation = recorded[0] if recorded else ServerEvaluator(run.experiment)(run.result.weights)
    export_json = json.loads((export / "export.json").read_text("utf-8"))
    return SimpleNamespace(**vars(run), export=export, export_json=export_json, evaluation=evaluation)
