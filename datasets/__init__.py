"""From files to records to clients' encoded examples; knows no model and no federated computation."""

from datasets.catalogue import DATA_SETS, DataSet, files_there, find_data_set, load_corpus, symptom_vocabulary
from datasets.dialogues.records import Dialogue, LabelledText, TextCorpus, Utterance
from datasets.encoded_clients import encode_partition, training_texts
from datasets.errors import DataError
from datasets.federated import ClientExamples, Examples, FederatedExamples
from datasets.partition import (
    Partition,
    build_partition,
    label_counts,
    make_partitioner,
    read_partition,
    write_partition,
)

__all__ = [
    "DATA_SETS",
    "ClientExamples",
    "DataError",
    "DataSet",
    "Dialogue",
    "Examples",
    "FederatedExamples",
    "LabelledText",
    "Partition",
    "TextCorpus",
    "Utterance",
    "build_partition",
    "encode_partition",
    "files_there",
    "find_data_set",
    "label_counts",
    "load_corpus",
    "make_partitioner",
    "read_partition",
    "symptom_vocabulary",
    "training_texts",
    "write_partition",
]
