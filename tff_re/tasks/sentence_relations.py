"""Relations between two marked mentions in a sentence (FedCMC, Section 3, and FedED, Section 3)."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs.validators import and_, ge, gt, lt, optional

from computations.ranges import BELOW_ONE, refuse_unread
from datasets.catalogue import find_data_set
from datasets.encoded_clients import encode_relations, training_texts
from datasets.federated import FederatedExamples
from datasets.partition import label_counts
from datasets.relations import neutral
from datasets.relations.loading import load_relations
from datasets.relations.records import RelationCorpus
from datasets.relations.selection import balanced_subset, set_documents_apart, subset
from tff_re.tasks.base import Prepared, partition_of
from tff_re.tasks.data_paths import DataPaths
from tff_re.tasks.relation_text import RelationTextOptions, relation_encoding, words_of_clients
from tff_re.tasks.sizes import require_room_for_texts
from tff_re.tasks.task import LabelledServerTask


@attrs.frozen(kw_only=True)
class Options(RelationTextOptions):
    """Attributes:
    dataset: a relation data set that `datasets` lists.
    label: one of the data set's label choices; its first one if not set.
    class_names: for relations, the classes; those of the training file if not set.
    negative_label: for relations, the class that means "no relation", which micro-F1 and macro-F1 leave out; not set:
      every class is a relation.
    path, test_path: files to read in place of the catalogue's; relative to the current folder.
    split: which of the data set's splits the clients hold.
    test: `hold_out`: each client keeps `test_share` of its samples; `documents`: `test_share` of the documents are set
      apart before there are clients; `official`: the split `test_split`. Clients get the latter two by the
      partitioner's rule; metrics are over all of them.
    test_split: the split for testing with test = `official`.
    server_share: share of the training samples that the server holds with their labels (FedED's D_v), drawn by the
      run's seed before there are clients.
    server_stratified: whether these have the classes in proportion.
    test_share: share of the samples or documents held out.
    test_seed: draws the documents set apart, so that runs of other seeds are tested on the same ones.
    subset: so many training samples, classes in proportion, drawn by the run's seed; all if not set.
    balanced_subset: so many training samples of each class at most.
    test_subset: so many test samples, classes in proportion, drawn by `test_seed`; all if not set.
    """

    dataset: str = "chemprot"
    label: str | None = None
    class_names: tuple[str, ...] | None = None
    negative_label: str | None = None
    path: str | None = None
    test_path: str | None = None
    split: str = "train"
    test: Literal["hold_out", "documents", "official"] = "hold_out"
    test_split: str = "dev"
    test_share: float = attrs.field(default=0.1, validator=and_(gt(0), lt(1)))
    server_share: float = attrs.field(default=0.0, validator=BELOW_ONE)
    server_stratified: bool = False
    test_seed: int = attrs.field(default=0, validator=ge(0))
    subset: int | None = attrs.field(default=None, validator=optional(ge(1)))
    balanced_subset: int | None = attrs.field(default=None, validator=optional(ge(1)))
    test_subset: int | None = attrs.field(default=None, validator=optional(ge(1)))

    def __attrs_post_init__(self):
        super().__attrs_post_init__()
        refuse_unread(self, {"test_path": ("test", ("official",)), "test_subset": ("test", ("documents", "official"))})
        if not find_data_set(self.dataset).relations:
            raise ValueError(f"dataset '{self.dataset}' has no pairs of mentions; use its own task")
        refuse_unread(self, dict.fromkeys(("class_names", "negative_label"), ("dataset", (neutral.NAME,))))
        self._check_classes()
        if self.subset is not None and self.balanced_subset is not None:
            raise ValueError("subset and balanced_subset cannot be set together; set one of them")

    def _check_classes(self):
        if self.class_names is None:
            return
        if not self.class_names or len(set(self.class_names)) != len(self.class_names):
            raise ValueError("class_names is empty or names a class twice; name every class once")
        if self.negative_label not in (None, *self.class_names):
            raise ValueError("negative_label is not one of class_names; add it to them")


class SentenceRelations(LabelledServerTask):
    Options = Options
    across_sites = True
    label_keys = ("class_names", "negative_label")

    def prepare(self, options: Options, partitioner, seed: int, data_paths: DataPaths) -> Prepared:
        corpora, partition = self.held(options, partitioner, seed, data_paths)
        encoding, inputs, notes = relation_encoding(
            options, lambda text_of: training_texts(partition, *corpora, text_of=text_of), seed, data_paths
        )
        examples, of_texts = self.encoded(options, corpora, partition, encoding)
        return Prepared(
            examples=examples,
            inputs=inputs,
            measures=self.measures(corpora[0].positive_labels),
            counts=label_counts(partition, *corpora),
            partition=partition,
            notes=tuple(
                dict.fromkeys(
                    (
                        *(note for c in corpora for note in c.notes),
                        *partition.notes,
                        *notes,
                        *of_texts,
                    )
                )
            ),
            encoding=encoding,
            corpora=corpora,
        )

    def held(self, options: Options, partitioner, seed: int, data_paths: DataPaths):
        corpus, test = self._corpora(options, seed, data_paths)
        corpora = (corpus,) if test is None else (corpus, test)
        return corpora, partition_of(
            corpora,
            partitioner,
            seed,
            data_paths,
            server_share=options.server_share,
            server_stratified=options.server_stratified,
            test_share=options.test_share,
        )

    def words(self, options: Options, corpora, partition, data_paths: DataPaths) -> dict[str, list[list[str]]]:
        return words_of_clients(options, lambda text_of: training_texts(partition, *corpora, text_of=text_of))

    def agreed(self, options: Options, seed: int, data_paths: DataPaths):
        return relation_encoding(options, lambda text_of: {}, seed, data_paths)

    def encoded(self, options: Options, corpora, partition, encoding) -> tuple[FederatedExamples, tuple[str, ...]]:
        require_room_for_texts(sum(len(c.samples) for c in corpora), options.max_length, arrays=4)
        examples, report = encode_relations(corpora, partition, encoding)
        return examples, report.notes()

    def training_corpus(self, options: Options, data_paths: DataPaths) -> RelationCorpus:
        return _load(options, data_paths, options.split, options.path, options.class_names)

    def _corpora(
        self, options: Options, seed: int, data_paths: DataPaths
    ) -> tuple[RelationCorpus, RelationCorpus | None]:
        """The training samples, and the test samples unless clients hold out their own."""
        corpus, test = self.training_corpus(options, data_paths), None
        if options.test == "documents":
            corpus, test = set_documents_apart(corpus, options.test_share, seed=options.test_seed)
        elif options.test == "official":
            test = _load(options, data_paths, options.test_split, options.test_path, corpus.relation_names)
        if options.subset is not None:
            corpus = subset(corpus, options.subset, seed=seed)
        if options.balanced_subset is not None:
            corpus = balanced_subset(corpus, options.balanced_subset, seed=seed)
        if options.test_subset is not None:
            test = subset(test, options.test_subset, seed=options.test_seed)
        return corpus, test


TASK = SentenceRelations()


def _load(options: Options, data_paths: DataPaths, split: str, path: str | None, class_names=None) -> RelationCorpus:
    """The samples of a file.

    `class_names` and `negative_label` are read for the data set `relations` only.
    """
    extra = {} if options.dataset != neutral.NAME else {"negative_label": options.negative_label}
    if extra:
        extra["class_names"] = class_names
    return load_relations(options.dataset, data_paths.data, path=path, label=options.label, split=split, **extra)
