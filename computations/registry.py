"""What the files of a package define, by name.

`datasets.registry` has the same `Registry` for the other package.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Choice:
    """An entry chosen by name, with its options (of the class that belongs to the name)."""

    name: str
    options: Any

    def get(self, key: str, default: Any = None) -> Any:
        """Return the option of a key, or the default if this choice has none of that name."""
        return getattr(self.options, key, default)


class Registry(Mapping):
    """A mapping from names to entries, sorted by name.

    A file adds its entries when it is imported. A look-up of an unknown name imports every file, and so does iterating
    over the names.

    Args:
      kind: what the entries are, for messages.
      packages: their files, without those of folders in them.
    """

    def __init__(self, kind: str, *packages: str):
        self._kind, self._packages = kind, packages
        self._entries: dict[str, Any] = {}
        self._modules: dict[str, str] = {}

    def add(self, name: str, entry: Any, module: str) -> None:
        """Add an entry of that module.

        Raises ValueError if another module has the name.
        """
        known = self._modules.setdefault(name, module)
        if known != module:
            raise ValueError(f"{self._kind} {name!r} is registered by {known} and {module}")
        self._entries[name] = entry

    def remove(self, name: str) -> None:
        """Remove an entry, for example after a test that has added it."""
        del self._entries[name], self._modules[name]

    def __getitem__(self, name: str) -> Any:
        if name not in self._entries:
            self._import_all()
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        self._import_all()
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        self._import_all()
        return len(self._entries)

    def _import_all(self) -> None:
        for package in self._packages:
            for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
                importlib.import_module(f"{package}.{module.name}")


class FileRegistry(Mapping):
    """A mapping from names to the entries that a package's files declare, sorted by name.

    Each `name.py` declares one as `VARIABLE = …`.

    The names are known without what the files import (TensorFlow); a file is imported when its entry is asked for.

    Args:
      package: its files, without those of folders in it.
      variable: the name of the variable.
    """

    def __init__(self, package: str, variable: str):
        self._package, self._variable = package, variable
        mark = re.compile(rf"^{variable} = ", re.MULTILINE)
        files = (file for folder in importlib.import_module(package).__path__ for file in Path(folder).glob("*.py"))
        self._names = {file.stem for file in files if mark.search(file.read_text("utf-8"))}
        self._added: dict[str, Any] = {}

    def add(self, name: str, entry: Any) -> None:
        """Add an entry of a file elsewhere.

        Raises ValueError if the name is taken.
        """
        if name in self:
            raise ValueError(f"{self._package} has an entry {name!r} already")
        self._added[name] = entry

    def remove(self, name: str) -> None:
        """Remove an entry that was added."""
        del self._added[name]

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            return self._added[name]
        return getattr(importlib.import_module(f"{self._package}.{name}"), self._variable)

    def __contains__(self, name: object) -> bool:  # without the import of Mapping's
        return name in self._names or name in self._added

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._names, *self._added}))

    def __len__(self) -> int:
        return len(self._names) + len(self._added)
