"""From texts with two marked mentions to a model's inputs, for the tasks on relations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import attrs
import numpy as np
from attrs.validators import ge

from computations.ranges import refuse_unread
from datasets.federated import FederatedExamples
from datasets.text import load_word_vectors
from datasets.text.relation_encoding import RelationEncoding, with_markers
from datasets.text.relation_layout import MARKERS, as_text, blinded, marked
from datasets.text.word_tokenizer import of_words, split_words, word_tokenizer, word_vocabulary
from tff_re.errors import UserError
from tff_re.models.hub import how_to_read
from tff_re.models.inputs import RelationInput
from tff_re.tasks.data_paths import DataPaths

MOST_UNKNOWN = 0.5
"""The largest share of the training texts' pieces that an encoder may not know."""


@attrs.frozen(kw_only=True)
class RelationTextOptions:
    """Attributes:
    encoding: `pieces` of a pretrained encoder's tokenizer, or `words` of the clients' training texts.
    tokenizer: with `pieces`, the folder or hub id of the encoder.
    max_length: pieces or words of a text that are kept, [CLS], [SEP] and markers included; texts are cut around their
      mentions.
    blind: whether a mention is replaced by its type (FedED).
    min_count, max_words: bounds of the vocabulary of words.
    min_clients: a word enters the vocabulary only if so many clients hold it: the vocabulary leaves the clients.
    vectors_path: with `words`, initial word vectors (word2vec text or binary; gensim's own format with --trust);
      learned with the model if not set.
    """

    encoding: Literal["pieces", "words"] = "pieces"
    tokenizer: str | None = None
    max_length: int = attrs.field(default=128, validator=ge(1))
    blind: bool = False
    min_count: int = attrs.field(default=1, validator=ge(1))
    min_clients: int = attrs.field(default=2, validator=ge(1))
    max_words: int | None = None
    vectors_path: str | None = None

    def __attrs_post_init__(self):
        refuse_unread(self, {"tokenizer": ("encoding", ("pieces",)), "vectors_path": ("encoding", ("words",))})


TextsOf = Callable[[Callable], dict[str, Sequence[str]]]
"""From a function that gives a sample's text to client id -> the texts that it trains on."""


def relation_encoding(
    options: RelationTextOptions, texts_of: TextsOf, seed: int, data_paths: DataPaths
) -> tuple[RelationEncoding, RelationInput, tuple[str, ...]]:
    """(encoding, the model's inputs, notes for readers of the results).

    Args:
      options: a task's.
      texts_of: see `TextsOf`; called for words alone.
      seed: draws the vectors of words that are not in `vectors_path`.
      data_paths: says whether files that can run code may be read.

    Raises:
      UserError: there is no tokenizer, or it cannot be read.
      DataError: no word is left for the vocabulary, or the word vectors cannot be read.
    """
    if options.encoding == "words":
        texts = {} if data_paths.words is not None else texts_of(_reading(options))
        tokenizer, size, vectors, notes = _words(options, texts, data_paths, seed)
        new = 0
    else:
        base = load_tokenizer(options.tokenizer)
        tokenizer, size = with_markers(base)
        vectors, notes, new = None, (), size - len(base)
    encoding = RelationEncoding(
        tokenizer,
        options.max_length,
        blind=options.blind,
        unit="words" if options.encoding == "words" else "word pieces",
    )
    inputs = RelationInput(size, options.max_length, options.tokenizer, vectors, new)
    return encoding, inputs, (encoding.describe(), *notes)


def _reading(options: RelationTextOptions) -> Callable:
    """What gives a sample's text as the vocabulary of words is to see it."""
    layout = blinded if options.blind else marked
    return lambda mention: as_text(layout(mention), [""] * len(MARKERS))


def words_of_clients(options: RelationTextOptions, texts_of: TextsOf) -> dict[str, list[list[str]]]:
    """Client id -> the words of each text that it trains on, from which a vocabulary is counted.

    Empty for pieces.
    """
    if options.encoding == "pieces":
        return {}
    return {client: split_words(texts) for client, texts in texts_of(_reading(options)).items()}


def load_tokenizer(source: str | None, others: str | None = "'words'"):
    """The fast tokenizer of an encoder's folder or hub id. Raises UserError if there is none or it cannot be read.

    `others`: the task's encodings that need none, for the message; None for a task without a choice of encoding.
    """
    if source is None:
        remedy = "" if others is None else f", or set task.encoding = {others}"
        raise UserError(
            "task.tokenizer is not set: give the folder or hub id of an encoder (--set task.tokenizer=FOLDER)" + remedy
        )
    from transformers import AutoTokenizer

    how = how_to_read(source, "tokenizer", "task.tokenizer")
    folder, problem = Path(source), None
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, use_fast=True, **how)
    except Exception as error:  # the tokenizers library raises many kinds for a damaged file
        problem = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if folder.is_dir() and not any(folder.glob("*vocab*")) and not (folder / "tokenizer.json").is_file():
            problem = "the folder holds neither tokenizer.json nor a vocabulary"
    if problem is None:
        _require_special_pieces(tokenizer, source)
        return tokenizer
    raise UserError(
        f"tokenizer {source}: cannot be read ({problem}); give the folder of an encoder, or the id of one on the "
        "Hugging Face hub"
    )


def _require_special_pieces(tokenizer, source: str) -> None:
    """Refuses a vocabulary of word pieces that lacks a special piece: the library adds one, without a vector."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or type(backend.model).__name__ != "WordPiece":
        return
    known = backend.get_vocab(with_added_tokens=False)
    names = (tokenizer.unk_token, tokenizer.cls_token, tokenizer.sep_token, tokenizer.pad_token)
    lacking = [name for name in names if name is not None and name not in known]
    if lacking:
        raise UserError(
            f"tokenizer {source}: its vocabulary has no {lacking[0]}; give the tokenizer that the encoder was "
            "trained with"
        )


def require_known_pieces(examples: FederatedExamples, unknown_id: int, tokenizer: str) -> None:
    """Refuses a vocabulary that is not of the texts' language, before anything is trained."""
    clients = [client.train for client in examples.clients]
    pieces = sum(int(part["attention_mask"].sum()) - 2 * len(part["y"]) for part in clients)
    unknown = sum(int((part["input_ids"] == unknown_id).sum()) for part in clients)
    if unknown > MOST_UNKNOWN * pieces:
        raise UserError(
            f"tokenizer {tokenizer}: does not know {unknown / pieces:.0%} of the word pieces of the training texts; "
            "give an encoder for the texts' language (task.tokenizer), e.g. a Chinese one for Chinese texts"
        )


def unread_vectors(vocabulary, data_paths: DataPaths) -> np.ndarray:
    """Zeros in the shape of the word vectors at a site, which take no memory.

    See `DataPaths.vectors_width`.
    """
    return np.broadcast_to(np.float32(0), [len(vocabulary), data_paths.vectors_width])


def _words(options: RelationTextOptions, texts, data_paths: DataPaths, seed: int):
    vocabulary = (
        of_words(data_paths.words)
        if data_paths.words is not None
        else word_vocabulary(
            texts, min_count=options.min_count, min_clients=options.min_clients, max_size=options.max_words
        )
    )
    note = f"vocabulary: {len(vocabulary.words)} words, markers included"
    if data_paths.vectors_width is not None:
        return word_tokenizer(vocabulary), len(vocabulary), unread_vectors(vocabulary, data_paths), (note,)
    if options.vectors_path is None:
        return word_tokenizer(vocabulary), len(vocabulary), None, (note,)
    vectors = load_word_vectors(options.vectors_path, trust=data_paths.trust)
    covered = vectors.describe(Path(options.vectors_path).name, vocabulary)
    return word_tokenizer(vocabulary), len(vocabulary), vectors.matrix_for(vocabulary, seed=seed), (note, covered)
