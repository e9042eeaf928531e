"""The class `Registry`, with what the files of a package define, by name.

All data sets are in `datasets.catalogue`.

The class is that of `computations.registry`, for this package.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any


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
