"""CDR: chemicals that induce diseases, in whole abstracts (Li et al., Database 2016), in PubTator's form."""

from __future__ import annotations

from datasets.catalogue import data_set
from datasets.documents.corpus import DocumentCorpus
from datasets.documents.mesh import read_mesh_tree
from datasets.documents.pairs import PairRule
from datasets.documents.reading import read_pairs
from datasets.files import PathLike


@data_set(
    "cdr",
    title="CDR, whole abstracts",
    kind="documents",
    task="chemicals and diseases in an abstract: does the chemical induce the disease",
    labels=("relation",),
    files={split: f"cdr/{split}.pubtator" for split in ("train", "dev", "test")},
    licence="none stated for the data",
    citation="Li et al., BioCreative V CDR task corpus, Database 2016",
    available_from="BioCreative V, track 3: CDR_TrainingSet.PubTator.txt, CDR_DevelopmentSet and CDR_TestSet",
)
def read(path: PathLike, *, name: str, label: str, split: str, mesh_tree: PathLike | None = None) -> DocumentCorpus:
    """The documents of a file; with a file of MeSH without negative pairs that are hypernyms of a positive one."""
    tree_numbers = None if mesh_tree is None else read_mesh_tree(mesh_tree)
    notes = ("no hypernym filtering: all negative pairs are kept",) if mesh_tree is None else ()
    rule = PairRule("Chemical", "Disease", ("CID",))
    return read_pairs(path, rule, name=name, split=split, tree_numbers=tree_numbers, notes=notes)
