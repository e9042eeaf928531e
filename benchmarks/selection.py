"""Lazy MIL's selection at NYT10's size: its seconds compared with a whole round, and the peak memory.

Synthetic sentences with planted noise, 10 of 100 platforms a round, the PCNN of FedDS. In every turn the same platforms
do four things: a selection among few sentences, for the cost that does not depend on their number (vectors over all
triples, weights, sessions); the selection; a round of Lazy MIL, which contains it; and a round of NONE, which trains on
all sentences. All run in one process and its worker, whose peak bounds that of each.
"""

from __future__ import annotations

import collections
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from benchmarks.common import met, spread
from benchmarks.memory import memory_kind, sample_memory
from computations.stack import DISTRIBUTION
from tff_re.runs.folder import environment

# TensorFlow and modules that need it are imported only in the measured process.

FEW, SELECTION, LAZY, NONE = "selection among few", "selection", "Lazy MIL, a round", "NONE, a round"
ROWS = (FEW, SELECTION, LAZY, NONE)
SECONDS_BETWEEN_SAMPLES = 1.0
"""Sampling gigabytes takes CPU time from the measured process, and a stage takes many seconds."""

MAX_GIGABYTES, MAX_SHARE = 8.0, 0.5


@dataclass(frozen=True)
class Sizes:
    """Sizes of NYT10 and settings of FedDS.

    Attributes:
      sentences, bags, triples, relations: of the training data; relations without NA. Sentences of a pair with several
        relations are counted once for each relation.
      vocabulary: number of words with a vector, at least the planted ones.
      length: maximum number of words in a sentence, as OpenNRE cuts them.
      words: mean number of words in a sentence before the cut.
      platforms, platforms_per_round: K, and C times K.
      filters: of the PCNN.
      batch, epochs: B and E.
    """

    sentences: int = 466_876
    bags: int = 280_000
    triples: int = 290_000
    relations: int = 52
    vocabulary: int = 114_042
    length: int = 120
    words: int = 40
    platforms: int = 100
    platforms_per_round: int = 10
    filters: int = 230
    batch: int = 32
    epochs: int = 3


@dataclass(frozen=True)
class Stage:
    """Work of the measured process since its last report.

    Attributes:
      name: one of ROWS, or another name for work that is not timed.
      seconds: wall-clock seconds.
      cpu_seconds: CPU seconds of all processes and threads.
      sentences: number of sentences scored by a selection, or trained on in a round.
      chosen: number of sentences that the selection chose; None without a selection.
    """

    name: str
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    sentences: int = 0
    chosen: int | None = None


def run(rounds: int, out: Path) -> str:
    """Measures `rounds` turns; returns the Markdown table."""
    sizes, kind = Sizes(), memory_kind()
    loads = [os.getloadavg()[0]]
    arguments = (sizes, rounds, out / "worker.log")
    stages = sample_memory(measured_turns, arguments, kind, "the selection at NYT10's size", SECONDS_BETWEEN_SAMPLES)
    loads.append(os.getloadavg()[0])
    details = environment()
    return table(stages) + (
        f"\n{sizes.platforms_per_round} of {sizes.platforms} platforms a round; {sizes.sentences:,} sentences, "
        f"{sizes.bags:,} pairs, {sizes.triples:,} triples, {sizes.relations} relations and NA, {sizes.words} words a "
        f"sentence on average and at most {sizes.length}; PCNN, {sizes.filters} filters, {sizes.vocabulary:,} "
        f"word vectors; B = {sizes.batch}, E = {sizes.epochs}, SGD. {rounds} turns. {kind.upper()} of Python, the "
        f"worker and its supervisor together, sampled every {SECONDS_BETWEEN_SAMPLES:g} s; GB are 10^9 bytes. "
        f"{details['cores']} cores, load average {loads[0]:.1f} at the beginning and {loads[1]:.1f} at the end; "
        f"TensorFlow {details['tensorflow']}, {DISTRIBUTION} {details[DISTRIBUTION]}.\n"
    )


def table(stages: list[tuple[Stage, int]]) -> str:
    """Markdown from the reported stages and the peak of each in bytes."""
    lines = [
        "| stage | seconds, median (min to max) | CPU seconds, median | sentences scored or trained on | chosen "
        "sentences | peak GB |",
        "| :-- | --: | --: | --: | --: | --: |",
    ]
    stages_by_name = {row: [(stage, peak) for stage, peak in stages if stage.name == row] for row in ROWS}
    for row, turns in stages_by_name.items():
        seconds = [stage.seconds for stage, _ in turns]
        cpu, sentences = (
            statistics.median(getattr(stage, attribute) for stage, _ in turns)
            for attribute in ("cpu_seconds", "sentences")
        )
        chosen = [stage.chosen for stage, _ in turns if stage.chosen is not None]
        lines.append(
            f"| {row} | {spread(seconds, 1)} | {cpu:.1f} | "
            f"{sentences:,.0f} | {f'{statistics.median(chosen):,.0f}' if chosen else ''} | "
            f"{max(peak for _, peak in turns) / 1e9:.2f} |"
        )
    share, cpu_share = (
        statistics.median(
            getattr(selection, attribute) / getattr(lazy_round, attribute)
            for (selection, _), (lazy_round, _) in zip(stages_by_name[SELECTION], stages_by_name[LAZY], strict=True)
        )
        for attribute in ("seconds", "cpu_seconds")
    )
    peak = max(peak for _, peak in stages) / 1e9
    lines += [
        "",
        f"In a round of Lazy MIL the selection takes {share:.0%} of the wall-clock seconds and {cpu_share:.0%} of the "
        "CPU seconds, medians over the turns; the rest is training. Expected: less than half of both; "
        f"{met(max(share, cpu_share) < MAX_SHARE)}. Expected: the peak, including making the data, "
        f"stays under {MAX_GIGABYTES:g} GB; here {peak:.2f}, {met(peak < MAX_GIGABYTES)}.",
        "",
    ]
    return "\n".join(lines)


def lengthen(arrays: dict[str, np.ndarray], lengths: np.ndarray, vocabulary: int, generator) -> None:
    """Inserts random words before the last one, [SEP], until texts have the given lengths; in place.

    The planted sentences have 17 words with markers, and the cost of a convolution depends on their number.

    Args:
      arrays: `input_ids` and `attention_mask` int32 [n, L].
      lengths: int [n], words of each text with markers; longer texts stay as they are, and no text gets more than L.
      vocabulary: ids are drawn below it, by Zipf's law.
      generator: a NumPy generator.
    """
    ids, mask = arrays["input_ids"], arrays["attention_mask"]
    count, width = ids.shape
    positions, rows = np.arange(width), np.arange(count)
    old_lengths = mask.sum(axis=1)
    new_lengths = np.minimum(np.maximum(old_lengths, lengths), width)
    last_ids = ids[rows, old_lengths - 1]
    inserted = (positions >= old_lengths[:, np.newaxis] - 1) & (positions < new_lengths[:, np.newaxis])
    ids[inserted] = 2 + (vocabulary - 2) ** generator.random(int(inserted.sum())) - 1  # 0 is padding, 1 unknown
    ids[rows, new_lengths - 1] = last_ids
    mask[:] = positions < new_lengths[:, np.newaxis]


def measured_turns(report, sizes: Sizes, rounds: int, log: Path) -> None:
    """In the measured process: makes the data, compiles on few sentences, plays the turns; reports each stage."""
    from tff_re.runtime import open_runtime

    platforms = _platforms(sizes)
    report(Stage("making the data"))
    with open_runtime("local", log_path=log):
        contenders = _contenders(sizes)
        for contender in contenders.values():
            contender(_first_batches(platforms[: sizes.platforms_per_round], sizes), 0)
        report(Stage("compiling"))
        for turn in range(rounds):
            indices = np.random.default_rng(turn).choice(sizes.platforms, sizes.platforms_per_round, replace=False)
            chosen_platforms = [platforms[k] for k in indices]
            for row in ROWS:
                data = _first_batches(chosen_platforms, sizes) if row == FEW else chosen_platforms
                began, cpu_began = time.perf_counter(), _cpu_seconds()
                sentences, chosen = contenders[row](data, turn)
                report(Stage(row, time.perf_counter() - began, _cpu_seconds() - cpu_began, sentences, chosen))


def _first_batches(platforms: list[dict[str, np.ndarray]], sizes: Sizes) -> list[dict[str, np.ndarray]]:
    """The first batch of each platform."""
    return [{name: array[: sizes.batch] for name, array in arrays.items()} for arrays in platforms]


def _platforms(sizes: Sizes) -> list[dict[str, np.ndarray]]:
    from datasets.bags.encoding import encode_bag_clients
    from datasets.bags.planted import planted
    from datasets.partition import Iid, build_partition
    from datasets.text.relation_encoding import RelationEncoding
    from datasets.text.vocabulary import Vocabulary
    from datasets.text.word_tokenizer import SPECIAL, word_tokenizer

    planted_bags = planted(
        sizes.bags,
        noise_rate=0.4,
        num_sentences=sizes.sentences,
        num_relations=sizes.relations,
        num_triples=sizes.triples,
        unrelated_share=0.9,
    )
    partition = build_partition(planted_bags.corpus, Iid(sizes.platforms), seed=0, test_share=0.0)
    encoding = RelationEncoding(word_tokenizer(Vocabulary((*planted_bags.words, *SPECIAL))), sizes.length)
    examples, _ = encode_bag_clients(planted_bags.corpus, partition, encoding)
    generator = np.random.default_rng(0)
    platforms = [client.train for client in examples.clients]
    for arrays in platforms:
        # 6 for markers, [CLS] and [SEP]. The standard deviation is half the mean.
        lengths = 6 + generator.gamma(4, sizes.words / 4, len(arrays["y"])).astype(np.int64)
        lengthen(arrays, lengths, sizes.vocabulary, generator)
    return platforms


def _contenders(sizes: Sizes) -> dict:
    """Row -> function (platforms' arrays, turn) -> (sentences scored or trained on, sentences chosen)."""
    import tensorflow as tf

    from computations import algorithms
    from computations.client_work.selection import build_selection
    from computations.local_model import LABEL, PLATFORM, TRIPLE, LocalModel
    from tff_re.models import pcnn
    from tff_re.models.inputs import RelationInput

    inputs = RelationInput(sizes.vocabulary, sizes.length)
    classes, options = sizes.relations + 1, pcnn.Options(filters=sizes.filters)
    model = LocalModel(
        lambda: pcnn.MODEL.build(options, inputs, classes),
        {**inputs.specs, **{name: tf.TensorSpec([None], tf.int32) for name in (LABEL, PLATFORM, TRIPLE)}},
        classes,
        "classifier",
    )
    weights = model.initial_weights(0)
    settings = {"local_epochs": sizes.epochs, "batch_size": sizes.batch}
    built = {}
    for name, extra_options in (("lazy_mil", {"num_triples": sizes.triples}), ("mil_none", {})):
        declared = algorithms.find(name)
        built[name] = declared.build(model, declared.options(**settings, **extra_options))
    states = {name: algorithm.initialize(weights) for name, algorithm in built.items()}
    select = build_selection(model, sizes.triples)

    def select_sentences(platforms, turn):
        del turn
        masks = select(states["lazy_mil"]["weights"], [model.arrange(p) for p in platforms])
        return sum(len(mask) for mask in masks), int(sum(mask.sum() for mask in masks))

    def play(name, platforms, turn):
        data = [
            collections.OrderedDict(examples=model.arrange(p), seed=np.array([turn, k], np.int32))
            for k, p in enumerate(platforms)
        ]
        output = built[name].next(states[name], data)
        states[name] = output["state"]
        return output["metrics"]["work"]

    def lazy(platforms, turn):
        selected = int(play("lazy_mil", platforms, turn)["selection/sentences"])
        return selected, selected

    def none(platforms, turn):
        play("mil_none", platforms, turn)
        return sum(len(p[LABEL]) for p in platforms), None

    return {FEW: select_sentences, SELECTION: select_sentences, LAZY: lazy, NONE: none}


def _cpu_seconds() -> float:
    """User and system CPU seconds of this process and its descendants."""
    process = psutil.Process()
    times = [member.cpu_times() for member in (process, *process.children(recursive=True))]
    return sum(t.user + t.system for t in times)
