"""Relations between the entities of a whole document (FedLCC, Section 3)."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs
import numpy as np
import tensorflow_federated as tff
from attrs.validators import ge, optional

from computations.document_evaluation import build_pair_scores
from computations.federated_algorithm import FederatedAlgorithm
from computations.local_model import LABEL, LocalModel
from computations.ranges import BELOW_ONE
from datasets.catalogue import find_data_set
from datasets.documents.clients import HeldOutDocuments, encode_document_clients, hold_out
from datasets.documents.corpus import DocumentCorpus
from datasets.documents.encoding import DocumentEncoding
from datasets.documents.loading import load_documents
from datasets.documents.scoring import best_threshold
from datasets.documents.selection import set_documents_apart, subset
from datasets.documents.statistics import document_statistics
from datasets.errors import DataError
from datasets.federated import Examples, FederatedExamples
from datasets.partition import label_counts
from tff_re.errors import UserError
from tff_re.models.inputs import DocumentInput
from tff_re.settings import refuse_unread
from tff_re.tasks.base import Prepared, partition_of
from tff_re.tasks.data_paths import DataPaths
from tff_re.tasks.duplicates import duplicate_notes
from tff_re.tasks.held_out import DEV, TEST
from tff_re.tasks.pair_metrics import DEFAULT_THRESHOLD, PAIR_METRICS, pair_metrics
from tff_re.tasks.ranking_metrics import curve
from tff_re.tasks.relation_text import load_tokenizer


@attrs.frozen(kw_only=True)
class Options:
    """Attributes:
    dataset: a data set of documents that `datasets` lists.
    label: one of the data set's label choices; its first one if not set.
    path, test_path: files to read in place of the catalogue's; relative to the current folder.
    split: which of the data set's splits the clients hold.
    test_split: the split that the server holds for testing.
    dev_split: a split that chooses the threshold and the round; if not set, `dev_share` of the documents of
      `test_split` do, which are then not tested on.
    dev_share: see dev_split; 0: no choice, the threshold is 0.5 and the last round's model is tested.
    dev_seed: draws these documents, so that runs of other seeds are tested on the same ones.
    subset: so many training documents, drawn by `dev_seed`; all if not set.
    test_subset: so many documents of `test_split`, `dev_share` of them included, drawn by `dev_seed`; all if not set.
    mesh_tree: for cdr, a file of MeSH: negative pairs that are hypernyms of a positive one are left out.
    tokenizer: the folder or hub id of the encoder.
    longest: a document with more pieces is refused; of any length if not set.
    """

    dataset: str = "cdr"
    label: str | None = None
    path: str | None = None
    test_path: str | None = None
    split: str = "train"
    test_split: str = "dev"
    dev_split: str | None = None
    dev_share: float = attrs.field(default=0.5, validator=BELOW_ONE)
    dev_seed: int = attrs.field(default=0, validator=ge(0))
    subset: int | None = attrs.field(default=None, validator=optional(ge(1)))
    test_subset: int | None = attrs.field(default=None, validator=optional(ge(1)))
    mesh_tree: str | None = None
    tokenizer: str | None = None
    longest: int | None = attrs.field(default=None, validator=optional(ge(1)))

    def __attrs_post_init__(self):
        if find_data_set(self.dataset).kind != "documents":
            raise ValueError(f"dataset '{self.dataset}' holds no documents with pairs of entities; use its own task")
        refuse_unread(self, {"mesh_tree": ("dataset", ("cdr",))})


def prepare(options: Options, partitioner, seed: int, data_paths: DataPaths) -> Prepared:
    """Reads the documents, gives those for training to clients and encodes all."""
    corpus, held_out = _corpora(options, data_paths)
    partition = partition_of(options, (corpus,), partitioner, seed, data_paths, test_share=0.0)
    if partition.server or any(client.test for client in partition.clients.values()):
        raise DataError(
            "the partition holds documents out, but the test documents are at the server",
            record=f"corpus {corpus.name}",
            remedy="build it with test_share = 0 and server_share = 0",
        )
    encoding = encoding_of(options)
    examples, encoded = encode_document_clients(corpus, partition, encoding, held_out)
    arrays = [client.train for client in examples.clients] + [found.encoded.arrays for found in encoded.values()]
    inputs = _inputs(options, encoding, form_of(arrays, corpus))
    of_server = DocumentsAtServer(encoded)
    named = [
        f"{split}: {note}" for split, documents in held_out.items() for note in (_size(documents), *documents.notes)
    ]
    doubles = duplicate_notes({"train": corpus.samples, **{split: own.samples for split, own in held_out.items()}})
    notes = (f"training: {_size(corpus)}", *corpus.notes, *named, *partition.notes, encoding.describe(), *doubles)
    return Prepared(
        examples=examples,
        inputs=inputs,
        counts=label_counts(partition, corpus),
        partition=partition,
        notes=tuple(dict.fromkeys(notes)),
        encoding=encoding,
        held_out_corpora=held_out,
        held_out=of_server,
        references=of_server.references(),
        documents=document_statistics(partition, corpus),
        pair_relations=corpus.relation_names,
    )


def held(options: Options, partitioner, seed: int, data_paths: DataPaths):
    """(the training documents alone, who holds which); nothing is encoded."""
    corpus = _training(options, data_paths)
    return (corpus,), partition_of(options, (corpus,), partitioner, seed, data_paths, test_share=0.0)


def encoding_of(options: Options) -> DocumentEncoding:
    """From documents to the encoder's pieces."""
    return DocumentEncoding(load_tokenizer(options.tokenizer, others=None), longest=options.longest)


def agreed(options: Options, seed: int, data_paths: DataPaths):
    """(encoding, inputs, notes) of the sizes in `data_paths`, without any document."""
    del seed
    encoding = encoding_of(options)
    return encoding, _inputs(options, encoding, data_paths.document_form), ()


def encoded(options: Options, corpora, partition, encoding: DocumentEncoding) -> tuple[FederatedExamples, tuple]:
    """(the clients' examples, what a report has to say of their texts)."""
    del options
    return encode_document_clients(corpora, partition, encoding)[0], ()


def form_of(parts: Iterable[Examples], corpus: DocumentCorpus) -> tuple[int, ...]:
    """The most pieces, mentions, candidate pairs and entities of a document, and the number of relations."""
    names = ("input_ids", "mention_place", "pair_head")
    sizes = ((*(p[n].shape[1] for n in names), int(p["mention_entity"].max(initial=-1)) + 1) for p in parts)
    return (*map(max, zip(*sizes, strict=True)), len(corpus.relation_names))


def widened(arrays: Examples, inputs: DocumentInput, encoding: DocumentEncoding) -> Examples:
    """The arrays of documents, padded to the widths of these inputs."""
    fill = {"input_ids": encoding.tokenizer.pad_token_id, "attention_mask": 0, "pair_labels": 0, LABEL: 0}
    found = {}
    for name, array in arrays.items():
        more = [(0, 0)] * array.ndim
        if name in inputs.specs and array.ndim > 1:
            more[1] = (0, inputs.specs[name].shape[1] - array.shape[1])
        found[name] = np.pad(array, more, constant_values=fill.get(name, -1))
    return found


def at_server(options: Options, relation_names: tuple[str, ...], encoding, inputs, data_paths: DataPaths) -> dict:
    """Of `Prepared`, what the coordinator of sites holds: the documents of dev and test.

    Raises:
      UserError: they have other relations than the sites'.
    """
    held_out = _held_out(options, data_paths)
    made = {}
    for (split, corpus), part in zip(held_out.items(), encoding.encode_together(held_out.values()), strict=True):
        if corpus.relation_names != relation_names:
            raise UserError(f"the documents of {split} have other relations than the sites'; read them alike")
        part = dataclasses.replace(part, arrays=widened(part.arrays, inputs, encoding))
        made[split] = hold_out(split, corpus, part)
    named = (f"{s}: {note}" for s, documents in held_out.items() for note in (_size(documents), *documents.notes))
    notes = tuple(dict.fromkeys(named))
    found = DocumentsAtServer(made)
    return {"held_out": found, "held_out_corpora": held_out, "references": found.references(), "notes": notes}


def form_at_server(options: Options, data_paths: DataPaths) -> tuple[int, ...]:
    """`form_of` the documents of dev and test."""
    corpora = list(_held_out(options, data_paths).values())
    encoding = encoding_of(options)
    return form_of([part.arrays for part in encoding.encode_together(corpora)], corpora[0])


def _inputs(options: Options, encoding: DocumentEncoding, form: Sequence[int]) -> DocumentInput:
    """The model's inputs for documents of these sizes, see `form_of`."""
    pieces, mentions, pairs, entities, relations = form
    return DocumentInput(
        vocabulary_size=len(encoding.tokenizer),
        max_length=pieces,
        max_mentions=mentions,
        max_entities=entities,
        max_pairs=pairs,
        num_relations=relations,
        tokenizer=options.tokenizer,
    )


class DocumentsAtServer:
    """Documents at the server: a `tff_re.tasks.held_out.HeldOut`."""

    criterion = "f1"

    def __init__(self, documents: Mapping[str, HeldOutDocuments]):
        """Args:
        documents: split -> its documents; `test`, and `dev` before it if there is one.

        Raises:
          DataError: a split that states no relation, so that there is no recall.
        """
        for split, of_split in documents.items():
            if not of_split.gold:
                raise DataError(
                    f"none of its {len(of_split.encoded.pairs)} documents states a relation, so there is no recall",
                    record=f"documents of {split}",
                    remedy="choose other splits or another dev_share",
                )
        self._documents = documents
        self.splits = tuple(documents)
        threshold = (f"{DEV}/threshold",) if DEV in documents else ()
        self.metric_names = (*(f"{split}/{name}" for split in documents for name in PAIR_METRICS), *threshold)

    def scoring(self, algorithm: FederatedAlgorithm) -> tff.Computation:
        """Probabilities of all relations for every candidate pair."""
        return build_pair_scores(algorithm.model)

    def examples(self, model: LocalModel, split: str) -> collections.OrderedDict:
        """The documents of a split."""
        return model.arrange(self._documents[split].encoded.arrays)

    def exported_inputs(self, inputs: DocumentInput, algorithm: FederatedAlgorithm) -> DocumentInput:
        """Encoded documents, as in training."""
        return inputs

    def behind(self, run: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]) -> DocumentsAtServer:
        """The same documents behind a model's frozen layers."""
        behind = {}
        for split, of_split in self._documents.items():
            encoded = dataclasses.replace(of_split.encoded, arrays=run(of_split.encoded.arrays))
            behind[split] = dataclasses.replace(of_split, encoded=encoded)
        return DocumentsAtServer(behind)

    def metrics(self, scores: Mapping[str, np.ndarray]) -> dict[str, float]:
        """For each split `f1`, `precision`, `recall`, and `f1_intra`, `f1_inter` of the pairs that a sentence mentions
        and of the others; all at the `threshold` that is best on dev (0.5 without). NaN where a score is not finite."""
        if not all(np.isfinite(values).all() for values in scores.values()):
            return {f"{split}/{name}": float("nan") for split in scores for name in PAIR_METRICS}
        found = {}
        threshold = DEFAULT_THRESHOLD
        if DEV in scores:
            dev = self._documents[DEV]
            threshold = best_threshold(scores[DEV], dev.encoded.pairs, dev.gold)
            found["dev/threshold"] = threshold
        return found | self._metrics_at(scores, threshold)

    def _metrics_at(self, scores: Mapping[str, np.ndarray], threshold: float) -> dict[str, float]:
        found = {}
        for split, values in scores.items():
            own = self._documents[split]
            measured = pair_metrics(values, own.encoded.pairs, own.gold, threshold)
            found.update({f"{split}/{name}": value for name, value in measured.items()})
        return found

    def references(self) -> dict[str, dict[str, float]]:
        """Rows of a comparison that need no training: the metrics where every relation of every pair is predicted."""
        every = {
            split: np.ones(own.encoded.arrays["pair_labels"].shape, np.float32)
            for split, own in self._documents.items()
        }
        return {"trivial: every pair positive": self._metrics_at(every, DEFAULT_THRESHOLD)}

    def points(self, scores: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """The curve of the test split's candidates; stated relations that are no candidates count as not found. None
        where a score is not finite or no candidate is stated."""
        own = self._documents[TEST]
        if not np.isfinite(scores[TEST]).all():
            return None
        candidates = own.encoded.arrays["pair_head"] >= 0
        true = own.encoded.arrays["pair_labels"][candidates] > 0
        if not true.any():
            return None
        return curve(scores[TEST][candidates], true).points(true.sum(), len(own.gold))


def _corpora(options: Options, data_paths: DataPaths) -> tuple[DocumentCorpus, dict[str, DocumentCorpus]]:
    """The clients' documents, and split -> documents at the server."""

    return _training(options, data_paths), _held_out(options, data_paths)


def _load(options: Options, data_paths: DataPaths, split: str, path: str | None) -> DocumentCorpus:
    return load_documents(
        options.dataset, data_paths.data, path=path, label=options.label, split=split, mesh_tree=options.mesh_tree
    )


def _training(options: Options, data_paths: DataPaths) -> DocumentCorpus:
    corpus = _load(options, data_paths, options.split, options.path)
    return corpus if options.subset is None else subset(corpus, options.subset, seed=options.dev_seed)


def _held_out(options: Options, data_paths: DataPaths) -> dict[str, DocumentCorpus]:
    test = _load(options, data_paths, options.test_split, options.test_path)
    if options.test_subset is not None:
        test = subset(test, options.test_subset, seed=options.dev_seed)
    if options.dev_split is not None:
        return {DEV: _load(options, data_paths, options.dev_split, None), TEST: test}
    if not options.dev_share:
        return {TEST: test}
    test, dev = set_documents_apart(test, options.dev_share, seed=options.dev_seed)
    return {DEV: dev, TEST: test}


def _size(corpus: DocumentCorpus) -> str:
    counts = corpus.counts()
    return (
        f"{counts['documents']} documents, {counts['positive']} positive and {counts['negative']} negative pairs, "
        f"{counts['intra']} of them in one sentence"
    )
