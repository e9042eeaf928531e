"""MIRGENE: microRNAs and genes in Medline, distantly supervised by TarBase and miRTarBase (Li et al., BioNLP 2017).

FedDS (Sui et al., EMNLP 2021, Section 4.1) gives the numbers of sentences (172,727 and 1,239) and not the form. Its
authors' released program reads OpenNRE's JSON lines in which the entities may lack identifiers and a key
``entity_pair`` names the pair; so does this reader, and it takes lines with identifiers as well.
"""

from __future__ import annotations

from datasets.bags import nyt10
from datasets.bags.records import NEGATIVE, BagCorpus
from datasets.catalogue import data_set
from datasets.errors import DataError
from datasets.files import PathLike


@data_set(
    "mirgene",
    title="MIRGENE, OpenNRE's form",
    kind="bags",
    task="pairs of a microRNA and a gene and all sentences that mention both: regulated or not",
    labels=("relations",),
    files={split: f"mirgene/mirgene_{split}.txt" for split in ("train", "test")},
    licence="none stated",
    citation="Li et al., Noise Reduction Methods for Distantly Supervised Biomedical Relation Extraction, BioNLP 2017",
    available_from="leebird/bionlp17 on GitHub, brought into OpenNRE's form; "
    "mirgene_rel2id.json belongs next to the splits",
)
def read(
    path: PathLike,
    *,
    name: str = "mirgene",
    split: str = "train",
    labelled: bool = True,
    rel2id: PathLike | None = None,
    misplaced: str = "refuse",
) -> BagCorpus:
    """Read the bags of a file (see `nyt10.read`).

    There are two relations, the head is the microRNA and the tail the gene.

    Raises:
      DataError: as `nyt10.read`, or other than two relations.
    """
    options = {"labelled": labelled, "rel2id": rel2id, "misplaced": misplaced}
    types = ("microRNA", "gene")
    corpus = nyt10.read(path, name=name, split=split, types=types, pair_key="entity_pair", **options)
    count = len(corpus.relation_names)
    if labelled and count != 2:
        remedy = f'give it two: "{NEGATIVE}" and the regulation'
        raise DataError(f"its file of relations has {count}", path=path, remedy=remedy)
    return corpus
