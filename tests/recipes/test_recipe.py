"""Recipes: what comes with the project resolves, comes back from its own TOML, and what is wrong in one is named."""

from __future__ import annotations

import copy
import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.errors import DataError
from tests.upper_floors import SYNTHETIC, command, refusal, tiny, write_recipe
from tff_re.comparison.suite import load_suite
from tff_re.errors import UserError
from tff_re.recipes.reading import apply_override, load, read_toml, resolve, shipped, suites, tomllib
from tff_re.recipes.structuring import keys
from tff_re.recipes.tables import choices


@pytest.mark.parametrize("name", shipped())
def test_shipped_recipes_resolve_and_come_back_from_their_own_file(name, tmp_path):
    recipe = load(name)
    assert recipe.name == name and recipe.description and recipe.seed == 0
    copied = tmp_path / "copy.toml"
    copied.write_text(recipe.to_toml(), "utf-8")
    again = load(str(copied))
    assert dataclasses.replace(again, source=recipe.source) == recipe
    assert again.to_toml() == recipe.to_toml()


@pytest.mark.parametrize("name", suites())
def test_shipped_suites_resolve_for_all_their_seeds(name):
    suite = load_suite(name)
    assert suite.entries and suite.metrics
    folders, with_ceiling = set(), set()
    for entry in suite.entries:
        for seed in suite.seeds:
            recipe = entry.recipe_for(seed)
            assert recipe.seed == seed
            folders.add((recipe.name, seed))
        has_oracle = getattr(recipe.task.options, "dataset", None) == "planted"  # what each sentence states is known
        if recipe.one_client or has_oracle:
            with_ceiling.add(entry.group)
    assert len(folders) == len(suite.entries) * len(suite.seeds), "two entries would write into one folder"
    assert name.startswith("demo-") or with_ceiling == suite.groups().keys(), "a table without a row of the pooled data"


def test_a_resolved_recipe_has_every_option():
    recipe = tiny("algorithm.mu=0.5", "training.rounds=9", seed=5)
    table = tomllib.loads(recipe.to_toml())
    assert resolve(table, recipe.source) == recipe and recipe.training.rounds == 9 and recipe.seed == 5
    assert table["algorithm"]["batch_size"] == 10 and table["partition"]["name"] == "natural"
    assert table["evaluation"] == {"every": 1, "train_split": True}
    assert "max_gradient_norm" not in table["algorithm"], "not set is left out, as TOML has no null"
    assert table["training"]["over_sampling"] == 1 and table["algorithm"]["weight_decay"] == 0


def test_a_recipe_by_path_gets_its_name_from_the_file(tmp_path):
    path = write_recipe(tmp_path / "my recipe.toml", name=None)
    assert load(str(path)).name == "my recipe"
    assert load(str(path), seed=4).seed == 4


ALGORITHM, TRAINING, TASK = SYNTHETIC["algorithm"], SYNTHETIC["training"], SYNTHETIC["task"]


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"training": {"rounds": 0}}, "'training.rounds' must be at least 1, got 0"),
        ({"training": {"round": 3}}, "unknown key 'training.round'; did you mean 'rounds'?"),
        ({"training": 3}, "[training] must be a table of keys and values, got 3"),
        ({"evaluation": {"every": 0}}, "'evaluation.every' must be at least 1, got 0"),
        ({"algorithm": {**ALGORITHM, "learning_rate": 1e-60}}, "'algorithm.learning_rate' must be above zero, or noth"),
        ({"algorithm": {**ALGORITHM, "server_step": 1e39}}, "'algorithm.server_step' must be from 0 to 3.4e+38 (fl"),
        ({"algorithm": {**ALGORITHM, "server_momentum": 1 - 1e-12}}, "'algorithm.server_momentum' must be at least"),
        ({"algorithm": {"name": "feded", "server_learning_rate": 0.0}}, "'algorithm.server_learning_rate' must be abo"),
        ({"server_optimizer": {"name": "sgd"}}, "'server_optimizer.name' must be one of 'adam', 'yogi', 'adagra"),
        ({"server_optimizer": {}}, "the key 'server_optimizer.name' is missing"),
        (
            {"server_optimizer": {"name": "momentum", "tau": 1.0}},
            "'server_optimizer.tau' needs name = 'adam' or 'yogi' or",
        ),
        ({"server_optimizer": {"name": "adam", "beta_2": 1.0}}, "'server_optimizer.beta_2' must be"),
        ({"algorithm": {**ALGORITHM, "batch_size": 0}}, "'algorithm.batch_size' must be from 1 to 1000000, got 0"),
        ({"algorithm": {"name": "fedpab"}}, "there is no algorithm 'fedpab'; did you mean 'fedpa'?"),
        ({"algorithm": {"mu": 1.0}}, "the key 'algorithm.name' is missing"),
        ({"algorithm": {**ALGORITHM, "granularity": "layers"}}, "'algorithm.granularity' must be one of 'layer', 'mod"),
        ({"algorithm": None}, "the table [algorithm] is missing"),
        ({"task": None}, "the table [task] is missing"),
        ({"task": {**TASK, "name": "sythetic"}}, "there is no task 'sythetic'; did you mean 'synthetic'?"),
        ({"task": {**TASK, "name": 3}}, "there is no task '3'; valid: "),
        ({"task": {**TASK, "num_client": 3}}, "unknown key 'task.num_client'; did you mean 'num_clients'?"),
        ({"task": {"name": "symptom_classification", "test_share": 1.0}}, "'task.test_share' must be above 0 and bel"),
        ({"task": {"name": "symptom_classification", "dataset": "mei"}}, "no such data set; did you mean 'mie'?"),
        ({"model": {"name": "logistic_regresion"}}, "there is no model 'logistic_regresion'; did you mean 'logistic_"),
        ({"model": "lstm"}, "[model] must be a table with a name, got 'lstm'"),
        ({"partition": {"name": "iidd"}}, "there is no partition 'iidd'; did you mean 'iid'?"),
        ({"partition": {"name": "iid"}}, "the key 'partition.num_clients' is missing"),
        ({"partition": {"name": "iid", "num_clients": 0}}, "'partition.num_clients' must be a whole number of at"),
        ({"partition": {"name": "dirichlet", "num_clients": 3, "alpha": -1}}, "'partition.alpha' must be a number"),
        ({"trainig": {}}, "unknown key 'trainig'; did you mean 'training'?"),
        ({"seed": -1}, "'seed' must be a whole number from 0"),
        ({"seed": 2**32}, "'seed' must be a whole number from 0 to 2^32 - 1, got 4294967296"),
        ({"name": ""}, "'name' must be a string in quotes, got ''"),
        ({"name": "../../escaped"}, "'../../escaped' has a path separator; use --out for the folder"),
        ({"name": "a\\b"}, "has a path separator"),
        ({"name": ".hidden"}, "begins with a dot"),
        ({"name": "a\nb"}, "'a\\nb' has a control character"),
        ({"name": "a\x1b[2Jb"}, "has a control character"),
        ({"name": " "}, "begins or ends with a space"),
        ({"name": "症" * 51}, "is longer than 150 bytes"),
        ({"description": 3}, "'description' must be a string in quotes, got 3"),
        ({"published": {"test/accuracy": "0.8"}}, "[published] must be a table of numbers"),
        ({"published": {"test/acuracy": 0.8}}, "[published]: there is no metric 'test/acuracy'; did you mean 'test/"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_key(change, wanted, tmp_path):
    path = write_recipe(tmp_path / "r.toml", **change)
    with pytest.raises((UserError, DataError)) as caught:
        load(str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert wanted in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", choices("algorithm"))
def test_no_algorithm_takes_a_rate_or_step_of_zero(name):
    """Its run would learn nothing, in all its rounds, without a word."""
    names = {key.name for key in keys(choices("algorithm")[name])}
    steps = names & {"learning_rate", "server_step", "server_learning_rate"}
    assert "learning_rate" in steps
    for key in steps:
        for value in ("0", "0.0", "-0.0", "1e-46", "-1", "nan", "inf", "-inf", "1e39"):
            with pytest.raises(UserError, match=f"'algorithm.{key}' must be"):
                resolve({**SYNTHETIC, "algorithm": {"name": name}}, "r.toml", (f"algorithm.{key}={value}",))


def test_a_refused_recipe_leaves_nothing(capsys, tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    refusal(command(capsys, "train", write_recipe(tmp_path / "r.toml", name="../../escaped")), "a path separator")
    path = write_recipe(tmp_path / "r.toml", training={"roundz": 3})
    refusal(command(capsys, "train", path, "--set", "name=../x"), "a path separator")
    refusal(command(capsys, "train", path), path, "'training.roundz'", "did you mean 'rounds'?")
    assert not list(folder.iterdir()) and {path.name for path in tmp_path.iterdir()} == {"work", "r.toml"}


@pytest.mark.parametrize("name", ["cdr 2, λ = 0.5", "症状", "a.b_c-d", "症" * 50])
def test_names_that_are_no_paths(name, tmp_path):
    assert load(str(write_recipe(tmp_path / "r.toml", name=name))).name == name


@pytest.mark.parametrize(
    "override", ["a" + ".a" * 20_000 + "=1", "a=" + "[" * 500 + "]" * 500, "task.name=" + "[" * 300]
)
def test_a_key_to_set_that_is_too_deep_is_refused_in_a_short_line(override):
    with pytest.raises(UserError) as caught:
        tiny(override)
    assert len(str(caught.value)) < 500


def test_a_recipe_from_a_windows_editor_is_read(tmp_path):
    """A byte order mark, and lines that end in CR and LF."""
    plain = write_recipe(tmp_path / "plain.toml")
    (tmp_path / "other.toml").write_bytes(b"\xef\xbb\xbf" + plain.read_bytes().replace(b"\n", b"\r\n"))
    assert load(str(tmp_path / "other.toml")).to_toml() == load(str(plain)).to_toml()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (b'[task]\nname = "a\n', "is not valid TOML: Illegal character '\\n' (at line 2, column 10)"),
        (b"[task\n", "(at line 1, column 6)"),
        (b"a = 1\na = 2\n", "(at line 2, column 6)"),
        (b"name = '\xff'", "is not UTF-8 at byte 8; save it as UTF-8"),
        (b"a = " + b"[" * 5000, "its values are nested too deeply"),
        (b"a" + b".a" * 20_000 + b" = 1", "nested too deeply"),
        (b"a = " + b"[" * 50 + b"]" * 50, "nested too deeply (more than 20 levels)"),
        (b"a = " + b"9" * 5000, "is not valid TOML"),
    ],
)
def test_broken_toml_is_named_with_its_line(text, wanted, tmp_path):
    path = tmp_path / "r.toml"
    path.write_bytes(text)
    with pytest.raises(UserError) as caught:
        read_toml(path)
    assert str(caught.value).startswith(f"{path}: ") and wanted in str(caught.value)


def test_recipes_that_are_not_there(tmp_path):
    with pytest.raises(UserError, match="there is no recipe 'flcmc-synthetic-fedpat'; did you mean 'flcmc-synthetic-f"):
        load("flcmc-synthetic-fedpat")
    with pytest.raises(UserError, match=r"none\.toml: no such file"):
        load(str(tmp_path / "none.toml"))
    with pytest.raises(UserError, match="is a folder"):
        load(str(tmp_path))


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("training.rounds=7", ("training", "rounds"), 7),
        (" training . rounds = 7 ", ("training", "rounds"), 7),
        ("evaluation.train_split=false", ("evaluation", "train_split"), False),
        ("algorithm.mu=1e-3", ("algorithm", "mu"), 0.001),
        ("algorithm.name=fedavgs", ("algorithm", "name"), "fedavgs"),
        ("algorithm.name='fedavgs'", ("algorithm", "name"), "fedavgs"),
        ("task.path=a=b.json", ("task", "path"), "a=b.json"),
        ("task.path=", ("task", "path"), ""),
        ("x.list=[1, 2]", ("x", "list"), [1, 2]),
        ("x.text=a\nb = 3", ("x", "text"), "a\nb = 3"),
        ("x.text=1\nb = 3", ("x", "text"), "1\nb = 3"),
        ("x.deep=" + "[" * 5000, ("x", "deep"), "[" * 5000),
        ("seed=3", ("seed",), 3),
    ],
)
def test_overrides(override, key, value):
    table = {"training": {"rounds": 1}, "task": {}}
    apply_override(table, override)
    for part in key:
        table = table[part]
    assert table == value and type(table) is type(value)


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("training.rounds", "must be key=value"),
        ("=3", "must be key=value"),
        ("training..rounds=3", "must be key=value"),
        ("training.rounds.x=3", "'rounds' is a value, not a table"),
        ("trainin.rounds=3", "unknown key 'trainin'; did you mean 'training'?"),
    ],
)
def test_bad_overrides(override, wanted):
    with pytest.raises(UserError) as caught:
        tiny(override)
    assert wanted in str(caught.value)


# Whatever TOML can hold. Mutations of a good recipe go deeper than tables made of nothing.

toml_values = st.recursive(
    st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([0, -1, 1, 10**30, "", "words", "natural", "file", "official"])
    | st.text(max_size=6)
    | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
KEYS = sorted(
    {key.name for s in ("task", "model", "algorithm", "partition") for c in choices(s).values() for key in keys(c)}
    | {"name", "rounds", "every", "clients_per_round"}
)
SECTIONS = [f.name for f in dataclasses.fields(type(tiny()))]
mutations = st.lists(
    st.one_of(
        st.tuples(st.tuples(st.sampled_from(SECTIONS)), toml_values),
        st.tuples(st.tuples(st.sampled_from(SECTIONS), st.sampled_from(KEYS)), toml_values),
        st.tuples(
            st.tuples(st.sampled_from(["task", "model", "algorithm", "partition"]), st.just("name")),
            st.sampled_from([name for s in ("task", "model", "algorithm", "partition") for name in choices(s)]),
        ),
        st.tuples(st.tuples(st.text(max_size=6), st.text(max_size=6)), toml_values),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=300, deadline=None)
@given(mutations)
def test_any_table_resolves_or_is_refused(changes):
    table = copy.deepcopy(SYNTHETIC)
    for path, value in changes:
        at = table
        for key in path[:-1]:
            at = at.setdefault(key, {}) if isinstance(at.get(key, {}), dict) else at
        at[path[-1]] = value
    try:
        recipe = resolve(table, "r.toml")
    except (UserError, DataError):
        return
    written = recipe.to_toml()
    assert resolve(tomllib.loads(written), "r.toml").to_toml() == written


@settings(deadline=None)
@given(st.text(max_size=12), toml_values)
def test_any_override_is_applied_or_refused(text, value):
    for override in (text, f"training.rounds={text}", f"task.{text}={value!r}"):
        try:
            recipe = tiny(override)
        except (UserError, DataError):
            continue
        assert recipe.to_toml()


def test_an_override_removes_a_key():
    table = {
        "model": {"name": "text_encoder", "adapter": {"rank": 4}},
        "task": {"subset": 8},
        "choice": {"patience": 2},
    }
    for override in ("model.adapter=none", "task.subset = none", "choice=none"):
        apply_override(table, override)
    assert table == {"model": {"name": "text_encoder"}, "task": {}}
    for override in ("model.adapter=none", "modle.adapter=none", "choice.patience=none"):
        with pytest.raises(UserError, match="the recipe does not set this key; leave the option out"):
            apply_override(table, override)


def test_none_is_a_word_where_a_key_takes_it():
    table = {"algorithm": {"name": "fedcmc"}, "task": {"path": "a"}}
    apply_override(table, "algorithm.vectors=none")
    apply_override(table, "task.path='none'")
    assert table == {"algorithm": {"name": "fedcmc", "vectors": "none"}, "task": {"path": "none"}}


@pytest.mark.parametrize(
    ("override", "wanted"), [("task=none", r"\[task\]|'task'"), ("model.name=none", "'model.name' is missing")]
)
def test_a_key_that_is_required_cannot_be_removed(override, wanted):
    with pytest.raises(UserError, match=wanted):
        load("flcmc-shipped-fedpap", (override,))
