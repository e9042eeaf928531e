"""MIRGENE: microRNAs and genes in Medline, distantly supervised by TarBase and miRTarBase (Li et al., BioNLP 2017).

FedDS (Sui et al., EMNLP 2021, Section 4.1) gives the numbers of sentences (172,727 and 1,239) and not the form. Its
authors' released program reads OpenNRE's JSON lines in which the entities may lack identifiers and a key
``entity_pair`` names the pair; so does this reader, and it takes lines with identifiers as well.
"""

from __future__ import annotations

from datasets.bags import nyt10
from datasets.bags.records import BagCorpus
from datasets.catalogue import data_set
from datasets.errors import DataError
from datasets.files import PathLike

TYPES = ("microRNA", "gene")


def read_bags(
    path: PathLike,
    relations: PathLike | None,
    *,
    split: str = "train",
    name: str = "mirgene",
    misplaced: str = "refuse",
) -> BagCorpus:
    """The bags of a file, see `nyt10.read_bags`; two relations, head is the microRNA, tail the gene.

    Raises:
      DataError: as `nyt10.read_bags`, or other than two relations.
    """
    count = 2 if relations is None else len(nyt10.read_relation_names(relations))
    if count != 2:
        raise DataError(
            f"has {count} relations", path=relations, remedy=f'give it two: "{nyt10.NEGATIVE}" and the regulation'
        )
    types = {"head_type": TYPES[0], "tail_type": TYPES[1]}
    return nyt10.read_bags(
        path, relations, split=split, name=name, misplaced=misplaced, pair_key="entity_pair", **types
    )


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
    "mirgene_rel2id.json belongs beside the splits",
)
def read(
    path: PathLike,
    *,
    name: str,
    split: str,
    labelled: bool = True,
    rel2id: PathLike | None = None,
    misplaced: str = "refuse",
) -> BagCorpus:
    """The bags of a file, see `read_bags`; the relations' file is found as for `nyt10.read`."""
    relations = nyt10.relations_file(path, name, labelled, rel2id)
    return read_bags(path, relations, split=split, name=name, misplaced=misplaced)
