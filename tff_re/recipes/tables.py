"""The tables of a recipe: `TABLES` names each with the class of its keys, and `Table.read` reads one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from computations.registry import Choice
from tff_re.errors import UserError, nearest
from tff_re.recipes.options import BaselineOptions, ChoiceOptions, DataStatement, PersonaliseOptions, TrackOptions
from tff_re.recipes.source_keys import keys_in
from tff_re.recipes.structuring import structure
from tff_re.recipes.training_options import EvaluationOptions, FailureOptions, TrainingOptions


@dataclass(frozen=True)
class Table:
    """A table of a recipe.

    Attributes:
      options: gives the class of its keys; where the key `name` chooses it, name -> a function that gives it.
      default: the table that a recipe without it has; it also fills in missing keys. None: there is none.
      required: whether every recipe has the table.
      chooses: whether the key `name` chooses the class.
      keys: gives all keys that the table can have, without importing TensorFlow; None if its class does not import it.
    """

    options: Callable[[], Any]
    default: Mapping[str, Any] | None = None
    required: bool = False
    chooses: bool = False
    keys: Callable[[], Collection[str]] | None = None

    def classes(self) -> Mapping[str, Callable[[], type]]:
        """Name -> a function that gives the class of options.

        The name is '' if the table has no choice of a name.
        """
        return self.options() if self.chooses else {"": self.options}

    def read(self, table: Any, section: str, source: str) -> Any:
        """The options of a table in a file, or a `Choice`.

        Raises:
          UserError: a name, key or value is not valid.
        """
        name, options = self.named(table, section, source)
        options = structure(self.classes()[name](), options, section=section, source=source)
        return Choice(name, options) if self.chooses else options

    def named(self, table: Any, section: str, source: str, *, known: bool = True) -> tuple[str, Any]:
        """(name, the other keys).

        The name is '' if the table has no choice of a name. `known`: whether it must be one of `classes`.
        """
        if not self.chooses:
            return "", table
        if not isinstance(table, dict):
            raise UserError(f"{source}: [{section}] must be a table with a name, got {table!r}")
        options = {**(self.default or {}), **table}
        if "name" not in options:
            raise UserError(f"{source}: the key '{section}.name' is missing")
        name = options.pop("name")
        if known and (not isinstance(name, str) or name not in self.classes()):
            section = "model" if section == "client_model" else section
            raise UserError(f"{source}: there is no {section} '{name}'; {nearest(name, self.classes())}")
        return name, options


def _tasks() -> dict[str, Callable[[], type]]:
    from tff_re import tasks

    return {name: lambda name=name: tasks.TASKS[name].Options for name in tasks.TASKS}


def _models() -> dict[str, Callable[[], type]]:
    from tff_re import models

    return {name: lambda name=name: models.MODELS[name].Options for name in models.MODELS}


def _algorithms() -> dict[str, Callable[[], type]]:
    from computations import algorithms

    return {name: lambda name=name: algorithms.find(name).options for name in algorithms.names()}


def _partitioners() -> dict[str, Callable[[], type]]:
    from datasets.partition import PARTITIONERS

    return {name: lambda name=name: PARTITIONERS[name] for name in PARTITIONERS}


def _privacy() -> type:
    from computations.privacy.options import PrivacyOptions

    return PrivacyOptions


def _aggregation() -> type:
    from computations.aggregation_rules import aggregation_options

    return aggregation_options()


def _attack() -> type:
    from computations.client_work.attack_options import AttackOptions

    return AttackOptions


def _server_optimizer() -> type:
    from computations.server_updates.options import ServerOptimizerOptions

    return ServerOptimizerOptions


TABLES = {
    "task": Table(_tasks, required=True, chooses=True),
    "partition": Table(_partitioners, {"name": "natural"}, chooses=True),
    "model": Table(_models, required=True, chooses=True, keys=lambda: keys_in("tff_re/models")),
    "algorithm": Table(_algorithms, required=True, chooses=True, keys=lambda: keys_in("computations/algorithms")),
    "client_model": Table(_models, chooses=True, keys=lambda: keys_in("tff_re/models")),
    "training": Table(lambda: TrainingOptions, {}),
    "evaluation": Table(lambda: EvaluationOptions, {}),
    "privacy": Table(_privacy),
    "aggregation": Table(_aggregation, keys=lambda: keys_in("computations/aggregation_rules")),
    "attack": Table(_attack, keys=lambda: keys_in("computations/client_work/attack_options.py")),
    "server_optimizer": Table(_server_optimizer, keys=lambda: keys_in("computations/server_updates/options.py")),
    "failures": Table(lambda: FailureOptions),
    "choice": Table(lambda: ChoiceOptions),
    "baseline": Table(lambda: BaselineOptions),
    "personalise": Table(lambda: PersonaliseOptions),
    "track": Table(lambda: TrackOptions),
    "data": Table(lambda: DataStatement),
}
"""Name -> table, in the order in which a resolved recipe has them."""


def choices(section: str) -> dict[str, type]:
    """Name -> class of options of a table.

    The name is '' if the table has no choice of a name.
    """
    return {name: cls() for name, cls in TABLES[section].classes().items()}


def has_value(table: Mapping[str, Any], section: str, key: str, word: str) -> bool:
    """Whether `word` is one of the values of a key that takes one of several words."""
    of_section, keys_set = TABLES.get(section), table.get(section, {})
    if of_section is None or not isinstance(keys_set, Mapping):
        return False
    name = {**(of_section.default or {}), **keys_set}.get("name") if of_section.chooses else ""
    classes = of_section.classes()
    if not isinstance(name, str) or name not in classes:
        return False
    options = classes[name]()
    kind = get_type_hints(options).get(key) if options is not None else None
    return get_origin(kind) is Literal and word in get_args(kind)


def read_tables(recipe_table: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Name -> what `Table.read` gives, for all tables.

    A table that is left out is None.

    Errors that can be found without TensorFlow are raised before it is imported.

    Raises:
      UserError: a table is missing, or a name, key or value is not valid.
    """
    for name, table in TABLES.items():
        if table.required and name not in recipe_table:
            raise UserError(f"{source}: the table [{name}] is missing")
    for name in _WITH_TENSORFLOW:
        if name in recipe_table and "tensorflow" not in sys.modules:
            _check(TABLES[name], recipe_table[name], name, source)
    tables: dict[str, Any] = {}
    for name in sorted(TABLES, key=lambda name: name in _WITH_TENSORFLOW):
        table = TABLES[name]
        with_default = recipe_table if table.default is None else {name: table.default, **recipe_table}
        tables[name] = table.read(with_default[name], name, source) if name in with_default else None
    _require_learning(tables["algorithm"], source)
    return tables


_WITH_TENSORFLOW = tuple(name for name, table in TABLES.items() if table.keys)
"""Tables whose classes import TensorFlow."""


def _check(table: Table, value: Any, section: str, source: str) -> None:
    """Refuses a name or key that no class has."""
    _, options = table.named(value, section, source, known=section != "algorithm")
    if not isinstance(options, dict):
        return
    for key in sorted(options.keys() - table.keys()):
        hint = nearest(key, table.keys())
        if table.chooses and hint.startswith("valid"):
            hint = f"no {section.removeprefix('client_')} has this key"
        raise UserError(f"{source}: unknown key '{section}.{key}'; {hint}")


def _require_learning(algorithm: Choice, source: str) -> None:
    from computations.algorithms.options import check_learns

    try:
        check_learns(algorithm.options)
    except ValueError as error:
        key, _, rest = str(error).partition(" ")
        raise UserError(f"{source}: 'algorithm.{key}' {rest}") from None
