"""Relations between the entities of a whole document (FedLCC, Section 3)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from attrs.validators import ge, optional

from computations.ranges import BELOW_ONE, refuse_unread
from datasets.catalogue import DATA_SETS, find_data_set
from datasets.documents.clients import encode_document_clients, hold_out
from datasets.documents.corpus import DocumentCorpus, DocumentSample, entity_types
from datasets.documents.encoding import DocumentEncoding
from datasets.documents.loading import load_documents, pairing_for
from datasets.documents.selection import set_documents_apart, subset, without
from datasets.documents.statistics import DocumentStatistics, document_statistics
from datasets.errors import DataError
from datasets.federated import Examples, FederatedExamples
from datasets.partition import label_counts
from tff_re.errors import UserError
from tff_re.models.inputs import DocumentInput
from tff_re.tasks.base import Prepared, partition_of
from tff_re.tasks.data_paths import DataPaths
from tff_re.tasks.duplicates import duplicate_notes
from tff_re.tasks.held_out import DEV, TEST
from tff_re.tasks.relation_text import load_tokenizer
from tff_re.tasks.task import AtServer, Task

if TYPE_CHECKING:
    from tff_re.tasks.metrics import PairMeasures


PAIRING = ("relations", "pair_types", "directed", "separators")
"""Keys of [task] that say which pairs are candidates for which relations."""


def _data_sets_with(option: str) -> tuple[str, ...]:
    """The data sets of documents whose readers take an option."""
    return tuple(name for name, entry in DATA_SETS.items() if entry.kind == "documents" and option in entry.options)


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
      Where the file is that of `split`, the clients hold the other documents.
    relations: for documents and docred, names of the relations; those that the training file states if not set.
    pair_types: types of the head and the tail of candidate pairs, e.g. `[["Gene", "Disease"], ["Gene", "Gene"]]`; the
      data set's if not set, or those of the relations that the training file states.
    directed: whether relations go from head to tail, or names of those that do; the data set's if not set. A relation
      without a direction is the same in either order.
    separators: for documents in PubTator's form, the characters that join several identifiers of a mention.
    mesh_tree: for cdr, a file of MeSH: negative pairs whose disease is a hypernym of a positive one's are left out.
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
    relations: tuple[str, ...] | None = None
    pair_types: tuple[tuple[str, str], ...] | None = None
    directed: bool | tuple[str, ...] | None = None
    separators: str | None = None
    mesh_tree: str | None = None
    tokenizer: str | None = None
    longest: int | None = attrs.field(default=None, validator=optional(ge(1)))

    def __attrs_post_init__(self):
        if find_data_set(self.dataset).kind != "documents":
            raise ValueError(f"dataset '{self.dataset}' has no documents with pairs of entities; use its own task")
        for key in ("relations", "pair_types", "separators"):
            if (value := getattr(self, key)) is not None and not value:
                raise ValueError(f"{key} must not be empty")
        names = self.relations or ()
        if repeated := next((name for number, name in enumerate(names) if name in names[:number]), None):
            raise ValueError(f"relations names '{repeated}' twice; name each once")
        if any(not name.strip() for name in names):
            raise ValueError("relations must not have an empty name")
        if self.dev_split is not None and not find_data_set(self.dataset).files:
            raise ValueError(
                f"dev_split names a split of the data set, and '{self.dataset}' has no files of its own; leave it out: "
                "dev_share of the test documents choose"
            )
        if any(len(types) != 2 for types in self.pair_types or ()):
            raise ValueError("pair_types must have pairs of types: head type, tail type")
        refuse_unread(self, {key: ("dataset", _data_sets_with(key)) for key in (*PAIRING, "mesh_tree")})

    @property
    def of_training(self) -> tuple[str, str | None]:
        """Split and file of the documents for training."""
        return self.split, self.path

    @property
    def of_test(self) -> tuple[str, str | None]:
        """Split and file of the documents for testing, which are those of `of_training` where the file is the same."""
        same = self.path is not None and self.path == self.test_path
        return self.of_training if same else (self.test_split, self.test_path)

    @property
    def pairing(self) -> dict[str, Any]:
        """What the recipe says of pairs, as options of the data set's reader."""
        return {key: value for key in PAIRING if (value := getattr(self, key)) is not None}


class DocumentRelations(Task):
    Options = Options
    across_sites = True
    server_tests = True
    label_keys = ("relations", "pair_types")
    many_labels = True

    def prepare(self, options: Options, partitioner, seed: int, data_paths: DataPaths) -> Prepared:
        from tff_re.tasks.held_out_documents import DocumentsAtServer

        corpus, held_out = _corpora(options, data_paths)
        partition = partition_of((corpus,), partitioner, seed, data_paths, test_share=0.0)
        if partition.server or any(client.test for client in partition.clients.values()):
            raise DataError(
                "the partition holds documents out at the clients, but the test documents are at the server",
                record=f"corpus {corpus.name}",
                remedy="build it with test_share = 0 and server_share = 0",
            )
        encoding = encoding_of(options, corpus.entity_types)
        examples, encoded = encode_document_clients(corpus, partition, encoding, held_out)
        arrays = [client.train for client in examples.clients] + [part.encoded.arrays for part in encoded.values()]
        inputs = _inputs(options, encoding, form_of(arrays, corpus))
        named = [
            f"{split}: {note}" for split, documents in held_out.items() for note in (_size(documents), *documents.notes)
        ]
        doubles = duplicate_notes(
            {"train": corpus.samples, **{split: part.samples for split, part in held_out.items()}}
        )
        notes = (f"training: {_size(corpus)}", *corpus.notes, *named, *partition.notes, encoding.describe(), *doubles)
        return PreparedDocuments(
            examples=examples,
            inputs=inputs,
            measures=self.measures(),
            counts=label_counts(partition, corpus),
            partition=partition,
            notes=tuple(dict.fromkeys(notes)),
            encoding=encoding,
            held_out=DocumentsAtServer(encoded, held_out),
            documents=document_statistics(partition, corpus),
            pair_relations=corpus.relation_names,
            pair_types=corpus.pair_types,
            training=corpus.samples,
        )

    def at_site(self, options: Options) -> Options:
        """As `Task.at_site`: parties that each read files of their own have to read them as the recipe says."""
        entry = find_data_set(options.dataset)
        for key in ("relations", "pair_types"):
            said = getattr(options, key) or (key == "pair_types" and entry.pair_types)
            if key in entry.options and not said:
                raise UserError(
                    f"task.{key}: it cannot come from the sites' files, which may differ; set it in the recipe"
                )
        return options

    def held(self, options: Options, partitioner, seed: int, data_paths: DataPaths):
        corpus = _training(options, data_paths)
        return (corpus,), partition_of((corpus,), partitioner, seed, data_paths, test_share=0.0)

    def agreed(self, options: Options, seed: int, data_paths: DataPaths):
        encoding = encoding_of(options, _types_said(options))
        return encoding, _inputs(options, encoding, data_paths.document_form), ()

    def encoded(
        self, options: Options, corpora, partition, encoding: DocumentEncoding
    ) -> tuple[FederatedExamples, tuple]:
        return encode_document_clients(corpora, partition, encoding)[0], ()

    def at_server(self, options: Options, names, encoding, inputs, data_paths: DataPaths) -> AtServer:
        """The documents of dev and test.

        Raises:
          UserError: they have other relations than the sites'.
        """
        from tff_re.tasks.held_out_documents import DocumentsAtServer

        held_out = _held_out(options, data_paths)
        made = {}
        for (split, corpus), part in zip(held_out.items(), encoding.encode_together(held_out.values()), strict=True):
            if corpus.relation_names != tuple(names):
                raise UserError(
                    f"the documents of {split} have other relations than the sites'; read both with the same relations"
                )
            part = dataclasses.replace(part, arrays=widened(part.arrays, inputs, encoding))
            made[split] = hold_out(split, corpus, part)
        named = (f"{s}: {note}" for s, documents in held_out.items() for note in (_size(documents), *documents.notes))
        return AtServer(held_out=DocumentsAtServer(made, held_out), notes=tuple(dict.fromkeys(named)))

    def largest_at_server(self, options: Options, data_paths: DataPaths) -> tuple[int, ...]:
        corpora = list(_held_out(options, data_paths).values())
        encoding = encoding_of(options, _types_said(options))
        return form_of([part.arrays for part in encoding.encode_together(corpora)], corpora[0])

    def measures(self, positive_labels: Sequence[int] | None = None, inputs=None) -> PairMeasures:
        from tff_re.tasks.metrics import PairMeasures

        return PairMeasures()

    def training_corpus(self, options: Options, data_paths: DataPaths) -> DocumentCorpus:
        return _training(options, data_paths)

    def label_counts(self, corpus: DocumentCorpus, samples) -> dict[str, int]:
        counts = Counter(label for sample in samples for pair in sample.pairs for label in pair.labels)
        return {name: counts[label] for label, name in enumerate(corpus.relation_names)}

    def pair_relations(self, corpus: DocumentCorpus) -> tuple[str, ...]:
        return corpus.relation_names

    def largest(self, options: Options, corpora, partition, clients: Collection[str]) -> tuple[int, ...]:
        examples, _ = self.encoded(options, corpora, partition, encoding_of(options, _types_said(options)))
        arrays = [client.train for client in examples.clients if client.client_id in clients]
        return form_of(arrays, corpora[0])

    def arranged(self, examples: Examples, encoding, inputs, *, client: int, numbers: np.ndarray | None) -> Examples:
        return widened(examples, inputs, encoding)


TASK = DocumentRelations()


@dataclass(frozen=True)
class PreparedDocuments(Prepared):
    """Whole documents with pairs of entities.

    Attributes:
      pair_relations: that a pair in a document may have.
      pair_types: types of the heads and tails of candidate pairs.
      documents: how the documents spread over the clients.
      training: the documents of the clients.
    """

    pair_relations: tuple[str, ...] | None = None
    pair_types: tuple[tuple[str, str], ...] = ()
    documents: DocumentStatistics | None = None
    training: tuple[DocumentSample, ...] = dataclasses.field(default=(), repr=False)

    def trained_on(self) -> list:
        return [*self.training, *super().trained_on()]

    def groups(self) -> list[np.ndarray]:
        raise UserError("privacy.unit is 'group', but an example of this task is a whole document; set it to 'example'")


def encoding_of(options: Options, types: tuple[str, ...]) -> DocumentEncoding:
    """From documents to the encoder's pieces, and the entities' types to numbers."""
    return DocumentEncoding(load_tokenizer(options.tokenizer, others=None), longest=options.longest, types=types)


def _types_said(options: Options) -> tuple[str, ...]:
    """The entities' types that the recipe or the data set's entry says, without a look at files."""
    return entity_types(options.pair_types or find_data_set(options.dataset).pair_types)


def form_of(parts: Iterable[Examples], corpus: DocumentCorpus) -> tuple[int, ...]:
    """The most pieces, mentions, candidate pairs and entities of a document, and the number of relations."""
    names = ("input_ids", "mention_place", "pair_head")
    sizes = ((*(p[n].shape[1] for n in names), int(p["mention_entity"].max(initial=-1)) + 1) for p in parts)
    return (*map(max, zip(*sizes, strict=True)), len(corpus.relation_names))


def widened(arrays: Examples, inputs: DocumentInput, encoding: DocumentEncoding) -> Examples:
    """The arrays of documents, padded to the widths of these inputs."""
    widths = {"entity_type": inputs.max_entities, **{name: spec.shape[1] for name, spec in inputs.specs.items()}}
    fill = {"input_ids": encoding.tokenizer.pad_token_id, "attention_mask": 0, "pair_labels": 0, "y": 0}
    padded = {}
    for name, array in arrays.items():
        more = [(0, 0)] * array.ndim
        if name in widths and array.ndim > 1:
            more[1] = (0, widths[name] - array.shape[1])
        padded[name] = np.pad(array, more, constant_values=fill.get(name, -1))
    return padded


def _inputs(options: Options, encoding: DocumentEncoding, sizes: Sequence[int]) -> DocumentInput:
    """The model's inputs for documents of these sizes, see `form_of`."""
    pieces, mentions, pairs, entities, relations = sizes
    return DocumentInput(
        vocabulary_size=len(encoding.tokenizer),
        max_length=pieces,
        max_mentions=mentions,
        max_entities=max(1, entities),
        max_pairs=pairs,
        num_relations=relations,
        tokenizer=options.tokenizer,
        num_types=len(encoding.types),
    )


def _load(
    options: Options,
    data_paths: DataPaths,
    split: str,
    path: str | None,
    *,
    held_out: bool = False,
    training: DocumentCorpus | None = None,
) -> DocumentCorpus:
    """The documents of a split, paired as the recipe says and, where they are given, as those for training."""
    pairing = {**options.pairing, **({"held_out": True} if held_out else {})}
    if training is not None:
        pairing.update(relations=training.relation_names, pair_types=training.pair_types)
    return load_documents(
        options.dataset,
        data_paths.data,
        path=path,
        label=options.label,
        split=split,
        mesh_tree=options.mesh_tree,
        **pairing_for(options.dataset, pairing),
    )


def _training(options: Options, data_paths: DataPaths, but: DocumentCorpus | None = None) -> DocumentCorpus:
    """What the clients hold, without the documents of `but`."""
    corpus = _load(options, data_paths, *options.of_training)
    corpus = corpus if but is None else without(corpus, but)
    return corpus if options.subset is None else subset(corpus, options.subset, seed=options.dev_seed)


def _corpora(options: Options, data_paths: DataPaths) -> tuple[DocumentCorpus, dict[str, DocumentCorpus]]:
    """(what the clients hold, what the server holds)."""
    if options.of_training == options.of_test and options.test_subset is not None:
        whole = _load(options, data_paths, *options.of_training)
        test = subset(whole, options.test_subset, seed=options.dev_seed)
        return _training(options, data_paths, test), _held_out(options, data_paths, whole)
    corpus = _training(options, data_paths)
    return corpus, _held_out(options, data_paths, corpus)


def _held_out(
    options: Options, data_paths: DataPaths, training: DocumentCorpus | None = None
) -> dict[str, DocumentCorpus]:
    like = {"held_out": True, "training": training}
    test = _load(options, data_paths, *options.of_test, **like)
    if options.test_subset is not None:
        test = subset(test, options.test_subset, seed=options.dev_seed)
    if options.dev_split is not None:
        return {DEV: _load(options, data_paths, options.dev_split, None, **like), TEST: test}
    if not options.dev_share:
        return {TEST: test}
    test, dev = set_documents_apart(test, options.dev_share, seed=options.dev_seed)
    return {DEV: dev, TEST: test}


def _size(corpus: DocumentCorpus) -> str:
    counts = corpus.counts()
    relations = len(corpus.relation_names)
    return (
        f"{counts['documents']} documents, {counts['positive']} positive and {counts['negative']} negative pairs, "
        f"{counts['intra']} of them in one sentence"
        + (f"; {relations} relations, {len(corpus.pair_types)} pairs of types" if relations > 1 else "")
    )
