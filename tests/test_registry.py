"""The registries of algorithms, models, tasks and data sets. The data sets' own file is tested in test_catalogue.py."""

import inspect
import sys

import pytest

import computations.registry
import datasets.registry


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose file adds itself to the table of another of its files."""
    folder = tmp_path / "package_of_a_test"
    folder.mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == folder.name]:
        del sys.modules[name]


def test_both_rooms_have_the_same_class():
    ours, theirs = (inspect.getsource(module.Registry) for module in (computations.registry, datasets.registry))
    assert ours == theirs


def test_a_file_registers_itself(package):
    (package / "__init__.py").write_text(
        "from computations.registry import Registry\nTABLE = Registry('thing', __name__)\n"
    )
    for file, name, value in (("one", "b", 1), ("two", "a", 2)):
        (package / f"{file}.py").write_text(
            f"from package_of_a_test import TABLE\nTABLE.add({name!r}, {value}, __name__)\n"
        )
    from package_of_a_test import TABLE

    assert dict(TABLE) == {"a": 2, "b": 1} and list(TABLE) == ["a", "b"] and len(TABLE) == 2
    with pytest.raises(KeyError):
        TABLE["c"]
    with pytest.raises(ValueError, match=r"thing 'a' is registered by package_of_a_test\.two and other"):
        TABLE.add("a", 3, "other")
    TABLE.add("a", 4, "package_of_a_test.two")  # a cell of a notebook is run again
    assert TABLE["a"] == 4
    TABLE.remove("a")
    assert list(TABLE) == ["b"]


def test_names_of_files_are_known_without_importing_them(package):
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("raise_when_imported = 1 / 0\n\nTHING = 1\n")
    (package / "two.py").write_text("THING = 2\n")
    (package / "three.py").write_text("OTHING = 3\nif True:\n    THING = 4\n")
    table = computations.registry.FileRegistry(package.name, "THING")
    assert list(table) == ["one", "two"] and len(table) == 2 and "three" not in table
    assert table["two"] == 2
    table.add("four", 4)
    assert list(table) == ["four", "one", "two"] and table["four"] == 4 and "four" in table
    with pytest.raises(ValueError, match="has an entry 'two' already"):
        table.add("two", 3)
    table.remove("four")
    assert "four" not in table and len(table) == 2
    with pytest.raises(ZeroDivisionError):
        table["one"]
