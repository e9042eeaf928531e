"""The ten recipes of CONTRIBUTING.md, followed to the letter in a copy of the tree, and tried in one process."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import test_docs

ROOT = Path(__file__).parents[1]
NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.png", "*.csv", "*.svg", "*.html", "*.json")
OF_TESTS = re.compile(
    r"^(?:import pytest|from tests\S* import .*|from tff_re import api.*|from \S+ import [A-Z]+)\n", re.M
)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert text.count(old) == 1, f"{path} has {old!r} {text.count(old)} times"
    path.write_text(text.replace(old, new), "utf-8")


def toy_of(tree_file: str) -> str:
    """The part of a test file that a recipe has copied: what stands before its first fixture."""
    return OF_TESTS.sub("", (ROOT / tree_file).read_text("utf-8").split("@pytest.fixture")[0])


def add_algorithm_aggregator_and_objective(tree: Path) -> None:
    (example,) = test_docs.blocks("python", test_docs.CONTRIBUTING)
    computations = tree / "computations"
    (computations / "algorithms" / "fedavgm.py").write_text(example, "utf-8")
    shutil.copy(ROOT / "tests/computations/toy_rule.py", computations / "aggregation_rules" / "toy.py")
    objectives = computations / "client_work" / "objectives"
    written = (objectives / "decorrelation.py").read_text("utf-8").replace("class Decorrelation", "class Ours")
    (objectives / "ours.py").write_text(written, "utf-8")
    uses_it = (
        example.replace('"fedavgm"', '"fedours"')
        .replace("objectives import CrossEntropy", "objectives.ours import Ours")
        .replace("CrossEntropy()", "Ours(0.1)")
    )
    (computations / "algorithms" / "fedours.py").write_text(uses_it, "utf-8")


def add_data_set_task_and_model(tree: Path) -> None:
    reader = (tree / "datasets/relations/pgr.py").read_text("utf-8").replace('"pgr"', '"clinic"').replace("pgr/", "c/")
    (tree / "datasets/relations/clinic.py").write_text(reader, "utf-8")
    (tree / "tff_re/tasks/moods.py").write_text(toy_of("tests/tasks/test_toy_task.py"), "utf-8")
    (tree / "tff_re/models/perceptron.py").write_text(toy_of("tests/models/test_toy_model.py"), "utf-8")


def add_feature(tree: Path) -> None:
    source = toy_of("tests/runs/test_features.py")
    toy = source[source.index("class Toy") :].replace('table = "description"', 'table = "toy"')
    toy = re.sub(r"    @classmethod\n    def is_in.*?\n\n", "", toy, flags=re.DOTALL)
    imports = [
        *("from collections import OrderedDict", "import numpy as np"),
        "from computations.federated_algorithm import recompose",
        "from computations.server_updates import gradient_step",
        "from tff_re.errors import UserError",
        "from tff_re.runs.features.base import Feature",
    ]
    (tree / "tff_re/runs/features/toy.py").write_text("\n".join(imports) + "\n\n" + toy, "utf-8")
    order, recipes = tree / "tff_re/runs/features/order.py", tree / "tff_re/recipes"
    edit(order, "    Track,\n)", "    Track,\n    Toy,\n)")
    edit(order, "import Track\n", "import Track\nfrom tff_re.runs.features.toy import Toy\n")
    with open(recipes / "options.py", "a", encoding="utf-8") as file:
        file.write("\n\n@attrs.frozen(kw_only=True)\nclass ToyOptions:\n    loud: bool = False\n")
    edit(recipes / "tables.py", "TrackOptions\n", "ToyOptions, TrackOptions\n")
    edit(recipes / "tables.py", '    "data": Table', '    "toy": Table(lambda: ToyOptions),\n    "data": Table')
    edit(
        recipes / "reading.py",
        "    data: DataStatement | None",
        "    toy: Any | None = None\n    data: DataStatement | None",
    )


def add_command_and_benchmark(tree: Path) -> None:
    command = (tree / "tff_re/cli/datasets.py").read_text("utf-8")
    command = command.replace("def datasets(", "def corpora(").replace("run datasets", "run corpora")
    (tree / "tff_re/cli/corpora.py").write_text(command, "utf-8")
    edit(tree / "tff_re/cli/main.py", '"compare", "datasets"', '"compare", "corpora", "datasets"')
    shutil.copy(tree / "benchmarks/sockets.py", tree / "benchmarks/plugs.py")
    edit(tree / "benchmarks/__main__.py", '"sockets", ', '"sockets", "plugs", ')


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the tree with one thing of each kind added."""
    copy = tmp_path_factory.mktemp("tree")
    for folder in ("tff_re", "computations", "datasets", "benchmarks"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    add_algorithm_aggregator_and_objective(copy)
    add_data_set_task_and_model(copy)
    add_feature(copy)
    add_command_and_benchmark(copy)
    return copy


MOODS = """[task]
name = "moods"
[partition]
name = "iid"
num_clients = 2
[model]
name = "logistic_regression"
features = "word_presence"
[algorithm]
name = "fedavgm"
[training]
rounds = 1
clients_per_round = 2
"""
VECTORS = """[task]
name = "synthetic"
num_clients = 4
num_features = 5
num_classes = 3
total_train = 60
total_test = 24
[model]
name = "perceptron"
[algorithm]
name = "fedours"
[aggregation]
rule = "toy"
[toy]
loud = true
[training]
rounds = 5
clients_per_round = 2
"""
TRY = """
import json, sys
from pathlib import Path
import tff_re
from computations.aggregation_rules import RULES
from datasets.relations.loading import load_relations
from tff_re import api
from tff_re.cli.main import main
assert Path(tff_re.__file__).is_relative_to(Path.cwd()), tff_re.__file__
seen = {}
for name in ("moods", "vectors"):
    result = api.train(f"{name}.toml", f"runs/{name}", runtime="in-process")
    seen[name] = {"loss": result.test.metrics["loss"], "stopped": result.stopped}
seen["rules"] = list(RULES)
seen["pairs"] = len(load_relations("clinic", path="clinic.tsv").mentions)
seen["refused"] = main(["datasets", "--no-such-option"])
seen["codes"] = [main(["corpora"]), main(["corpora", "--help"]), main([])]
Path("seen.json").write_text(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def tried(tree):
    """What a process in that copy saw, and what it printed."""
    (tree / "moods.toml").write_text(MOODS, "utf-8")
    (tree / "vectors.toml").write_text(VECTORS, "utf-8")
    positions = ["GENE_START_POSITION", "GENE_END_POSITION", "PHENOTYPE_START_POSITION", "PHENOTYPE_END_POSITION"]
    header = ["FILE_ID", "SENTENCE", "GENE", "PHENOTYPE", "GENE_ID", "PHENOTYPE_ID", *positions, "RELATION"]
    row = ["d1", "ABC gives pain", "ABC", "pain", "1", "HP:1", "0", "3", "10", "14", "True"]
    (tree / "clinic.tsv").write_text("\t".join(header) + "\n" + "\t".join(row) + "\n", "utf-8")
    done = subprocess.run([sys.executable, "-c", TRY], cwd=tree, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((tree / "seen.json").read_text("utf-8")), done.stdout


def test_an_algorithm_and_a_task_train_by_their_names(tried):
    assert tried[0]["moods"]["loss"] > 0


def test_an_objective_a_model_and_an_aggregator_train_by_their_names(tried):
    assert tried[0]["vectors"]["loss"] > 0 and "toy" in tried[0]["rules"]


def test_a_feature_with_its_table_stops_the_run(tried):
    assert tried[0]["vectors"]["stopped"] == "stopped after round 3: the toy has seen 6 clients"
    assert tried[0]["moods"]["stopped"] is None


def test_a_data_set_is_listed_and_read(tried):
    assert tried[0]["pairs"] == 1 and "clinic" in tried[1]


def test_a_command_is_listed_and_has_help(tried):
    assert tried[0]["codes"] == [0, 0, 0]
    assert "python -m tff_re.run corpora" in tried[1] and re.search(r"^  corpora +List", tried[1], re.MULTILINE)


def test_a_benchmark_is_listed(tree):
    asked = [sys.executable, "-m", "benchmarks", "--help"]
    listed = subprocess.run(asked, cwd=tree, capture_output=True, text=True, timeout=120, check=True).stdout
    assert "plugs" in listed


def test_a_page_is_found_by_the_tests_of_links_and_nav(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=NOT_COPIED)
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    page = tmp_path / "docs" / "ours.md"
    page.write_text("# Ours\n\nSee [methods](methods.md) and [above](#ours).\n", "utf-8")
    monkeypatch.setattr(test_docs, "ROOT", tmp_path)
    monkeypatch.setattr(test_docs, "PAGES", sorted((tmp_path / "docs").rglob("*.md")))
    with pytest.raises(AssertionError):
        test_docs.test_every_page_is_in_the_nav()
    edit(
        tmp_path / "mkdocs.yml", "      - Methods: methods.md\n", "      - Methods: methods.md\n      - Ours: ours.md\n"
    )
    test_docs.test_every_page_is_in_the_nav()
    test_docs.test_links_anchors_and_pictures(page)
    page.write_text("# Ours\n\nSee [nothing](nothing.md).\n", "utf-8")
    with pytest.raises(AssertionError, match="which does not exist"):
        test_docs.test_links_anchors_and_pictures(page)
