"""What tests of exports share: exports that are only read are written once for all files and processes of a test run,
and loaded once in a process; runs are trained once."""

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
    exports_for_tests.share(tmp_path_factory)


@pytest.fixture(scope="session", autouse=True)
def _loaded_once():
    """Of the shared exports; all else that `load_export` does is done each time."""
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
    """A run on bags (`experiment`, `result`, `folder`), its `export` with a form in float16, what stands in export.json
    (`about`), and what the server says of its dev and test examples (`judged`)."""
    return _exported(runtime, trained(runtime, "mil_none"), tmp_path_factory.mktemp("bags") / "export", DataPaths())


@pytest.fixture(scope="session")
def run_of_documents(runtime, tmp_path_factory):
    """The same on documents in mixed precision, whose test split is a file; `judged` in float32."""
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


def _exported(runtime, run, folder, data_paths):
    judged = []

    def recording(experiment):
        return lambda weights: judged.append(ServerEvaluator(experiment)(weights)) or judged[-1]

    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        patch.setattr(exporting, "ServerEvaluator", recording)  # which exports of mixed precision take
        export = exporting.export_run(run.folder, folder, False, data_paths, DEFAULT_RUNTIME, quantise="float16")
    judged = judged[0] if judged else ServerEvaluator(run.experiment)(run.result.weights)
    about = json.loads((export / "export.json").read_text("utf-8"))
    return SimpleNamespace(**vars(run), export=export, about=about, judged=judged)
