"""Lazy MIL's selection at NYT10's size: its seconds beside those of a round, and the peak memory.

Made-up sentences of planted noise, 10 of 100 platforms a round, the PCNN of FedDS. In every turn the same platforms do
four things: a selection among few sentences, which shows what does not depend on how many there are (vectors over all
triples, weights, sessions); the selection; a round of Lazy MIL, which contains it; and a round of NONE, which trains on
all sentences. One process and its worker do all, so its peak bounds that of each.
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
from benchmarks.memory import kind_of_memory, watched
from computations.stack import DISTRIBUTION
from tff_re.runs.folder import environment

# TensorFlow and what needs it is imported in the measured process alone.

FEW, SELECTION, LAZY, NONE = "selection among few", "selection", "Lazy MIL, a round", "NONE, a round"
ROWS = (FEW, SELECTION, LAZY, NONE)
SECONDS_BETWEEN_SAMPLES = 1.0
"""A sample of gigabytes takes the processor's time from what is measured, and a stage has many seconds."""

MOST_GIGABYTES, MOST_SHARE = 8.0, 0.5


@dataclass(frozen=True)
class Sizes:
    """NYT10's, and FedDS' settings.

    Attributes:
      sentences, bags, triples, relations: of the training data; relations without NA. A pair with several relations
        has each of its sentences once for each of them.
      vocabulary: words that have a vector, at least the planted ones.
      length: words of a sentence at most, as OpenNRE cuts them.
      words: the mean of a sentence's words before that.
      platforms, taking_part: K, and of them in a round, C times K.
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
    taking_part: int = 10
    filters: int = 230
    batch: int = 32
    epochs: int = 3


@dataclass(frozen=True)
class Stage:
    """What the measured process has done since it last told.

    Attributes:
      what: one of ROWS, or another name for what is not timed.
      seconds: by the clock.
      cpu_seconds: of the processor, all processes and threads together.
      sentences: scored by a selection; trained on, once or more often, in a round.
      chosen: sentences that the selection chose; None where there is none.
    """

    what: str
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    sentences: int = 0
    chosen: int | None = None


def run(rounds: int, out: Path) -> str:
    """Measures so many turns; returns the Markdown table."""
    sizes, kind = Sizes(), kind_of_memory()
    loads = [os.getloadavg()[0]]
    arguments = (sizes, rounds, out / "worker.log")
    stages = watched(measured, arguments, kind, "the selection at NYT10's size", SECONDS_BETWEEN_SAMPLES)
    loads.append(os.getloadavg()[0])
    about = environment()
    return table(stages) + (
        f"\n{sizes.taking_part} of {sizes.platforms} platforms a round; {sizes.sentences:,} sentences, {sizes.bags:,} "
        f"pairs, {sizes.triples:,} triples, {sizes.relations} relations and NA, {sizes.words} words a sentence on "
        f"average and at most {sizes.length}; PCNN, {sizes.filters} filters, {sizes.vocabulary:,} word vectors; "
        f"B = {sizes.batch}, E = {sizes.epochs}, SGD. {rounds} turns. {kind.upper()} of Python, the worker and its "
        f"supervisor together, sampled every {SECONDS_BETWEEN_SAMPLES:g} s; GB are 10^9 bytes. "
        f"{about['cores']} cores, load average {loads[0]:.1f} at the beginning and {loads[1]:.1f} at the end; "
        f"TensorFlow {about['tensorflow']}, {DISTRIBUTION} {about[DISTRIBUTION]}.\n"
    )


def table(stages: list[tuple[Stage, int]]) -> str:
    """Markdown from what the measured process told, and the peak of each stage in bytes."""
    lines = [
        "| what | seconds, median (least to greatest) | processor's seconds, median | sentences scored or trained on | "
        "of them chosen | peak, GB |",
        "| :-- | --: | --: | --: | --: | --: |",
    ]
    by_what = {what: [(stage, peak) for stage, peak in stages if stage.what == what] for what in ROWS}
    for what, measured_ones in by_what.items():
        seconds = [stage.seconds for stage, _ in measured_ones]
        cpu, sentences = (
            statistics.median(getattr(stage, name) for stage, _ in measured_ones)
            for name in ("cpu_seconds", "sentences")
        )
        chosen = [stage.chosen for stage, _ in measured_ones if stage.chosen is not None]
        lines.append(
            f"| {what} | {spread(seconds, 1)} | {cpu:.1f} | "
            f"{sentences:,.0f} | {f'{statistics.median(chosen):,.0f}' if chosen else ''} | "
            f"{max(peak for _, peak in measured_ones) / 1e9:.2f} |"
        )
    share, of_cpu = (
        statistics.median(
            getattr(alone, name) / getattr(whole, name)
            for (alone, _), (whole, _) in zip(by_what[SELECTION], by_what[LAZY], strict=True)
        )
        for name in ("seconds", "cpu_seconds")
    )
    peak = max(peak for _, peak in stages) / 1e9
    lines += [
        "",
        f"Of a round of Lazy MIL the selection takes {share:.0%} by the clock and {of_cpu:.0%} of the processor's "
        "seconds, medians over the turns; the rest is training. Expected: less than half of both; "
        f"{met(max(share, of_cpu) < MOST_SHARE)}. Expected: the peak, making the data included, "
        f"stays under {MOST_GIGABYTES:g} GB; here {peak:.2f}, {met(peak < MOST_GIGABYTES)}.",
        "",
    ]
    return "\n".join(lines)


def lengthen(arrays: dict[str, np.ndarray], lengths: np.ndarray, vocabulary: int, generator) -> None:
    """Fills texts with words before their last one, [SEP], up to so many words; in place.

    The planted sentences have 17 words with markers; what a convolution costs depends on how many there are.

    Args:
      arrays: `input_ids` and `attention_mask` int32 [n, L].
      lengths: int [n], words of each text with markers; a text that has more, or a row that has room for fewer, is
        filled as far as it goes.
      vocabulary: ids are drawn below it, by Zipf's law.
      generator: a NumPy generator.
    """
    ids, mask = arrays["input_ids"], arrays["attention_mask"]
    count, width = ids.shape
    place, rows = np.arange(width), np.arange(count)
    before = mask.sum(axis=1)
    after = np.minimum(np.maximum(before, lengths), width)
    last = ids[rows, before - 1]
    new = (place >= before[:, np.newaxis] - 1) & (place < after[:, np.newaxis])
    ids[new] = 2 + (vocabulary - 2) ** generator.random(int(new.sum())) - 1  # 0 is padding, 1 unknown
    ids[rows, after - 1] = last
    mask[:] = place < after[:, np.newaxis]


def measured(tell, sizes: Sizes, rounds: int, log: Path) -> None:
    """In the measured process: makes the data, compiles on few sentences, then the turns; tells each stage."""
    from tff_re.runtime import open_runtime

    platforms = _platforms(sizes)
    tell(Stage("making the data"))
    with open_runtime("local", log_path=log):
        contenders = _contenders(sizes)
        for contender in contenders.values():
            contender(_few(platforms[: sizes.taking_part], sizes), 0)
        tell(Stage("compiling"))
        for turn in range(rounds):
            drawn = np.random.default_rng(turn).choice(sizes.platforms, sizes.taking_part, replace=False)
            chosen_platforms = [platforms[k] for k in drawn]
            for what in ROWS:
                data = _few(chosen_platforms, sizes) if what == FEW else chosen_platforms
                began, cpu_began = time.perf_counter(), _cpu_seconds()
                sentences, chosen = contenders[what](data, turn)
                tell(Stage(what, time.perf_counter() - began, _cpu_seconds() - cpu_began, sentences, chosen))


def _few(platforms: list[dict[str, np.ndarray]], sizes: Sizes) -> list[dict[str, np.ndarray]]:
    """A batch of each."""
    return [{name: array[: sizes.batch] for name, array in arrays.items()} for arrays in platforms]


def _platforms(sizes: Sizes) -> list[dict[str, np.ndarray]]:
    from datasets.bags.encoding import encode_bag_clients
    from datasets.bags.planted import planted
    from datasets.partition import Iid, build_partition
    from datasets.text.relation_encoding import RelationEncoding
    from datasets.text.vocabulary import Vocabulary
    from datasets.text.word_tokenizer import SPECIAL, word_tokenizer

    made = planted(
        sizes.bags,
        noise_rate=0.4,
        num_sentences=sizes.sentences,
        num_relations=sizes.relations,
        num_triples=sizes.triples,
        unrelated_share=0.9,
    )
    partition = build_partition(made.corpus, Iid(sizes.platforms), seed=0, test_share=0.0)
    encoding = RelationEncoding(word_tokenizer(Vocabulary((*made.words, *SPECIAL))), sizes.length)
    examples, _ = encode_bag_clients(made.corpus, partition, encoding)
    generator = np.random.default_rng(0)
    platforms = [client.train for client in examples.clients]
    for arrays in platforms:
        # 6 stand beside the words: markers, [CLS] and [SEP]. The spread is half the mean.
        lengths = 6 + generator.gamma(4, sizes.words / 4, len(arrays["y"])).astype(np.int64)
        lengthen(arrays, lengths, sizes.vocabulary, generator)
    return platforms


def _contenders(sizes: Sizes) -> dict:
    """What -> function (platforms' arrays, turn) -> (sentences scored or trained on, sentences chosen)."""
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
    for name, more in (("lazy_mil", {"num_triples": sizes.triples}), ("mil_none", {})):
        chosen = algorithms.find(name)
        built[name] = chosen.build(model, chosen.options(**settings, **more))
    states = {name: algorithm.initialize(weights) for name, algorithm in built.items()}
    select = build_selection(model, sizes.triples)

    def alone(platforms, turn):
        del turn
        found = select(states["lazy_mil"]["weights"], [model.arrange(p) for p in platforms])
        return sum(len(one) for one in found), int(sum(one.sum() for one in found))

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

    return {FEW: alone, SELECTION: alone, LAZY: lazy, NONE: none}


def _cpu_seconds() -> float:
    """User's and system's, of this process and all below it."""
    process = psutil.Process()
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(t.user + t.system for t in times)
