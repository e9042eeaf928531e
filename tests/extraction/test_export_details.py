"""What exports say of their pairs: types, placeholders, and one digest for the whole export."""

from __future__ import annotations

import hashlib
import json
import shutil
from types import SimpleNamespace

import pytest

from datasets.documents.loading import load_documents
from datasets.relations.loading import load_relations
from tests.documents_for_tests import write_documents
from tests.extraction.stubs import write
from tests.relations_for_tests import write_records
from tff_re.exporting.digests import digest_of_export
from tff_re.exporting.kind import pair_types
from tff_re.exporting.kinds import KINDS
from tff_re.exporting.prediction import load_export
from tff_re.exporting.predictors import PredictionError
from tff_re.tasks.document_relations import Options

pytestmark = pytest.mark.xdist_group("exports")


def details(kind, recipe=None, **prepared):
    measures = SimpleNamespace(positive_labels=(1,))
    prepared = SimpleNamespace(label_names=("none", "yes"), measures=measures, **prepared)
    return KINDS[kind].details(SimpleNamespace(prepared=prepared, recipe=recipe), None, None)


def record(**types):
    return {"id": 1, "text": "a drug b", "head": [2, 6], "tail": [7, 8], "label": "yes", **types}


def test_types_of_own_relations(tmp_path):
    typed = load_relations("relations", path=write_records(tmp_path, [record(head_type="drug", tail_type="gene")]))
    plain = load_relations("relations", path=write_records(tmp_path, [record()], name="plain"))
    assert details("relation_words", corpora=(typed,)) == {"negative_label": "none", "pair_types": [["drug", "gene"]]}
    assert details("relation_words", corpora=(typed, plain)) == {"negative_label": "none"}
    assert details("relation_words", corpora=()) == {"negative_label": "none"}


def test_placeholders_of_gad(tmp_path):
    gad = load_relations(
        "gad", path=write(tmp_path / "gad.tsv", "The @GENE$ and @DISEASE$.\t1\n@DISEASE$ of @GENE$\t0\n")
    )
    placeholders = {"gene": "@GENE$", "disease": "@DISEASE$"}
    assert details("relation_pieces", corpora=(gad,)) == {
        **{"negative_label": "none", "pair_types": [["gene", "disease"]], "placeholders": placeholders}
    }


def test_types_of_documents(tmp_path):
    """Those of training; where a party does not know them, the recipe's, or else the data set's."""
    file, held_out = write_documents(tmp_path / "a.pubtator", range(3)), SimpleNamespace(splits=("test",))

    def of_documents(types, **options):
        recipe = SimpleNamespace(task=SimpleNamespace(options=Options(**options)))
        return details("documents", recipe, held_out=held_out, pair_types=types)

    cdr = {"threshold": 0.5, "pair_types": [["Chemical", "Disease"]]}
    assert of_documents(load_documents("cdr", path=file).pair_types) == cdr == of_documents(())
    own = {"dataset": "documents", "path": "a", "directed": ("CID",), "separators": ";"}
    said = {"threshold": 0.5, "pairs": {"directed": ("CID",), "separators": ";"}}
    assert of_documents((), **own, pair_types=(("B", "A"),)) == {**said, "pair_types": [["B", "A"]]}
    assert of_documents((("B", "A"), ("A", "A")), **own) == {**said, "pair_types": [["B", "A"], ["A", "A"]]}
    assert of_documents((), **own) == said


def test_so_many_types_are_no_types():
    pairs = [(f"a{number}", "b") for number in range(200)]
    assert len(pair_types(pairs)["pair_types"]) == 200 and pair_types([*pairs, ("c", "b")]) == {} == pair_types([])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pair_types": "drug:gene"}, '"details.pair_types" is not a list of pairs'),
        ({"pair_types": [["drug"]]}, '"details.pair_types" is not a list of pairs'),
        ({"pair_types": [["drug", 1]]}, '"details.pair_types" has a pair without two types'),
        ({"placeholders": {"drug": 1}}, '"details.placeholders" is not an object of strings'),
    ],
)
def test_edited_details_are_refused(sentence_export, tmp_path, change, said):
    folder = shutil.copytree(sentence_export, tmp_path / "export")
    about = json.loads((folder / "export.json").read_text("utf-8"))
    about["details"] |= change
    write(folder / "export.json", json.dumps(about))
    with pytest.raises(PredictionError, match=said):
        load_export(folder, trust=True)


def test_the_digest_of_an_export(sentence_export, tmp_path):
    sums = (sentence_export / "SHA256SUMS").read_bytes()
    assert digest_of_export(sentence_export) == hashlib.sha256(sums).hexdigest()
    folder = shutil.copytree(sentence_export, tmp_path / "export")
    (folder / "SHA256SUMS").unlink()
    assert digest_of_export(folder) == hashlib.sha256(sums).hexdigest()
    write(folder / "labels.json", "[]")
    assert digest_of_export(folder) != hashlib.sha256(sums).hexdigest()
