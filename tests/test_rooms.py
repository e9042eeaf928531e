"""Who may use whom: a room uses rooms on floors below its own; computations and datasets do not know each other."""

import ast
import collections
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FLOORS = {
    "datasets": (
        "apportion errors registry",
        "federated files json_values ranges seeds",
        "catalogue tables",
        "dialogues",
        "partition",
        "relations synthetic",
        "text",
        "documents encoded_clients",
        "entities",
        "bags encoding_files",
    ),
    "computations": (
        "stack",
        "federated",
        "errors local_model named native_form randomness ranges registry",
        "bags inference privacy traffic",
        "aggregators bag_evaluation document_evaluation evaluation",
        "client_work",
        "aggregation_rules federated_algorithm server_updates",
        "algorithms learning_process",
    ),
    "tff_re": (
        "errors",
        "models report runtime",
        "tasks",
        "recipes",
        "runs",
        "auditing comparison exporting sites",
        "extraction pages",
        "api",
        "cli",
        "run",
    ),
}
"""The rooms (folders and single files) of each package, from the ground up."""
FLOOR = {
    f"{package}.{room}": n for package, floors in FLOORS.items() for n, f in enumerate(floors) for room in f.split()
}
OURS = re.compile(r"(tff_re|computations|datasets)(\.\w+)*")


def module_name(path, root):
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def used_modules(path, root):
    """Dotted names of ours that a file imports, anywhere in it; texts that are such a name count as imports.

    `from a.b import c` gives both a.b and a.b.c: c may be a module.
    """
    package = list(path.relative_to(root).parent.parts)
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join(above + ([node.module] if node.module else []))
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            names.add(node.value)
    return {name for name in names if OURS.fullmatch(name)}


def room_of(name):
    return ".".join(name.split(".")[:2])


def complaint(module, used):
    """Why this module may not use that name, or None."""
    package, other, room, others = module.partition(".")[0], used.partition(".")[0], room_of(module), room_of(used)
    if package != other:
        return None if package == "tff_re" else f"{package} uses nothing of ours but itself"
    if module == package or others in (package, room, f"{package}.__version__"):
        return None
    missing = [name for name in (room, others) if name not in FLOOR]
    if missing:
        return f"{missing[0]} is on no floor; add it to FLOORS"
    return None if FLOOR[others] < FLOOR[room] else f"{others} is not on a floor below {room}"


def complaints(root, rooms):
    lines = []
    for path in sorted(path for room in rooms for path in (root / room).rglob("*.py")):
        module = module_name(path, root)
        for used in sorted(used_modules(path, root)):
            if reason := complaint(module, used):
                lines.append(f"{path.relative_to(root)} uses {used}: {reason}")
    return lines


@pytest.mark.parametrize("package", FLOORS)
def test_rooms_use_only_floors_below(package):
    assert complaints(ROOT, [package]) == []
    rooms = {f"{package}.{path.stem}" for path in (ROOT / package).iterdir() if (path / "__init__.py").exists()}
    rooms |= {f"{package}.{path.stem}" for path in (ROOT / package).glob("*.py") if path.stem != "__init__"}
    assert rooms == {name for name in FLOOR if name.startswith(f"{package}.")}


def arrows(root, package):
    """(room, room that it uses) of a package, without the package itself."""
    pairs = set()
    for path in (root / package).rglob("*.py"):
        room = room_of(module_name(path, root))
        pairs |= {(room, room_of(used)) for used in used_modules(path, root) if room_of(used) in FLOOR}
    return {(room, other) for room, other in pairs if room in FLOOR and room != other and other.startswith(package)}


def test_tff_re_has_few_rooms_floors_and_arrows():
    floors = FLOORS["tff_re"]
    assert len(floors) <= 10 and sum(len(floor.split()) for floor in floors) <= 16
    assert len(arrows(ROOT, "tff_re")) <= 64


def test_arrows_are_counted(tmp_path):
    for file, text in {
        "tff_re/runs/a.py": "from tff_re.errors import UserError\nfrom tff_re.runs import b\nimport tff_re",
        "tff_re/runs/b.py": "import tff_re.errors, computations.errors",
        "tff_re/api.py": "def f():\n    from tff_re.runs import a",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    assert arrows(tmp_path, "tff_re") == {("tff_re.runs", "tff_re.errors"), ("tff_re.api", "tff_re.runs")}


def test_the_top_of_tff_re_holds_six_files_at_most():
    assert len(list((ROOT / "tff_re").glob("*.py"))) <= 6


FORBIDDEN = {
    "computations/a.py": "import datasets.dialogues.records",
    "computations/deep/b.py": "def late():\n    from tff_re import errors",
    "computations/c.py": "import importlib\nimportlib.import_module('tff_re.models.lstm')",
    "datasets/b.py": "from tff_re.errors import UserError",
    "tff_re/runtime/b.py": "from .. import recipes",
    "tff_re/runtime/c.py": "from ..models import lstm",
    "tff_re/tasks/a.py": "if True:\n    import tff_re.run",
    "tff_re/elsewhere/a.py": "from tff_re import errors",
    "datasets/text/a.py": "from datasets.documents.encoding import DocumentEncoding",
    "tff_re/errors.py": "from tff_re import models",
}


def written(root, file, text):
    path = root / file
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return complaints(root, [path.relative_to(root).parts[0]])


@pytest.mark.parametrize("file", FORBIDDEN)
def test_the_check_finds_it(tmp_path, file):
    assert written(tmp_path, file, FORBIDDEN[file])


LONGEST_FUNCTION, LONGEST_FILE = 80, 450
LONG_FUNCTIONS = {}
LONG_FILES = {}
"""What is longer today, with its lines. These lists may only shrink: a name is removed when it is short enough."""


def lengths(root):
    """({file:function -> lines}, {file -> lines}) of our packages; of two functions with one name the longer one."""
    functions, files = {}, {}
    for path in sorted(path for package in FLOORS for path in (root / package).rglob("*.py")):
        name, text = str(path.relative_to(root)), path.read_text(encoding="utf-8")
        files[name] = text.count("\n")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                key = f"{name}:{node.name}"
                functions[key] = max(functions.get(key, 0), node.end_lineno - node.lineno + 1)
    return functions, files


def too_long(lengths_of, known, limit):
    """A line for each that is longer than it may be, and for each exception that is not needed any more."""
    longer = [
        f"{name}: {n} lines, at most {known.get(name, limit)}"
        for name, n in lengths_of.items()
        if n > known.get(name, limit)
    ]
    return longer + [f"{name}: take it off the list" for name in known if lengths_of.get(name, 0) <= limit]


def test_functions_and_files_are_short():
    functions, files = lengths(ROOT)
    assert too_long(functions, LONG_FUNCTIONS, LONGEST_FUNCTION) == []
    assert too_long(files, LONG_FILES, LONGEST_FILE) == []


def test_the_check_finds_what_is_too_long(tmp_path):
    for package in FLOORS:
        (tmp_path / package).mkdir()
    (tmp_path / "tff_re" / "a.py").write_text("def f():\n" + "    pass\n" * 80 + "def g():\n" + "    pass\n" * 79)
    functions, files = lengths(tmp_path)
    assert too_long(functions, {"tff_re/b.py:f": 90}, 80) == [
        "tff_re/a.py:f: 81 lines, at most 80",
        "tff_re/b.py:f: take it off the list",
    ]
    assert too_long(files, {"tff_re/a.py": 160}, 100) == ["tff_re/a.py: 161 lines, at most 160"]


TABLES = [
    "privacy",
    "aggregation",
    "attack",
    "failures",
    "server_optimizer",
    "choice",
    "baseline",
    "personalise",
    "track",
]
"""The tables of a recipe that a feature of a run reads; whoever else asks for one asks the feature, or the recipe."""


def name_of(node):
    """`recipe` of `recipe` and of `self.recipe`; None of other expressions."""
    return vars(node).get("attr", vars(node).get("id"))


def is_table(node):
    """Whether an expression is `recipe.privacy`, `….recipe.privacy` and the like."""
    return isinstance(node, ast.Attribute) and node.attr in TABLES and name_of(node.value) == "recipe"


def assigned(function):
    """(name, value) of a function's assignments, those of tuples one by one."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            together = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            pairs = zip(target.elts, value.elts, strict=False) if together else [(target, value)]
            yield from ((t.id, v) for t, v in pairs if isinstance(t, ast.Name))


def asked_for_tables(tree):
    """Lines that compare a recipe's table with None, by itself or by a local name of it."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        names = {name for name, value in assigned(function) if is_table(value)}
        for node in ast.walk(function):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot):
                table = is_table(node.left) or (isinstance(node.left, ast.Name) and node.left.id in names)
                yield from [node.lineno] * table


def options_by_name(tree):
    """Lines with getattr(options, …), getattr(….options, …); `Choice.get` gives an option that not all choices have."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name_of(node.func) == "getattr" and name_of(node.args[0]) == "options":
            yield node.lineno


def lines_with(check, root, *left_out):
    paths = (
        path for path in sorted(root.rglob("*.py")) if not any(path.is_relative_to(root / room) for room in left_out)
    )
    return [f"{path.name}:{line}" for path in paths for line in check(ast.parse(path.read_text(encoding="utf-8")))]


def test_only_features_ask_whether_a_recipe_has_their_table():
    assert lines_with(asked_for_tables, ROOT / "tff_re", "runs/features", "recipes") == []


def test_runs_read_no_option_by_getattr():
    assert lines_with(options_by_name, ROOT / "tff_re" / "runs") == []


ASKS = {
    "recipe.privacy is None": asked_for_tables,
    "self.recipe.choice is not None": asked_for_tables,
    "x, attack = 1, run.recipe.attack\n    attack is None": asked_for_tables,
    "getattr(options, 'encoding', None)": options_by_name,
    "getattr(recipe.task.options, 'encoding', None)": options_by_name,
}


@pytest.mark.parametrize("code", ASKS)
def test_the_check_finds_who_asks(code):
    tree = ast.parse(f"def f(recipe, self, run, options):\n    {code}\n    options is None")
    assert list(ASKS[code](tree)) == [3 if "\n" in code else 2]


IMPORT_TFF = (
    "computations/federated/",
    "tff_re/runtime/local/",  # TFF's worker
    "computations/learning_process.py",  # for tff.learning and tff.simulation
)


def of_the_language(path):
    """Modules of TensorFlow Federated and of federated-language that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module)
    return {name for name in names if name.partition(".")[0] in ("tensorflow_federated", "federated_language")}


def test_one_package_imports_the_language_and_the_rest_takes_it_from_there():
    files = [path for package in FLOORS for path in (ROOT / package).rglob("*.py")]
    importing = {path.relative_to(ROOT).as_posix() for path in files if of_the_language(path)}
    assert {name for name in importing if not name.startswith(IMPORT_TFF)} == set()
    assert all(any(name.startswith(allowed) for name in importing) for allowed in IMPORT_TFF), "no longer needed"


VAGUE = "alike around behind beside form found given kept most of one own place shown told"
"""Names that say nothing: the field's word stands in their place (`index`, `records`, `max_clients`, `outcome`)."""
VAGUE_NAMES = {
    ("computations.algorithms", "form"): 2,
    ("computations.client_work", "form"): 3,
    ("datasets.documents", "form"): 7,
    ("datasets.partition", "form"): 12,
    ("tff_re.exporting", "form"): 60,
    ("tff_re.runs", "form"): 3,
    ("tff_re.runtime", "form"): 23,
    ("tff_re.runtime", "of"): 3,
    ("tff_re.sites", "form"): 30,
    ("tff_re.sites", "of"): 8,
}
"""How often a room has such a name all the same: keys of recipes and words of public functions. May only shrink."""
NAME_OF = {
    **{ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg", ast.keyword: "arg"},
    **{ast.FunctionDef: "name", ast.AsyncFunctionDef: "name", ast.ClassDef: "name"},
}


def vague_names(root):
    """(room, name) -> how often, of variables, parameters, attributes, keywords, functions and classes."""
    counts = collections.Counter()
    for path in (path for package in FLOORS for path in (root / package).rglob("*.py")):
        room = room_of(module_name(path, root))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = str(vars(node).get(NAME_OF.get(type(node)))).strip("_")
            if name in VAGUE.split():
                counts[room, name] += 1
    return counts


def test_names_say_what_they_hold():
    assert vague_names(ROOT) == VAGUE_NAMES, "use a name of the field, or lower the count"


def test_the_check_finds_vague_names(tmp_path):
    path = tmp_path / "datasets/text/a.py"
    path.parent.mkdir(parents=True)
    path.write_text("def _found(own, *, form=1):\n    one = own.place\n    return f(of=one, placed=owner)", "utf-8")
    counts = {"found": 1, "own": 2, "form": 1, "one": 2, "place": 1, "of": 1}
    assert vague_names(tmp_path) == {("datasets.text", name): count for name, count in counts.items()}
