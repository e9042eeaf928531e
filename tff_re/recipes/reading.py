"""Recipes: a published experiment as data.

TOML is read into frozen dataclasses, and each run's folder gets its recipe as TOML again.
"""

from __future__ import annotations

import copy
import dataclasses
import re
import tomllib
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from computations.registry import Choice
from tff_re.errors import UserError, nearest
from tff_re.recipes.metric_names import require_known
from tff_re.recipes.options import (
    BaselineOptions,
    ChoiceOptions,
    DataStatement,
    PersonaliseOptions,
    TrackOptions,
    notes,
)
from tff_re.recipes.structuring import to_table
from tff_re.recipes.tables import TABLES, has_value, read_tables
from tff_re.recipes.training_options import EvaluationOptions, FailureOptions, TrainingOptions

DEEPEST = 20
"""Levels of tables and lists in a TOML file; a suite has five."""

_LONG_KEY = re.compile(r"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){200}")

UNSET = "none"
"""The value of an override that removes its key."""

SEEDS = 2**32
"""Seeds lie below; Keras' initialisers take no larger one."""

FOLDER = Path(__file__).parent
# Bytes: a file's name may have 255, and a seed, a metric and an extension are added to a recipe's.
LONGEST_NAME = 150


@dataclass(frozen=True)
class Recipe:
    """A resolved recipe: every option has its value.

    `client_model`: the clients' where it is not the server's. A table that is left out is None.
    """

    name: str
    source: str
    description: str
    seed: int
    task: Choice
    partition: Choice
    model: Choice
    algorithm: Choice
    training: TrainingOptions
    evaluation: EvaluationOptions
    published: dict[str, float] = field(default_factory=dict)
    client_model: Choice | None = None
    privacy: Any | None = None
    aggregation: Any | None = None
    failures: FailureOptions | None = None
    server_optimizer: Any | None = None
    choice: ChoiceOptions | None = None
    baseline: BaselineOptions | None = None
    personalise: PersonaliseOptions | None = None
    attack: Any | None = None
    track: TrackOptions | None = None
    data: DataStatement | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What every output of a run says of the optional tables."""
        of_tables = (note for table in (self.attack, self.aggregation) if table is not None for note in table.notes())
        return (*of_tables, *self._notes_of_failures, *notes(self.baseline, self.personalise))

    @property
    def privacy_unit(self) -> str | None:
        """What [privacy] protects: `client`, `example` or `group`, or None without that table."""
        return None if self.privacy is None else self.privacy.unit

    @property
    def noise_seed(self) -> str:
        """Where the run's randomness comes from, as `privacy.noise_seed` says it."""
        return "run" if self.privacy is None else self.privacy.noise_seed

    @property
    def has_choice(self) -> bool:
        """Whether the recipe has [choice]."""
        return self.choice is not None

    @property
    def one_client(self) -> bool:
        """Whether one client has all training examples, and no federation trains."""
        pooled = self.baseline is not None and self.baseline.kind == "pooled"
        return pooled or getattr(self.partition.options, "num_clients", None) == 1

    @property
    def role(self) -> Literal["federated", "local", "pooled"]:
        """Who trains: a federation, every client by itself, or one client with all training examples."""
        if self.baseline is not None and self.baseline.kind == "local":
            return "local"
        return "pooled" if self.one_client else "federated"

    @property
    def _notes_of_failures(self) -> tuple[str, ...]:
        """What is said of clients that are lost, and of what privacy counts then."""
        said = () if self.failures is None else self.failures.notes()
        if self.privacy is None or not self.is_unreliable:
            return said
        counts = "privacy counts every client that was asked in each attempt, even if its answer was lost"
        if self.privacy.unit == "client":
            counts = (
                "privacy counts all clients that may be asked in the attempts of a round; a lost client adds zeros "
                "to a sum that is divided by the expected number, and which clients were lost is not recorded"
            )
        return (*said, counts)

    @property
    def is_unreliable(self) -> bool:
        """Whether the recipe says anything of clients that are lost or not needed, so that a run records them."""
        training = self.training
        asks_more = training.over_sampling > 1 or training.min_clients or training.tolerated_failures is not None
        return self.failures is not None or bool(asks_more)

    def to_toml(self) -> str:
        """The resolved recipe as a recipe file."""
        import tomli_w

        table = {"name": self.name, "description": self.description, "seed": self.seed}
        for section in TABLES:
            options = getattr(self, section)
            if isinstance(options, Choice):
                table[section] = {"name": options.name, **to_table(options.options)}
            elif options is not None:
                table[section] = to_table(options)
        return tomli_w.dumps(table | ({"published": dict(self.published)} if self.published else {}))


def shipped() -> dict[str, Path]:
    """Name -> file of the recipes that come with the project."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


def suites() -> dict[str, Path]:
    """Name -> file of the suites of comparisons that come with the project."""
    return {path.stem: path for path in sorted((FOLDER / "suites").glob("*.toml"))}


def read_toml(path: Path) -> dict:
    """A TOML file as a dict.

    A malformed file is a UserError with file, line and column. A byte order mark is dropped.
    """
    try:
        table = _loads(path.read_text("utf-8-sig"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder, not a TOML file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except RecursionError:
        raise UserError(f"{path}: its values are nested too deeply") from None
    except ValueError as error:  # TOMLDecodeError is one, and so is what a number of 5000 digits makes
        raise UserError(f"{path}: is not valid TOML: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    _require_shallow(table, str(path))
    return table


def _loads(text: str) -> dict:
    """As tomllib's, which takes minutes for a key of 20,000 parts. Raises RecursionError for such."""
    if _LONG_KEY.search(text):
        raise RecursionError
    return tomllib.loads(text)


def _require_shallow(value: Any, source: str) -> None:
    """UserError for tables or lists deeper than any recipe has, which Python could not even print."""
    level, depth = [value], 0
    while level:
        if depth > DEEPEST:
            raise UserError(f"{source}: its values are nested too deeply (more than {DEEPEST} levels)")
        containers = [v.values() if isinstance(v, dict) else v for v in level if isinstance(v, (dict, list))]
        level, depth = [inner for values in containers for inner in values], depth + 1


def locate(name_or_path: str) -> Path:
    """The file of a recipe that is given by name or by path."""
    known = shipped()
    if name_or_path in known:
        return known[name_or_path]
    path = Path(name_or_path)
    if path.suffix == ".toml" or path.exists():
        return path
    raise UserError(f"there is no recipe '{name_or_path}'; {nearest(name_or_path, known)}")


def load(name_or_path: str, overrides: tuple[str, ...] = (), seed: int | None = None) -> Recipe:
    """Reads and resolves a recipe that `recipes` lists, or a TOML file.

    `overrides` are 'key=value' with dotted keys, the value in TOML's notation (a bare word is a string).
    `seed` replaces the recipe's.
    """
    path = locate(name_or_path)
    table = read_toml(path)
    return resolve(table, str(path), overrides, seed)


def resolve(table: dict, source: str, overrides: tuple[str, ...] = (), seed: int | None = None) -> Recipe:
    """A Recipe of a table.

    See `load`.
    """
    table = copy.deepcopy(table)
    for override in overrides:
        apply_override(table, override)
    if seed is not None:
        table["seed"] = seed
    valid = [f.name for f in dataclasses.fields(Recipe) if f.name != "source"]
    for key in table:
        if key not in valid:
            raise UserError(f"{source}: unknown key '{key}'; {nearest(key, valid)}")
    name, seed_value = table.get("name", Path(source).stem), table.get("seed", 0)
    if not isinstance(name, str) or not name:
        raise UserError(f"{source}: 'name' must be a string in quotes, got {name!r}")
    if problem := file_name_problem(name):
        raise UserError(f"{source}: 'name' is used as the name of a run's folder: {problem}")
    if isinstance(seed_value, bool) or not isinstance(seed_value, int) or not 0 <= seed_value < SEEDS:
        raise UserError(f"{source}: 'seed' must be a whole number from 0 to 2^32 - 1, got {seed_value!r}")
    description = table.get("description", "")
    if not isinstance(description, str):
        raise UserError(f"{source}: 'description' must be a string in quotes, got {description!r}")
    published = table.get("published", {})
    if not isinstance(published, dict) or not all(type(v) in (int, float) for v in published.values()):
        raise UserError(f"{source}: [published] must be a table of numbers")
    require_known(published, f"{source}: [published]")
    tables = read_tables(table, source)
    published = {metric: float(value) for metric, value in published.items()}
    return Recipe(name, source, description, seed_value, published=published, **tables)


def has_control_character(text: str) -> bool:
    """Whether a line break or another control character, or half of a character, is in a text."""
    return any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in text)


def file_name_problem(name: str) -> str | None:
    """Why a name cannot be part of a file's name, with the remedy, or None if it can."""
    quoted = repr(name if len(name) <= 40 else name[:40] + "…")
    problems = {
        f"is longer than {LONGEST_NAME} bytes; give a shorter one": len(name.encode("utf-8", "replace")) > LONGEST_NAME,
        "has a control character; remove it": has_control_character(name),
        "has a path separator; use --out for the folder": "/" in name or "\\" in name,
        "begins with a dot; remove it": name.startswith("."),
        "begins or ends with a space; remove it": name != name.strip(),
    }
    return next((f"{quoted} {problem}" for problem, there in problems.items() if there), None)


def apply_override(table: dict, override: str) -> None:
    """Sets 'a.b=value' in a table of tables.

    The bare word none removes the key, unless it is one of the key's values.

    Raises:
      UserError: it is not key=value, or it removes a key that the table does not have.
    """
    key, separator, text = override.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not separator or not all(parts):
        raise UserError(f"--set {_short(override)}: must be key=value, e.g. --set training.rounds=20")
    if len(parts) > DEEPEST:
        raise UserError(f"--set {_short(override)}: its key has {len(parts)} parts, more than any key of a recipe")
    try:
        (value,) = _loads(f"value = {text.strip()}").values()
    except (ValueError, RecursionError):
        value = text.strip()
    _require_shallow(value, f"--set {_short(override)}")
    if text.strip() == UNSET and not (len(parts) == 2 and has_value(table, parts[0], parts[1], UNSET)):
        _remove(table, parts, override)
        return
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise UserError(f"--set {override}: '{part}' is a value, not a table")
    table[parts[-1]] = value


def _remove(table: dict, parts: list[str], override: str) -> None:
    inner: Any = table
    for part in parts[:-1]:
        inner = inner.get(part) if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or parts[-1] not in inner:
        raise UserError(f"--set {_short(override)}: the recipe does not set this key; leave the option out")
    del inner[parts[-1]]


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
