"""BioCreative V CDR (Li et al., Database 2016) as distantly supervised data, by `datasets.bags.alignment`.

Its sentences are labelled by what its documents state; documents and facts of one's own are read likewise.
"""

from __future__ import annotations

from datasets.bags.alignment import align, read_facts, stated_facts
from datasets.bags.records import BagCorpus
from datasets.catalogue import data_set
from datasets.documents.pubtator import read_pubtator
from datasets.files import PathLike


@data_set(
    "cdr_aligned",
    title="BioCreative V CDR, aligned with its own facts",
    kind="bags",
    task="pairs of a chemical and a disease and all sentences that mention both: labelled by what chemicals induce in "
    "all abstracts together",
    labels=("relations",),
    files={split: f"cdr/{split}.pubtator" for split in ("train", "dev")},
    licence="none stated in the release",
    citation="Li et al., BioCreative V CDR task corpus, Database 2016",
    available_from="BioCreative V, track 3 (CDR), in PubTator's form",
)
def read(
    path: PathLike,
    *,
    name: str,
    split: str,
    labelled: bool = True,
    knowledge_base: PathLike | None = None,
    head_kind: str = "Chemical",
    tail_kind: str = "Disease",
    na_rate: float = 1.0,
    seed: int = 0,
) -> BagCorpus:
    """Read the bags of documents in PubTator format (see `align`).

    The facts are the table's or the documents' own.
    """
    documents = read_pubtator(path)
    facts, relation_names = None, None
    if labelled and knowledge_base is None:
        facts, relation_names = stated_facts(documents), ("CID",)
    elif labelled:
        facts = read_facts(knowledge_base)
    options = {"head_kind": head_kind, "tail_kind": tail_kind, "na_rate": na_rate, "seed": seed}
    return align(documents, facts, relation_names=relation_names, split=split, name=name, **options)
