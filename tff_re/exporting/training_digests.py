"""Keyed digests of a run's training and dev examples in its export, by which `evaluate` tells which it has seen.

The key is in the export, too: whoever has the export and a text, or guesses one, can tell whether the run had it. The
key only keeps two exports' digests from being compared, and tables of digests from being made beforehand. Exports of
public data sets have digests by default, those of other texts only on request, and those of sites and of private runs
never.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import json_values
from datasets.bags.records import BagSentence
from datasets.errors import DataError
from datasets.files import read_json
from datasets.json_values import Fail
from tff_re.errors import UserError
from tff_re.exporting.digests import check_digests, is_listed
from tff_re.exporting.layout import REMEDY, TRAINING_DIGESTS_FILE
from tff_re.runs.data_source import has_public_texts
from tff_re.tasks.duplicates import normalised, text_of

if TYPE_CHECKING:
    from tff_re.runs.experiment import Experiment

FORMAT, FORMAT_VERSION = "tff-re training digests", 1
KEY_BYTES, DIGEST_BYTES = 16, 5
"""With 40 bits, a text is taken for one of 100,000 others with a probability of 1e-7."""

_MADE_UP_ID = re.compile(r"(?:^|-)(?:given|train|dev|test)-")
"""In ids that readers make of a split's name and a number, because the file has none."""

_HEXADECIMAL = re.compile(r"[0-9a-f]*")


@dataclass(frozen=True)
class Seen:
    """How many examples of a file are among a run's training and dev examples.

    Attributes:
      examples: of the file.
      by_id: those with the id of a document (of bags: the ids of a pair) of the run; None: ids cannot be compared.
      by_text: those with a text of the run; of bags, with a sentence of it.
      either: those seen by id or by text.
      run_examples: of the run.
      started_from_run: whether the run started from another run's weights, whose examples are not known.
    """

    examples: int
    by_id: int | None
    by_text: int
    either: int
    run_examples: int
    started_from_run: bool = False

    def facts(self) -> dict[str, Any]:
        """The attributes as JSON has them."""
        return dict(vars(self))

    def warning(self, name: str) -> str | None:
        """A line that warns of a file that was seen, or None. `name` is the file's."""
        if not self.either:
            return None
        by_id = "" if self.by_id is None else f"{self.by_id} by id, "
        return (
            f"{name}: {self.either} of {self.examples} examples match the run's training or dev data ({by_id}"
            f"{self.by_text} by text); the metrics are not those of new texts"
        )


@dataclass(frozen=True)
class TrainingDigests:
    """Digests of ids and normalised texts.

    Attributes:
      key: of the digests.
      examples: how many examples they are of.
      ids, texts: hexadecimal digests.
      started_from_run: see `Seen`.
    """

    key: bytes = field(repr=False)
    examples: int
    ids: frozenset[str] = field(repr=False)
    texts: frozenset[str] = field(repr=False)
    started_from_run: bool = False

    @classmethod
    def from_samples(cls, samples: Sequence[Any], *, started_from_run: bool = False) -> TrainingDigests:
        """The digests of samples by a new key."""
        key, examples = secrets.token_bytes(KEY_BYTES), list(_examples(samples))
        ids = frozenset(_digest(key, "id", name) for name, _ in examples if name is not None)
        texts = frozenset(_digest(key, "text", text) for _, texts in examples for text in texts)
        return cls(key, len(examples), ids, texts, started_from_run)

    def seen(self, samples: Sequence[Any]) -> Seen:
        """How many of a file's samples are among those of the run."""
        examples = list(_examples(samples))
        comparable = bool(self.ids) and any(name is not None for name, _ in examples)
        by_id = [name is not None and _digest(self.key, "id", name) in self.ids for name, _ in examples]
        by_text = [any(_digest(self.key, "text", text) in self.texts for text in texts) for _, texts in examples]
        either = sum(map(any, zip(by_id, by_text, strict=True)))
        number = sum(by_id) if comparable else None
        return Seen(len(examples), number, sum(by_text), either, self.examples, self.started_from_run)

    def to_json(self) -> str:
        """The content of training_digests.json: sorted, so that the order of the examples is not in it."""
        return json.dumps(
            {
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "key": self.key.hex(),
                "examples": self.examples,
                "started_from_run": self.started_from_run,
                "ids": "".join(sorted(self.ids)),
                "texts": "".join(sorted(self.texts)),
            },
            indent=1,
        )

    @classmethod
    def from_json(cls, value: Any, fail: Fail) -> TrainingDigests:
        """The digests that `to_json` wrote. Raises `fail`'s error for another value."""
        if not isinstance(value, Mapping) or value.get("format") != FORMAT:
            raise fail("holds no digests of training texts", remedy=REMEDY)
        if value.get("format_version") != FORMAT_VERSION:
            raise fail("is of another version of the format", remedy="use the tff-re that wrote it")
        key, examples = json_values.field(value, "key", str, fail), json_values.field(value, "examples", int, fail)
        if len(key) != 2 * KEY_BYTES or not _HEXADECIMAL.fullmatch(key):
            raise fail(f'"key" is not {KEY_BYTES} hexadecimal bytes', remedy=REMEDY)
        started = value.get("started_from_run")
        if not isinstance(started, bool):
            raise fail('"started_from_run" is neither true nor false', remedy=REMEDY)
        ids, texts = (_split(json_values.field(value, name, str, fail), name, fail) for name in ("ids", "texts"))
        return cls(bytes.fromhex(key), examples, ids, texts, started)


def digests_for_export(
    experiment: Experiment, asked: bool | None, *, private: bool, started_from_run: bool
) -> tuple[TrainingDigests | None, str]:
    """The digests that an export gets, or None, and the line for its card.

    Args:
      experiment: the run's.
      asked: whether the user wants them; None: they are written of public data sets.
      private: whether the run has differential privacy.
      started_from_run: see `Seen`.

    Raises:
      UserError: they are asked for and cannot be written.
    """
    samples = experiment.prepared.trained_on()
    impossible = _impossible(experiment, samples, private)
    if asked and impossible is not None:
        raise UserError(f"--training-digests: {impossible}; leave it out")
    if impossible is None and asked is None and not has_public_texts(experiment):
        impossible = "the texts are not those of a public data set"
    if impossible is not None or asked is False:
        return None, f"no digests of training texts in the files: {impossible or 'left out on request'}"
    digests = TrainingDigests.from_samples(samples, started_from_run=started_from_run)
    return digests, (
        f"{TRAINING_DIGESTS_FILE} holds digests of {digests.examples} training and dev examples: anyone who has or "
        "guesses a text or a document's id can tell whether it is among them"
    )


def read_training_digests(folder: Path, trust: bool = False) -> TrainingDigests | None:
    """The digests in an export's folder, or None if it was written without.

    Args:
      trust: whether the file may be another one than the one that was exported.

    Raises:
      DataError: the file is missing, changed or damaged.
    """
    path = folder / TRAINING_DIGESTS_FILE
    if not trust and (path.exists() or is_listed(folder, TRAINING_DIGESTS_FILE)):
        check_digests(folder, (TRAINING_DIGESTS_FILE,))
    if not path.exists():
        return None
    return TrainingDigests.from_json(read_json(path), functools.partial(DataError, path=path))


def _impossible(experiment: Experiment, samples: Sequence[Any], private: bool) -> str | None:
    """Why an export cannot have digests, or None."""
    if experiment.prepared.sites:
        return "the training texts are at the sites"
    if private:
        return "the run has differential privacy, which digests of its texts would undo"
    return None if samples else "the task's examples are not texts"


def _examples(samples: Sequence[Any]) -> Iterator[tuple[str | None, tuple[str, ...]]]:
    """(id, normalised texts) of each example: of a bag its pair and all its sentences, of others document and text."""
    if samples and isinstance(samples[0], BagSentence):
        bags: dict[tuple[str, str], list[str]] = {}
        for sentence in samples:
            bags.setdefault(sentence.pair, []).append(normalised(sentence.text))
        yield from ((json.dumps(pair), tuple(texts)) for pair, texts in bags.items())
        return
    for sample in samples:
        made_up = _MADE_UP_ID.search(sample.document_id)
        yield None if made_up else sample.document_id, (normalised(text_of(sample)),)


def _digest(key: bytes, what: str, value: str) -> str:
    data = value.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES, key=key, person=what.encode()).hexdigest()


def _split(digests: str, name: str, fail: Fail) -> frozenset[str]:
    size = 2 * DIGEST_BYTES
    if len(digests) % size or not _HEXADECIMAL.fullmatch(digests):
        raise fail(f'"{name}" does not consist of digests of {DIGEST_BYTES} hexadecimal bytes', remedy=REMEDY)
    return frozenset(digests[i : i + size] for i in range(0, len(digests), size))
