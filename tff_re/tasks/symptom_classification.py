"""Classification of Chinese medical text by words, characters (FLCMC, Sections 3.4.3 and 5.2) or word pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import attrs
from attrs.validators import and_, ge, gt, lt

from computations.ranges import BELOW_ONE, refuse_unread
from datasets.catalogue import find_data_set
from datasets.dialogues.loading import load_corpus, symptom_vocabulary
from datasets.dialogues.records import TextCorpus
from datasets.encoded_clients import encode_partition, encode_pieces, training_texts
from datasets.errors import DataError
from datasets.federated import FederatedExamples
from datasets.partition import Partition, label_counts
from datasets.text import load_word_vectors, train_word_vectors
from datasets.text.encoding import CharacterEncoding, WordEncoding
from datasets.text.piece_encoding import PieceEncoding
from datasets.text.segmentation import Segmenter
from datasets.text.vocabulary import Vocabulary
from tff_re.errors import UserError
from tff_re.models.inputs import PieceInput, TokenInput
from tff_re.tasks.base import Prepared, partition_of
from tff_re.tasks.data_paths import DataPaths
from tff_re.tasks.relation_text import load_tokenizer, require_known_pieces, unread_vectors
from tff_re.tasks.sizes import require_room_for_texts
from tff_re.tasks.task import LabelledServerTask

_OWN_VOCABULARY = ("encoding", ("words", "characters"))

_NEEDS = {
    "dev_path": ("test", ("official",)),
    "tokenizer": ("encoding", ("pieces",)),
    "symptoms": ("encoding", ("words",)),
    **dict.fromkeys(("min_count", "min_clients", "max_words", "vectors"), _OWN_VOCABULARY),
    "vectors_path": ("vectors", ("file",)),
    "vectors_corpus": ("vectors", ("trained",)),
    "vectors_epochs": ("vectors", ("trained",)),
    "vectors_width": ("vectors", ("file", "trained")),
}
"""What the keys need that a choice may leave unread; see `refuse_unread`."""


@attrs.frozen(kw_only=True)
class Options:
    """Attributes:
    dataset: a text data set that `datasets` lists.
    label: one of the data set's label choices; its first one if not set.
    path, dev_path: files to read in place of the catalogue's; relative to the current folder.
    split: which of the data set's splits the clients hold.
    test: `hold_out`: each client keeps `test_share` of its samples; `official`: the split `test_split` is the test set.
    test_split: the split for testing with test = `official`.
    server_share: share of the training samples that the server holds with their labels (FedED's D_v), drawn by the
      run's seed before there are clients.
    server_stratified: whether these have the classes in proportion.
    test_share: share of a client's samples held out.
    test_unit: hold out single samples or whole documents (dialogues).
    encoding: `words` by jieba with the symptom vocabulary, `characters`, or `pieces` of a pretrained encoder's
      tokenizer.
    tokenizer: with `pieces`, the folder or hub id of the encoder.
    symptoms: a symptom vocabulary in place of the data set's.
    max_length: words, characters or pieces of a text that are kept, of pieces [CLS] and [SEP] included; longer texts
      are cut at their end.
    min_count, max_words: bounds of the vocabulary.
    min_clients: a word enters the vocabulary only if so many clients hold it: the vocabulary leaves the clients.
    vectors: `learned` with the model; `file`: read from `vectors_path`; `trained`: by gensim on `vectors_corpus`.
    vectors_path: word2vec text or binary file; gensim's own format with --trust.
    vectors_corpus: a data set of the catalogue or a text file with a sentence a line, that may be read centrally.
    vectors_width: width of trained vectors; of a file's, checked where set.
    vectors_epochs: passes of gensim over the corpus.
    """

    dataset: str = "shipped"
    label: str | None = None
    path: str | None = None
    dev_path: str | None = None
    split: str = "train"
    test: Literal["hold_out", "official"] = "hold_out"
    test_split: str = "dev"
    test_share: float = attrs.field(default=0.1, validator=and_(gt(0), lt(1)))
    server_share: float = attrs.field(default=0.0, validator=BELOW_ONE)
    server_stratified: bool = False
    test_unit: Literal["sample", "document"] = "sample"
    encoding: Literal["words", "characters", "pieces"] = "words"
    tokenizer: str | None = None
    symptoms: str | None = None
    max_length: int = attrs.field(default=40, validator=ge(1))
    min_count: int = attrs.field(default=1, validator=ge(1))
    min_clients: int = attrs.field(default=2, validator=ge(1))
    max_words: int | None = None
    vectors: Literal["learned", "file", "trained"] = "learned"
    vectors_path: str | None = None
    vectors_corpus: str | None = None
    vectors_width: int | None = None
    vectors_epochs: int = attrs.field(default=10, validator=ge(1))

    def __attrs_post_init__(self):
        find_data_set(self.dataset)
        refuse_unread(self, _NEEDS)
        if self.vectors == "file" and not self.vectors_path:
            raise ValueError("vectors = 'file' needs vectors_path")
        if self.vectors == "trained" and not self.vectors_corpus:
            raise ValueError("vectors = 'trained' needs vectors_corpus")
        if self.vectors == "trained" and self.encoding == "characters":
            raise ValueError("vectors = 'trained' needs encoding = 'words'")


class SymptomClassification(LabelledServerTask):
    Options = Options
    across_sites = True
    test_file = "dev_path"

    def prepare(self, options: Options, partitioner, seed: int, data_paths: DataPaths) -> Prepared:
        corpora, partition = self.held(options, partitioner, seed, data_paths)
        encoding, inputs, notes = _reading(options, lambda: training_texts(partition, *corpora), seed, data_paths)
        examples, of_texts = self.encoded(options, corpora, partition, encoding)
        return Prepared(
            examples=examples,
            inputs=inputs,
            measures=self.measures(),
            counts=label_counts(partition, *corpora),
            partition=partition,
            encoding=encoding,
            corpora=corpora,
            notes=(
                *(note for c in corpora for note in c.notes),
                *partition.notes,
                encoding.describe(),
                *notes,
                *of_texts,
            ),
        )

    def held(
        self, options: Options, partitioner, seed: int, data_paths: DataPaths
    ) -> tuple[tuple[TextCorpus, ...], Partition]:
        corpus, dev = self.training_corpus(options, data_paths), None
        if options.test == "official":
            dev = load_corpus(
                options.dataset, data_paths.data, path=options.dev_path, label=options.label, split=options.test_split
            )
        corpora = (corpus,) if dev is None else (corpus, dev)
        return corpora, partition_of(
            corpora,
            partitioner,
            seed,
            data_paths,
            server_share=options.server_share,
            server_stratified=options.server_stratified,
            test_share=options.test_share,
            test_unit=options.test_unit,
        )

    def words(
        self, options: Options, corpora, partition: Partition, data_paths: DataPaths
    ) -> dict[str, Iterable[Sequence[str]]]:
        texts = {} if options.encoding == "pieces" else training_texts(partition, *corpora)
        if options.encoding == "characters":
            return texts
        segmenter = _segmenter(options, data_paths)
        return {client: segmenter.segment(client_texts) for client, client_texts in texts.items()}

    def agreed(self, options: Options, seed: int, data_paths: DataPaths):
        return _reading(options, dict, seed, data_paths)

    def encoded(
        self, options: Options, corpora, partition: Partition, encoding
    ) -> tuple[FederatedExamples, tuple[str, ...]]:
        texts = sum(len(c.samples) for c in corpora)
        if options.encoding != "pieces":
            require_room_for_texts(texts, options.max_length, arrays=1)
            return encode_partition(corpora, partition, encoding), ()
        require_room_for_texts(texts, options.max_length, arrays=2)
        examples, report = encode_pieces(corpora, partition, encoding)
        require_known_pieces(examples, encoding.tokenizer.unk_token_id, options.tokenizer)
        return examples, report.notes()

    def training_corpus(self, options: Options, data_paths: DataPaths) -> TextCorpus:
        return load_corpus(
            options.dataset, data_paths.data, path=options.path, label=options.label, split=options.split
        )


TASK = SymptomClassification()


def _reading(options: Options, texts_of: Callable[[], Mapping], seed: int, data_paths: DataPaths):
    """(encoding, the model's inputs, notes) of the texts that clients train on, which pieces do not need."""
    if options.encoding == "pieces":
        tokenizer = load_tokenizer(options.tokenizer, others="'words' or 'characters'")
        inputs = PieceInput(len(tokenizer), options.max_length, options.tokenizer)
        return PieceEncoding(tokenizer, options.max_length), inputs, ()
    encoding = _encoding(options, texts_of(), data_paths)
    vectors, notes = _vectors(options, encoding, data_paths, seed)
    return encoding, TokenInput(len(encoding.vocabulary), options.max_length, vectors), notes


def _encoding(options: Options, texts, data_paths: DataPaths):
    if data_paths.words is not None:
        vocabulary = Vocabulary(data_paths.words)
        if options.encoding == "characters":
            return CharacterEncoding(vocabulary, options.max_length)
        return WordEncoding(vocabulary, options.max_length, _segmenter(options, data_paths))
    bounds = {"min_count": options.min_count, "min_clients": options.min_clients, "max_size": options.max_words}
    if options.encoding == "characters":
        return CharacterEncoding.build(texts, max_length=options.max_length, **bounds)
    return WordEncoding.build(texts, max_length=options.max_length, segmenter=_segmenter(options, data_paths), **bounds)


def _segmenter(options: Options, data_paths: DataPaths) -> Segmenter:
    if options.symptoms is None and options.path is not None and not _has_vocabulary(options, data_paths):
        return Segmenter()
    return Segmenter(symptom_vocabulary(options.dataset, data_paths.data, options.symptoms))


def _has_vocabulary(options: Options, data_paths: DataPaths) -> bool:
    """Whether the data set's vocabulary is there.

    With a file in `path` the vocabulary is used if it is there, but not required.
    """
    try:
        symptom_vocabulary(options.dataset, data_paths.data)
    except DataError:
        return False
    return True


def _vectors(options: Options, encoding, data_paths: DataPaths, seed: int):
    if options.vectors == "learned":
        return None, ()
    if data_paths.vectors_width is not None:
        return unread_vectors(encoding.vocabulary, data_paths), ()
    if options.vectors == "file":
        vectors = load_word_vectors(options.vectors_path, trust=data_paths.trust)
        source = Path(options.vectors_path).name
    else:
        sentences = _segmenter(options, data_paths).segment(_central_texts(options.vectors_corpus, data_paths))
        vectors = train_word_vectors(
            sentences, width=options.vectors_width or 100, epochs=options.vectors_epochs, seed=seed
        )
        source = f"gensim on {options.vectors_corpus}"
    matrix = vectors.matrix_for(encoding.vocabulary, options.vectors_width, seed=seed)
    return matrix, (vectors.describe(source, encoding.vocabulary),)


def _central_texts(name: str, data_paths: DataPaths) -> list[str]:
    """Texts that may be read in one place: a data set of the catalogue, or a file with a sentence a line."""
    path = Path(name)
    if path.is_file():
        try:
            return [line for line in path.read_text("utf-8").splitlines() if line.strip()]
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: is not UTF-8 at byte {error.start}; save it as UTF-8") from None
    return [sample.text for sample in load_corpus(name, data_paths.data).samples]
