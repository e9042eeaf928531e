"""Exports of relations that say what their pairs are; each is written once in a test run."""

import pytest

from tests import exports_for_tests
from tests.exports_for_tests import arguments, written_once
from tff_re.exporting.export_model import export_model


@pytest.fixture(scope="session", autouse=True)
def _shared_exports(tmp_path_factory):
    exports_for_tests.set_folder_factory(tmp_path_factory)


def _with_details(kind, name, **details):
    values = arguments(kind)
    values["details"] = {**values["details"], **details}
    return written_once(name, lambda folder: export_model(folder, **values, formats="saved_model"))


@pytest.fixture(scope="session")
def sentence_export():
    """Word pieces of a sentence: no_relation, inhibits, binds."""
    details = {"negative_label": "no_relation", "pair_types": [["drug", "gene"]]}
    return _with_details("word pieces", "word pieces with types", **details)


@pytest.fixture(scope="session")
def document_export():
    """Whole documents: CID, at a threshold of 0.5."""
    return _with_details("documents", "documents with types", pair_types=[["drug", "gene"]])
