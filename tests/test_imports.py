"""What importing a module or typing a command must not import. One interpreter, which forks itself for every row."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"tensorflow", "tensorflow_federated", "keras", "jax", "torch", "sklearn", "matplotlib", "gensim", "jieba"}
"""What takes seconds to import."""

TOKENIZERS, ABOVE = {"transformers", "tokenizers"}, {"computations", "tff_re"}
NO_WORKER = "; import psutil; assert not psutil.Process().children(recursive=True)"


def _command(line: str, code: int = 0) -> str:
    return f"from tff_re import run; assert run.main({line.split()}) == {code}"


WRONG = (
    *("trainin.rounds=3", "training.round=3", "training.rounds=0", "evaluation.ever=2", "choice.patient=3"),
    *("privacy.clip=1e-46", "failures.dropout=1.0", "personalise.epoch=1", "partition.name=naturl"),
    *("task.name=symptoms", "task.max_lenght=3", "task.max_length=0", "model.name=lstmm", "partition.fild=x"),
    *("model.unitz=3", "client_model.nam=lstm"),
    *("algorithm.muu=1", "algorithm.xyzzy=1", "aggregation.rules=rfa", "attack.client=1", "server_optimizer.nam=adam"),
)
QUICK = ("--version", "--help", "train --help", "predict --help", "recipes", "datasets")
ROWS = {
    "import tff_re; assert set(tff_re.__all__) <= set(dir(tff_re))" + NO_WORKER: HEAVY | TOKENIZERS | {"numpy"},
    "from tff_re import load_recipe, load_export, Predictor, UserError" + NO_WORKER: HEAVY,
    "import tff_re.report.curves, tff_re.report.document_spread, tff_re.report.heatmaps": {"tensorflow"},
    "import tff_re.report.similarity": {"tensorflow"},
    "import tff_re.cli.configuration, tff_re.cli.display, tff_re.report.partition_table": HEAVY,
    "import tff_re.exporting.prediction": {"tensorflow"},
    "import tff_re.pages.writing, tff_re.runs.reading": HEAVY,
    "from tff_re.runtime import open_runtime; open_runtime('in-process', log_path='x')": HEAVY | {"grpc", "numpy"},
    "import datasets.bags.loading, datasets.relations.loading, datasets.synthetic": HEAVY | TOKENIZERS | ABOVE,
    "import datasets.relations.selection, datasets.text, datasets.encoded_clients": HEAVY | TOKENIZERS | ABOVE,
    "import datasets.text.relation_encoding, datasets.relations.i2b2_2010": HEAVY | TOKENIZERS | ABOVE,
    "import datasets.text.word_tokenizer": HEAVY - {"gensim", "jieba"} | ABOVE,
    **{_command(line): HEAVY for line in QUICK},
    _command("predict /no/such/folder x", 2): HEAVY,
    # Wrong keys and names of a recipe.
    **{_command(f"train flcmc-shipped-fedpap --set {key}", 2): HEAVY for key in WRONG},
}

PROGRAM = """
import json, os, sys
for number, row in enumerate(json.loads(sys.argv[1])):
    if not os.fork():
        exec(row)
        with open(str(number), "w") as file:
            json.dump(sorted({name.partition(".")[0] for name in sys.modules}), file)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Row -> the top-level packages that it imports."""
    folder = tmp_path_factory.mktemp("imports")
    words = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path}" + PROGRAM, json.dumps(list(ROWS))]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=600, cwd=folder)
    files = {row: folder / str(number) for number, row in enumerate(ROWS)}
    assert all(file.exists() for file in files.values()), ran.stderr
    return {row: set(json.loads(file.read_text())) for row, file in files.items()}


@pytest.mark.parametrize("row", ROWS)
def test_nothing_heavy_is_imported(row, imported):
    assert not ROWS[row] & imported[row]
