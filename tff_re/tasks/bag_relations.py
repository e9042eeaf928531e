"""Relations of pairs of entities from bags of sentences, labelled by a knowledge base (FedDS, Section 3)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import attrs
import numpy as np
from attrs.validators import ge, optional

from computations.ranges import BELOW_ONE, NOT_NEGATIVE, SHARE, refuse_unread
from datasets.bags.encoding import SIDE_ARRAYS, encode_bag_clients, encode_bags
from datasets.bags.loading import load_bags
from datasets.bags.planted import PlantedCorpus, planted
from datasets.bags.records import BagCorpus
from datasets.bags.selection import set_bags_apart, without_pairs
from datasets.catalogue import find_data_set
from datasets.encoded_clients import training_texts
from datasets.federated import Examples, FederatedExamples
from datasets.partition import Partition, label_counts
from tff_re.errors import UserError
from tff_re.tasks.base import Prepared, partition_of
from tff_re.tasks.data_paths import DataPaths
from tff_re.tasks.held_out import DEV, TEST
from tff_re.tasks.relation_text import RelationTextOptions, relation_encoding, words_of_clients
from tff_re.tasks.sizes import require_room_for_texts
from tff_re.tasks.task import AtServer, Task

if TYPE_CHECKING:
    from tff_re.tasks.held_out_bags import BagsAtServer

PLANTED = "planted"
PLANTED_TEST_SHARE = 0.25


_OF_PLANTED = (
    "planted_bags",
    "planted_sentences",
    "planted_zipf",
    "planted_single_share",
    "planted_at_least_one",
    "planted_relations",
    "planted_cues",
    "planted_cues_of_word",
    "noise_rate",
    "other_share",
    "clean_test",
    "train_on",
    "planted_seed",
    "planted_anew",
)
_OF_FILES = ("path", "test_path", "dev_split")
_OF_LINES = ("rel2id", "misplaced")
_OF_ALIGNMENT = ("knowledge_base", "test_knowledge_base", "head_kind", "tail_kind", "na_rate")
_NEEDS = {
    **dict.fromkeys(_OF_PLANTED, ("dataset", (PLANTED,))),
    **dict.fromkeys(_OF_FILES, ("dataset", ("nyt10", "mirgene", "cdr_aligned"))),
    **dict.fromkeys(_OF_LINES, ("dataset", ("nyt10", "mirgene"))),
    **dict.fromkeys(_OF_ALIGNMENT, ("dataset", ("cdr_aligned",))),
}
"""Keys that not all data sets read; see `refuse_unread`."""


@attrs.frozen(kw_only=True)
class Options(RelationTextOptions):
    """Attributes:
    dataset: a data set of bags that `datasets` lists, or `planted`, made-up sentences of which it is known whether they
      state a relation of their pair.
    path, test_path: files to read in place of the catalogue's; relative to the current folder.
    split: which of the data set's splits the platforms hold.
    test_split: the split that the server holds for testing.
    dev_split: a split that chooses the round; if not set, `dev_share` of the bags of `test_split` do, which are then
      not tested on.
    dev_share: see dev_split; 0 for no choice: the last round's model is tested.
    dev_seed: draws these bags, so that runs of other seeds are tested on the same ones.
    new_pairs: whether bags of dev and test are left out whose pair of entities has a bag in training.
    rel2id: for nyt10 and mirgene, the file of relations; by default beside the data.
    misplaced: for nyt10 and mirgene, what to do with an entity that is not where the file says: `refuse`, or
      `leave_out` the sentence.
    knowledge_base: for cdr_aligned, a table of facts (head, relation, tail); by default what the documents state.
    test_knowledge_base: the same for the test documents.
    head_kind, tail_kind: for cdr_aligned, the kinds of the entities.
    na_rate: for cdr_aligned, the share of the training pairs without a fact that is kept.
    planted_bags: for planted, how many bags there are; a quarter is for testing, and of it `dev_share` for choosing.
    planted_sentences: for planted, how many sentences they have together; three a bag if not set.
    planted_zipf: for planted, how unequal the bags are in size: the exponent of Zipf's law.
    planted_single_share: for planted, the share of the bags that have one sentence and no more; the others have two at
      least, and Zipf's law is of what is above these. Not set: of what all bags have above one. For bags like NYT10's:
      0.8 (Li et al., AAAI 2020), with planted_sentences 1.853 times planted_bags (FedDS, Section 4.1).
    planted_at_least_one: for planted, whether each relation of a pair has a true sentence, as far as the bag has
      sentences enough; false: a bag may have noise alone, in dev and test, too.
    planted_relations: for planted, how many relations there are.
    planted_cues: for planted, how many cues a relation has; a cue is two words, and the more there are, the fewer
      sentences show each.
    planted_cues_of_word: for planted, how many cues a word of theirs is part of; from 2 on no word tells a relation
      without its neighbour.
    noise_rate: for planted, the share of the sentences of related pairs that state none of their relations.
    other_share: for planted, the share of that noise which states another relation; the rest states none.
    clean_test: for planted, whether the noise of dev and test states no relation at all; false: `other_share` of it
      states another one, so that a perfect classifier of sentences finds false facts there.
    train_on: for planted, `all` rows at the platforms, or the `stated` ones alone, those that state their relation and
      those of unrelated pairs: what a perfect selection would leave.
    planted_seed: for planted, draws the sentences, so that runs of other seeds have the same ones.
    planted_anew: for planted, whether each seed of a run draws sentences of its own, beside `planted_seed`.
    """

    dataset: str = "cdr_aligned"
    path: str | None = None
    test_path: str | None = None
    split: str = "train"
    test_split: str = "dev"
    dev_split: str | None = None
    dev_share: float = attrs.field(default=0.5, validator=BELOW_ONE)
    dev_seed: int = attrs.field(default=0, validator=ge(0))
    new_pairs: bool = True
    rel2id: str | None = None
    misplaced: Literal["refuse", "leave_out"] | None = None
    knowledge_base: str | None = None
    test_knowledge_base: str | None = None
    head_kind: str | None = None
    tail_kind: str | None = None
    na_rate: float | None = None
    planted_bags: int = attrs.field(default=2000, validator=ge(2))
    planted_sentences: int | None = None
    planted_zipf: float = attrs.field(default=0.5, validator=NOT_NEGATIVE)
    planted_single_share: float | None = attrs.field(default=None, validator=optional(BELOW_ONE))
    planted_at_least_one: bool = True
    planted_relations: int = attrs.field(default=5, validator=ge(1))
    planted_cues: int = attrs.field(default=4, validator=ge(1))
    planted_cues_of_word: int = attrs.field(default=1, validator=ge(1))
    noise_rate: float = attrs.field(default=0.4, validator=SHARE)
    other_share: float = attrs.field(default=0.5, validator=SHARE)
    clean_test: bool = True
    train_on: Literal["all", "stated"] = "all"
    planted_seed: int = attrs.field(default=0, validator=ge(0))
    planted_anew: bool = False

    def __attrs_post_init__(self):
        super().__attrs_post_init__()
        if self.dataset != PLANTED and find_data_set(self.dataset).kind != "bags":
            raise ValueError(f"dataset '{self.dataset}' has no bags of sentences; use its own task")
        if self.dev_split is not None and self.dev_split == self.test_split:
            raise ValueError(f"dev_split and test_split are both '{self.test_split}'; choose a different dev_split")
        if self.planted_sentences is not None and self.planted_sentences < self.planted_bags:
            raise ValueError(
                f"planted_sentences must be at least planted_bags, {self.planted_bags}, got {self.planted_sentences}"
            )
        if self.train_on == "stated" and self.dataset != PLANTED:
            raise ValueError(
                f"train_on = 'stated' needs to know what each sentence states, which '{self.dataset}' does not "
                f"record; use 'all', or dataset = '{PLANTED}'"
            )
        refuse_unread(self, _NEEDS)


class BagRelations(Task):
    Options = Options
    side_arrays = SIDE_ARRAYS
    across_sites = True
    server_tests = True
    numbers_facts = True
    many_labels = True

    def prepare(self, options: Options, partitioner, seed: int, data_paths: DataPaths) -> Prepared:
        """Reads the corpora, shuffles the sentences of the training bags over platforms and encodes all."""
        corpus, held_out, made = _corpora(options, seed, data_paths)
        partition = partition_of((corpus,), partitioner, seed, data_paths, test_share=0.0)
        encoding, inputs, notes = relation_encoding(
            options, lambda text_of: training_texts(partition, corpus, text_of=text_of), seed, data_paths
        )
        texts = sum(len(c.samples) for c in (corpus, *held_out.values()))
        require_room_for_texts(texts, options.max_length, arrays=4)
        examples, report = encode_bag_clients(corpus, partition, encoding)
        of_server, named, of_texts = _held_out(
            held_out, encoding, corpus.label_names, None if made is None else made.held_out
        )
        truth = None if made is None else _truth(corpus, partition, made.training)
        if options.train_on == "stated":
            examples, truth, note = _stated_alone(examples, truth)
            notes = (*notes, note)
        return PreparedBags(
            examples=examples,
            inputs=inputs,
            measures=self.measures(corpus.positive_labels),
            counts=label_counts(partition, corpus),
            partition=partition,
            notes=tuple(
                dict.fromkeys(
                    (
                        f"training: {corpus.describe()}",
                        *corpus.notes,
                        *named,
                        *partition.notes,
                        *notes,
                        *(f"training: {note}" for note in report.notes()),
                        *of_texts,
                    )
                )
            ),
            encoding=encoding,
            held_out=of_server,
            side_arrays=self.side_arrays,
            corpora=(corpus,),
            truth=truth,
        )

    def held(self, options: Options, partitioner, seed: int, data_paths: DataPaths):
        corpus = _load(options, data_paths, options.split, options.path, options.knowledge_base, seed=seed)
        return (corpus,), partition_of((corpus,), partitioner, seed, data_paths, test_share=0.0)

    def words(
        self, options: Options, corpora, partition: Partition, data_paths: DataPaths
    ) -> dict[str, list[list[str]]]:
        return words_of_clients(options, lambda text_of: training_texts(partition, *corpora, text_of=text_of))

    def agreed(self, options: Options, seed: int, data_paths: DataPaths):
        return relation_encoding(options, lambda text_of: {}, seed, data_paths)

    def encoded(
        self, options: Options, corpora, partition: Partition, encoding
    ) -> tuple[FederatedExamples, tuple[str, ...]]:
        require_room_for_texts(sum(len(c.samples) for c in corpora), options.max_length, arrays=4)
        examples, report = encode_bag_clients(corpora[0], partition, encoding)
        return examples, report.notes()

    def at_server(self, options: Options, names, encoding, inputs, data_paths: DataPaths) -> AtServer:
        """The bags of dev and test.

        Raises:
          UserError: bags whose pair is trained on were to be left out, and only the sites know these.
        """
        if options.new_pairs:
            raise UserError(
                "task.new_pairs: only the sites know which pairs of entities are trained on; set it to false, and "
                "choose test bags with other pairs yourself"
            )
        test = _load(options, data_paths, options.test_split, options.test_path, options.test_knowledge_base)
        if options.dev_split is None:
            bags = _with_dev(options, test)
        else:
            bags = {DEV: _load(options, data_paths, options.dev_split, None, options.test_knowledge_base), TEST: test}
        held_out, named, of_texts = _held_out(bags, encoding, names)
        return AtServer(held_out=held_out, notes=tuple(dict.fromkeys((*named, *of_texts))))

    def at_site(self, options: Options) -> Options:
        if options.dataset == PLANTED:
            raise UserError(
                "task.dataset = 'planted' generates its sentences, so sites cannot have them; choose a "
                "data set that is read from files"
            )
        return options

    def rows(self, samples) -> int:
        return sum(len(sentence.relations) for sentence in samples)  # a row for each relation of its pair

    def label_counts(self, corpus: BagCorpus, samples) -> dict[str, int]:
        counts = Counter(relation for sentence in samples for relation in sentence.relations)
        return {name: counts[name] for name in corpus.relation_names}

    def facts(self, corpus: BagCorpus, samples) -> list[tuple[int, tuple[str, ...]]]:
        held = {sentence.pair for sentence in samples}
        stated = ((*corpus.pairs[pair], corpus.relation_names[label]) for pair, label in corpus.triples)
        return [(n, fact) for n, fact in enumerate(stated) if fact[:2] in held]

    def arranged(self, examples: Examples, encoding, inputs, *, client: int, numbers: np.ndarray | None) -> Examples:
        triple, platform = SIDE_ARRAYS
        platforms = np.full(len(examples["y"]), client, np.int32)
        return {**examples, triple: numbers[examples[triple]], platform: platforms}


TASK = BagRelations()


@dataclass(frozen=True)
class PreparedBags(Prepared):
    """Bags of sentences.

    `corpora` has only the training bags.

    Attributes:
      truth: for each client int8 [n], whether its rows state their relation (1), or not (0), or have none (-1); None
        where that is not known: it is known of planted bags alone.
    """

    truth: tuple[np.ndarray, ...] | None = None

    @property
    def num_triples(self) -> int:
        return len(self.corpora[0].triples)

    def groups(self) -> list[np.ndarray]:
        """The sentences of one bag are a group."""
        return [client.train[SIDE_ARRAYS[0]] for client in self.examples.clients]


def _held_out(
    corpora: Mapping[str, BagCorpus], encoding, label_names: tuple[str, ...], stated: Mapping[str, str] | None = None
) -> tuple[BagsAtServer, list[str], list[str]]:
    """(the bags at the server, notes on the corpora, notes on their texts)."""
    from tff_re.tasks.held_out_bags import BagsAtServer

    encoded = {split: encode_bags(bags, encoding, label_names=label_names) for split, bags in corpora.items()}
    named = [f"{split}: {note}" for split, bags in corpora.items() for note in (bags.describe(), *bags.notes)]
    of_texts = [f"{split}: {note}" for split, (_, report) in encoded.items() for note in report.notes()]
    return BagsAtServer({s: bags for s, (bags, _) in encoded.items()}, corpora, stated), named, of_texts


@dataclass(frozen=True)
class _Stated:
    """Sentence id -> the relation that its words state, at the platforms and at the server."""

    training: Mapping[str, str]
    held_out: Mapping[str, str]


def _corpora(
    options: Options, seed: int, data_paths: DataPaths
) -> tuple[BagCorpus, dict[str, BagCorpus], _Stated | None]:
    """The training corpus, split -> corpus at the server, and where they were planted what their sentences state."""
    if options.dataset == PLANTED:
        return _planted(options, seed)

    corpus = _load(options, data_paths, options.split, options.path, options.knowledge_base, seed=seed)
    test = _load(options, data_paths, options.test_split, options.test_path, options.test_knowledge_base)
    if options.new_pairs:
        test = without_pairs(test, corpus)
    if options.dev_split is None:
        return corpus, _with_dev(options, test), None
    dev = _load(options, data_paths, options.dev_split, None, options.test_knowledge_base)
    return corpus, {DEV: without_pairs(dev, corpus) if options.new_pairs else dev, TEST: test}, None


def _load(options: Options, data_paths: DataPaths, split, path, knowledge_base, *, seed: int | None = None):
    """The bags of a split.

    With `seed` these are training bags, of whose unrelated pairs the share `na_rate` is kept.
    """
    return load_bags(
        options.dataset,
        data_paths.data,
        path=path,
        split=split,
        rel2id=options.rel2id,
        misplaced=options.misplaced,
        knowledge_base=knowledge_base,
        head_kind=options.head_kind,
        tail_kind=options.tail_kind,
        **({} if seed is None else {"na_rate": options.na_rate, "seed": seed}),
    )


def _planted(options: Options, seed: int) -> tuple[BagCorpus, dict[str, BagCorpus], _Stated]:
    draw = options.planted_seed
    if options.planted_anew:
        draw = int(np.random.SeedSequence([options.planted_seed, seed]).generate_state(1)[0])

    def made(other_share: float) -> PlantedCorpus:
        return planted(
            options.planted_bags,
            options.noise_rate,
            num_sentences=options.planted_sentences,
            num_relations=options.planted_relations,
            other_share=other_share,
            cues=options.planted_cues,
            cues_of_word=options.planted_cues_of_word,
            zipf=options.planted_zipf,
            single_share=options.planted_single_share,
            at_least_one=options.planted_at_least_one,
            seed=draw,
        )

    noisy = made(options.other_share)
    # The same bags and sentences but for what the noise states.
    clean = made(0.0) if options.clean_test else noisy
    corpus, _ = set_bags_apart(noisy.corpus, PLANTED_TEST_SHARE, seed=draw)
    _, test = set_bags_apart(clean.corpus, PLANTED_TEST_SHARE, seed=draw)
    return corpus, _with_dev(options, test), _Stated(noisy.expressed, clean.expressed)


def _with_dev(options: Options, test: BagCorpus) -> dict[str, BagCorpus]:
    if not options.dev_share:
        return {TEST: test}
    test, dev = set_bags_apart(test, options.dev_share, seed=options.dev_seed)
    return {DEV: dev, TEST: test}


def _stated_alone(
    examples: FederatedExamples, truth: tuple[np.ndarray, ...]
) -> tuple[FederatedExamples, tuple[np.ndarray, ...], str]:
    """The clients' rows without those that do not state their relation, what is known of the rest, and a note."""
    masks = [known != 0 for known in truth]
    clients = tuple(
        dataclasses.replace(client, train={name: array[rows] for name, array in client.train.items()})
        for client, rows in zip(examples.clients, masks, strict=True)
    )
    left = sum(int(rows.sum()) for rows in masks)
    note = f"train_on: the {left} of {sum(map(len, masks))} rows that state their relation or whose pair is unrelated"
    known = tuple(of_client[rows] for of_client, rows in zip(truth, masks, strict=True))
    return dataclasses.replace(examples, clients=clients), known, note


def _truth(corpus: BagCorpus, partition: Partition, stated: Mapping[str, str]) -> tuple[np.ndarray, ...]:
    """For each client int8 [n], in the order of its rows: 1 where the sentence states the row's relation, 0 where it
    does not, -1 where the row's pair is unrelated."""
    sentence_of = {sentence.sentence_id: sentence for sentence in corpus.sentences}
    return tuple(
        np.array(
            [
                -1 if relation == corpus.negative else stated[sentence_id] == relation
                for sentence_id in client.train
                for relation in sentence_of[sentence_id].relations
            ],
            np.int8,
        )
        for client in partition.clients.values()
    )
