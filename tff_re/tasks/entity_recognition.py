"""Entities of a text with their types: clinical named entity recognition, in Chinese and English."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs
from attrs.validators import and_, ge, gt, lt, optional

from computations.ranges import BELOW_ONE, refuse_unread
from datasets.catalogue import find_data_set
from datasets.encoded_clients import training_texts
from datasets.entities import neutral
from datasets.entities.clients import encode_entity_clients
from datasets.entities.encoding import TaggedPieceEncoding, TaggedTokenEncoding
from datasets.entities.loading import load_entities
from datasets.entities.records import EntityCorpus, annotated_with
from datasets.entities.scoring import dictionary, score_spans, tag_with_dictionary
from datasets.entities.selection import set_documents_apart, subset
from datasets.federated import FederatedExamples
from datasets.partition import Partition, label_counts
from datasets.text import load_word_vectors
from datasets.text.encoding import CharacterEncoding, WordEncoding
from datasets.text.segmentation import Segmenter
from datasets.text.vocabulary import Vocabulary
from tff_re.errors import UserError, nearest
from tff_re.models.inputs import TaggedPieceInput, TaggedTokenInput
from tff_re.tasks.base import Prepared, partition_of
from tff_re.tasks.data_paths import DataPaths
from tff_re.tasks.relation_text import load_tokenizer, require_known_pieces, unread_vectors
from tff_re.tasks.sizes import require_room_for_texts
from tff_re.tasks.task import LabelledServerTask

if TYPE_CHECKING:
    from tff_re.tasks.span_metrics import SpanMeasures

_OWN_VOCABULARY = ("encoding", ("words", "characters"))

_NEEDS = {
    "test_path": ("test", ("official",)),
    "test_dataset": ("test", ("official",)),
    "test_split": ("test", ("official",)),
    "test_subset": ("test", ("documents", "official")),
    "tokenizer": ("encoding", ("pieces",)),
    "other_types": ("dataset", (neutral.NAME,)),
    **dict.fromkeys(("min_count", "min_clients", "max_words", "vectors_path"), _OWN_VOCABULARY),
}
"""What the keys need that a choice may leave unread; see `refuse_unread`."""


@attrs.frozen(kw_only=True)
class Options:
    """Attributes:
    dataset: a data set of entities that `datasets` lists; `entities` for your own files.
    entity_types: the types to recognise, in this order; those of the data set if not set.
    nested: what becomes of entities inside of others: `refuse` the file, or keep the `outermost` ones; as the data
      set's reader does if not set.
    other_types: for `entities`, whether a type that `entity_types` does not name is refused or left out.
    unit: of data sets of documents, whether a sample is a `document` or a `sentence`; the data set's own if not set.
    path, test_path: files to read in place of the catalogue's; relative to the current folder.
    split: which of the data set's splits the clients hold.
    test: `hold_out`: each client keeps `test_share` of its texts; `documents`: `test_share` of the documents are set
      apart before there are clients; `official`: the split `test_split`. Clients get the latter two by the
      partitioner's rule; metrics are over all of them.
    test_dataset: another data set to test on, with types of the same names; `dataset` if not set.
    test_split: the split for testing with test = `official`.
    server_share: share of the training texts that the server holds with their entities (FedED's D_v), drawn by the
      run's seed before there are clients.
    test_share: share of the texts or documents held out.
    test_seed: draws the documents set apart, so that runs of other seeds are tested on the same ones.
    subset: so many training texts, drawn by the run's seed; all if not set.
    test_subset: so many test texts, drawn by `test_seed`; all if not set.
    encoding: `characters`, `words` by jieba (which cuts English at blanks and marks), or `pieces` of a pretrained
      encoder's tokenizer. Each of them has a tag.
    scheme: tags of an entity's tokens: B and I, or B, I, E and S.
    tokenizer: with `pieces`, the folder or hub id of the encoder.
    max_length: tokens of a text that are kept, of pieces [CLS] and [SEP] included; longer texts are cut at their end,
      and entities that are cut count as not found. With `pieces`, 0 keeps every text whole (the model reads windows).
    min_count, max_words: bounds of the vocabulary.
    min_clients: a word enters the vocabulary only if so many clients hold it: the vocabulary leaves the clients.
    vectors_path: initial word vectors (word2vec text or binary; gensim's own format with --trust); learned with the
      model if not set.
    annotated: client -> the types that its texts are annotated with (also those that it holds out for testing); all
      types for clients not named.
    annotated_by: `all`: every client annotates every type; `turns`: one type a client, in the order of `entity_types`
      and of the clients.
    unannotated: what a type is that a client did not annotate: `left_out` of its loss; `global_model`: in its training
      expected where the round's global model has it; `no_entity`: as if no text of the client had one.
    """

    dataset: str = "shipped_entities"
    entity_types: tuple[str, ...] | None = None
    nested: Literal["refuse", "outermost"] | None = None
    other_types: Literal["refuse", "leave_out"] = "refuse"
    unit: Literal["document", "sentence"] | None = None
    path: str | None = None
    test_path: str | None = None
    split: str = "train"
    test: Literal["hold_out", "documents", "official"] = "hold_out"
    test_dataset: str | None = None
    test_split: str = "dev"
    server_share: float = attrs.field(default=0.0, validator=BELOW_ONE)
    test_share: float = attrs.field(default=0.1, validator=and_(gt(0), lt(1)))
    test_seed: int = attrs.field(default=0, validator=ge(0))
    subset: int | None = attrs.field(default=None, validator=optional(ge(1)))
    test_subset: int | None = attrs.field(default=None, validator=optional(ge(1)))
    encoding: Literal["characters", "words", "pieces"] = "characters"
    scheme: Literal["BIO", "BIOES"] = "BIO"
    tokenizer: str | None = None
    max_length: int = attrs.field(default=128, validator=ge(0))
    min_count: int = attrs.field(default=1, validator=ge(1))
    min_clients: int = attrs.field(default=2, validator=ge(1))
    max_words: int | None = None
    vectors_path: str | None = None
    annotated: dict[str, tuple[str, ...]] | None = attrs.field(default=None, hash=False)
    annotated_by: Literal["all", "turns"] = "all"
    unannotated: Literal["left_out", "global_model", "no_entity"] = "left_out"

    def __attrs_post_init__(self):
        for dataset in filter(None, (self.dataset, self.test_dataset)):
            if find_data_set(dataset).kind != "entities":
                raise ValueError(f"dataset '{dataset}' has no texts with entities; use its own task")
        refuse_unread(self, _NEEDS)
        if self.entity_types is not None and len({*self.entity_types}) != len(self.entity_types):
            raise ValueError("entity_types names a type twice; name every type once")
        if not self.max_length and self.encoding != "pieces":
            raise ValueError("max_length = 0 needs encoding = 'pieces'")
        if self.annotated is not None and self.annotated_by != "all":
            raise ValueError("annotated and annotated_by cannot be set together; set one of them")
        if self.unannotated != "left_out" and self.annotated is None and self.annotated_by == "all":
            raise ValueError("unannotated needs annotated, or annotated_by = 'turns'")


class EntityRecognition(LabelledServerTask):
    Options = Options
    across_sites = True
    label_keys = ("entity_types",)
    many_labels = True
    quality = "f1"

    def prepare(self, options: Options, partitioner, seed: int, data_paths: DataPaths) -> Prepared:
        corpora, partition = self.held(options, partitioner, seed, data_paths)
        _require_known_clients(options, partition)
        encoding, inputs, notes = _reading(
            options, corpora[0].entity_types, lambda: training_texts(partition, *corpora), seed, data_paths
        )
        examples, of_texts = self.encoded(options, corpora, partition, encoding)
        if options.encoding == "pieces":
            require_known_pieces(examples, encoding.tokenizer.unk_token_id, options.tokenizer)
        if inputs.max_length == 0:
            inputs = dataclasses.replace(inputs, max_length=examples.clients[0].train["input_ids"].shape[1])
        return PreparedEntities(
            examples=examples,
            inputs=inputs,
            measures=self.measures(inputs=inputs),
            counts=label_counts(partition, *corpora),
            partition=partition,
            encoding=encoding,
            corpora=corpora,
            annotated=_annotated(options, corpora[0].entity_types, partition),
            test_annotated=_test_annotated(options),
            notes=tuple(
                dict.fromkeys(
                    (
                        *(note for c in corpora for note in c.notes),
                        *partition.notes,
                        encoding.describe(),
                        *notes,
                        *of_texts,
                    )
                )
            ),
        )

    def measures(self, positive_labels=None, inputs=None) -> SpanMeasures:
        from tff_re.tasks.span_metrics import SpanMeasures

        return SpanMeasures(inputs.entity_types)

    def at_site(self, options: Options) -> Options:
        """The options as a site reads them.

        Raises:
          UserError: they leave open what every site has to know before the others' texts are read.
        """
        if options.entity_types is None:
            raise UserError("task.entity_types: all sites need the same types; list them in the recipe")
        if not options.max_length:
            raise UserError("task.max_length = 0: all sites need the same length; set it, e.g. to 512")
        if options.annotated_by != "all":
            raise UserError(
                "task.annotated_by: a site does not know the clients of other sites; name clients in task.annotated"
            )
        return super().at_site(options)

    def words(self, options: Options, corpora, partition: Partition, data_paths: DataPaths):
        if options.encoding == "pieces":
            return {}
        texts = training_texts(partition, *corpora)
        if options.encoding == "characters":
            return texts
        segmenter = Segmenter()
        return {client: segmenter.segment(client_texts) for client, client_texts in texts.items()}

    def agreed(self, options: Options, seed: int, data_paths: DataPaths):
        return _reading(options, options.entity_types, dict, seed, data_paths)

    def encoded(
        self, options: Options, corpora, partition: Partition, encoding
    ) -> tuple[FederatedExamples, tuple[str, ...]]:
        require_room_for_texts(sum(len(c.samples) for c in corpora), options.max_length, arrays=3)
        examples, report = encode_entity_clients(
            corpora,
            partition,
            encoding,
            annotated=_annotated(options, corpora[0].entity_types, partition),
            test_annotated=_test_annotated(options),
            left_out=options.unannotated != "no_entity",
        )
        return examples, report.notes()

    def label_counts(self, corpus: EntityCorpus, samples) -> dict[str, int]:
        counts = Counter(span.type for sample in samples for span in sample.spans)
        return {name: counts[name] for name in corpus.entity_types}

    def training_corpus(self, options: Options, data_paths: DataPaths) -> EntityCorpus:
        return _load(options, data_paths, options.dataset, options.split, options.path, options.entity_types)

    def held(
        self, options: Options, partitioner, seed: int, data_paths: DataPaths
    ) -> tuple[tuple[EntityCorpus, ...], Partition]:
        corpus, test = self.training_corpus(options, data_paths), None
        if options.test == "documents":
            corpus, test = set_documents_apart(corpus, options.test_share, seed=options.test_seed)
        elif options.test == "official":
            dataset = options.test_dataset or options.dataset
            test = _load(options, data_paths, dataset, options.test_split, options.test_path, corpus.entity_types)
        if options.subset is not None:
            corpus = subset(corpus, options.subset, seed=seed)
        if options.test_subset is not None:
            test = subset(test, options.test_subset, seed=options.test_seed)
        corpora = (corpus,) if test is None else (corpus, test)
        return corpora, partition_of(
            corpora,
            partitioner,
            seed,
            data_paths,
            server_share=options.server_share,
            test_share=options.test_share,
        )


TASK = EntityRecognition()


@dataclass(frozen=True)
class PreparedEntities(Prepared):
    """Texts with entities.

    Attributes:
      annotated: client -> the types that its training texts are annotated with; all for clients not named.
      test_annotated: whether its test texts are annotated with the same types; if not, with all.
    """

    annotated: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    test_annotated: bool = True

    def references(self) -> dict[str, dict[str, float]]:
        """The metrics of a dictionary of the training texts' entities, the longest match first.

        As of the model, predicted entities of types that a text is not annotated with do not count.
        """
        from tff_re.tasks.span_metrics import span_statistics

        types = self.measures.class_names
        annotated_here = [
            self.annotated.get(client, types) if self.test_annotated else types
            for client, held in self.partition.clients.items()
            for _ in held.test
        ]
        test = self.samples("test")
        if not test:
            return {}
        predicted = tag_with_dictionary([sample.text for sample in test], dictionary(self._trained_on()))
        gold, predicted = (
            [[span for span in spans if span.type in known] for spans, known in zip(every, annotated_here, strict=True)]
            for every in ([sample.spans for sample in test], predicted)
        )
        measured = self.measures.metrics(span_statistics(score_spans(gold, predicted, types)))
        del measured["loss"]
        return {
            "trivial: dictionary of the training entities": {
                f"test/{name}": measured[name] for name in sorted(measured)
            }
        }

    def _trained_on(self) -> list:
        """The training samples, with the entities that their client annotated."""
        sample_of = {sample.sample_id: sample for corpus in self.corpora for sample in corpus.samples}
        return [
            annotated_with(sample_of[sample_id], self.annotated.get(client), self.measures.class_names)
            for client, held in self.partition.clients.items()
            for sample_id in held.train
        ]


def _load(options: Options, data_paths: DataPaths, dataset: str, split: str, path: str | None, types) -> EntityCorpus:
    choices = {"nested": options.nested, "unit": options.unit}
    if dataset == neutral.NAME:
        choices["other_types"] = options.other_types
    if dataset != options.dataset:  # the test data set may lack what the training data set has
        choices = {key: value for key, value in choices.items() if key in find_data_set(dataset).options}
    return load_entities(dataset, data_paths.data, path=path, split=split, entity_types=types, **choices)


def _annotated(options: Options, types: tuple[str, ...], partition: Partition) -> dict[str, tuple[str, ...]]:
    """Client -> the types that it annotates, of clients that do not annotate all.

    Raises:
      UserError: `task.annotated` names a type that there is not.
    """
    if options.annotated_by == "turns":
        return {client: (types[index % len(types)],) for index, client in enumerate(partition.clients)}
    annotated = {client: tuple(of_client) for client, of_client in (options.annotated or {}).items()}
    for client, of_client in annotated.items():
        if unknown := [name for name in of_client if name not in types]:
            raise UserError(f"task.annotated.{client}: {unknown[0]!r} is not a type; {nearest(unknown[0], types)}")
    return {client: of_client for client, of_client in annotated.items() if client in partition.clients}


def _test_annotated(options: Options) -> bool:
    """Whether clients annotated their test texts, too, as they did those that they train on."""
    return options.test == "hold_out"


def _require_known_clients(options: Options, partition: Partition) -> None:
    """Raises UserError if `task.annotated` names a client that holds nothing.

    A site knows only its own clients.
    """
    for client in options.annotated or ():
        if client not in partition.clients:
            raise UserError(f"task.annotated names a client that has no examples; {nearest(client, partition.clients)}")


def _reading(options: Options, types: tuple[str, ...], texts_of: Callable[[], Any], seed: int, data_paths: DataPaths):
    """(encoding, the model's inputs, notes) of the texts that clients train on, which pieces do not need."""
    unannotated = "global_model" if options.unannotated == "global_model" else "left_out"
    if options.encoding == "pieces":
        tokenizer = load_tokenizer(options.tokenizer, others="'words' or 'characters'")
        encoding = TaggedPieceEncoding(tokenizer, types, options.scheme, options.max_length or None)
        inputs = TaggedPieceInput(
            len(tokenizer), options.max_length, types, options.scheme, options.tokenizer, unannotated=unannotated
        )
        return encoding, inputs, ()
    text_encoding = _text_encoding(options, texts_of(), data_paths)
    vectors, notes = None, ()
    if options.vectors_path is not None:
        if data_paths.vectors_width is not None:
            vectors = unread_vectors(text_encoding.vocabulary, data_paths)
        else:
            read = load_word_vectors(options.vectors_path, trust=data_paths.trust)
            vectors = read.matrix_for(text_encoding.vocabulary, seed=seed)
            notes = (read.describe(Path(options.vectors_path).name, text_encoding.vocabulary),)
    inputs = TaggedTokenInput(
        len(text_encoding.vocabulary), options.max_length, types, options.scheme, vectors, unannotated=unannotated
    )
    return TaggedTokenEncoding(text_encoding, types, options.scheme), inputs, notes


def _text_encoding(options: Options, texts, data_paths: DataPaths) -> CharacterEncoding | WordEncoding:
    if data_paths.words is not None:
        vocabulary = Vocabulary(data_paths.words)
        return (CharacterEncoding if options.encoding == "characters" else WordEncoding)(vocabulary, options.max_length)
    bounds = {"min_count": options.min_count, "min_clients": options.min_clients, "max_size": options.max_words}
    build = CharacterEncoding.build if options.encoding == "characters" else WordEncoding.build
    return build(texts, max_length=options.max_length, **bounds)
