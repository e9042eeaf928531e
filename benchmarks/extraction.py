"""Peak memory and seconds of `extract` over the number of abstracts: raw text to linked facts and their graph.

The abstracts are made up: ten sentences on drugs and diseases, about half of them with one of each. Both models, a
tagger over words with a CRF and a PCNN over words, are trained on such sentences and exported before anything is
measured. Each number of abstracts is extracted in a process of its own, so that each has its own peak; Python,
TensorFlow and the exports are part of it.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.common import machine, met
from benchmarks.memory import SECONDS_BETWEEN_SAMPLES, memory_kind, sample_memory

# TensorFlow and modules that need it are imported only in the measured process and after the abstracts are written.

ABSTRACTS = (100, 1000)
SENTENCES, TRAINING_SENTENCES = 10, 300
MAX_GROWTH = 0.1
"""By how much the peak of the most abstracts may exceed that of the fewest."""

_DRUGS = ("aspirin", "ibuprofen", "heparin", "naloxone", "warfarin", "codeine", "metformin", "digoxin")
_DISEASES = ("headache", "nausea", "fever", "gastric ulcer", "rash", "migraine", "heart failure", "tremor")
_PLAIN = (
    "The aim of this study was to compare both groups over a period of twelve weeks.",
    "All patients gave written consent, and their age, sex and weight were recorded.",
    "There was no difference between the groups at the beginning of treatment.",
)
_PAIRED = (
    ("In this group DRUG was given to every patient who was admitted because of DISEASE.", "treats"),
    ("A week later DRUG was stopped in two patients, since it had led to DISEASE.", "causes"),
    ("Neither the dose of DRUG nor the time since the onset of DISEASE was known.", "none"),
)

_RECIPE = """
partition = {name = "iid", num_clients = 2}
algorithm = {name = "fedavgs", learning_rate = 1e-2, local_epochs = 2, batch_size = 16}
training = {rounds = 4, client_fraction = 1.0}
evaluation = {every = 4, train_split = false}
"""
_TASKS = {
    "texts": 'task = {name = "entity_recognition", dataset = "entities", encoding = "words", min_clients = 1, '
    'max_length = 256, path = "PATH"}\nmodel = {name = "tagger", crf = true}\n',
    "pairs": 'task = {name = "sentence_relations", dataset = "relations", encoding = "words", min_clients = 1, '
    'max_length = 64, negative_label = "none", path = "PATH"}\nmodel = {name = "pcnn"}\n',
}


def run(rounds: int, out: Path) -> str:
    """Measures each number of abstracts once, whatever `rounds` is; returns the Markdown table."""
    del rounds
    kind = memory_kind()
    with tempfile.TemporaryDirectory() as folder:
        exports = trained(Path(folder))
        measured = {count: measure(count, exports, Path(folder), kind) for count in ABSTRACTS}
        characters = sum(len(text) for text in abstracts(100)) // 100
    return table(measured) + (
        f"\nAbstracts of {SENTENCES} sentences and {characters} characters; tagger with a CRF, PCNN, a terminology of "
        f"{len(_DRUGS)} names, facts and graph. {kind.upper()} of the process, sampled every "
        f"{SECONDS_BETWEEN_SAMPLES * 1000:.0f} ms; GB are 10^9 bytes. {machine()}.\n"
    )


def table(measured: Mapping[int, tuple[int, float, float, int]]) -> str:
    """Markdown from number of abstracts -> (peak in bytes, seconds, seconds up to the first batch, facts)."""
    lines = [
        "| abstracts | facts | peak GB | seconds | of these up to the first batch | abstracts a second after it |",
        "| --: | --: | --: | --: | --: | --: |",
    ]
    for count, (peak, seconds, start, facts) in measured.items():
        pace = f"{count / (seconds - start):.0f}"
        lines.append(f"| {count:,} | {facts:,} | {peak / 1e9:.2f} | {seconds:.1f} | {start:.1f} | {pace} |")
    first, *_, last = (peak for peak, *_ in measured.values())
    growth = last / first - 1
    lines += [
        "",
        f"Expected: the peak of {max(measured):,} abstracts is at most {MAX_GROWTH:.0%} above that of "
        f"{min(measured):,}; here {growth:+.1%}, {met(growth <= MAX_GROWTH)}.",
        "",
    ]
    return "\n".join(lines)


def measure(count: int, exports: Mapping[str, Path], folder: Path, kind: str) -> tuple[int, float, float, int]:
    """(peak in bytes, seconds, seconds up to the first batch, facts), measured in a process that has ended on return.

    Raises:
      RuntimeError: the process failed; it has printed why.
    """
    file, terminology = folder / f"{count}.jsonl", folder / "terminology.tsv"
    with open(file, "w", encoding="utf-8") as stream:
        for number, text in enumerate(abstracts(count)):
            stream.write(json.dumps({"id": f"d{number}", "text": text}) + "\n")
    terminology.write_text("".join(f"{name}\tD{number}\n" for number, name in enumerate(_DRUGS)), "utf-8")
    arguments = exports["texts"], exports["pairs"], file, terminology, folder / f"facts-{count}.jsonl"
    ((answer, peak),) = sample_memory(_extracted, arguments, kind, f"{count} abstracts")
    return peak, *answer


def _extracted(report, entities: Path, relations: Path, file: Path, terminology: Path, out: Path) -> None:
    """In the measured process: an extraction; reports (seconds, seconds up to the first batch, facts)."""
    import tff_re

    began, batches = time.perf_counter(), []
    ways = {"terminology": terminology, "graph": out.with_suffix(".graphml")}
    result = tff_re.extract(
        entities, relations, file, out, on_batch=lambda _: batches.append(time.perf_counter()), **ways
    )
    report((time.perf_counter() - began, batches[0] - began, result.facts))


def trained(folder: Path) -> dict[str, Path]:
    """The exports of both models, trained on made-up sentences."""
    import tff_re

    draw, texts, pairs = random.Random(0), [], []
    for number in range(TRAINING_SENTENCES):
        text, spans, relation = _sentence(draw, 0.7)
        entities = sorted([*span, kind] for kind, span in spans.items())
        texts.append({"id": f"t{number}", "text": text, "entities": entities})
        if relation is not None:
            mentions = {"head": spans["drug"], "head_type": "drug", "tail": spans["disease"], "tail_type": "disease"}
            pairs.append({"id": f"p{number}", "text": text, **mentions, "label": relation})
    exports = {}
    for name, records in (("texts", texts), ("pairs", pairs)):
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
        recipe = folder / f"{name}.toml"
        recipe.write_text(_RECIPE + _TASKS[name].replace("PATH", str(path)), "utf-8")
        tff_re.train(recipe, folder / name)
        exports[name] = tff_re.export(folder / name, formats="saved_model")
    return exports


def abstracts(count: int) -> Iterator[str]:
    """Made-up abstracts, the same in every call."""
    draw = random.Random(1)
    for _ in range(count):
        yield " ".join(_sentence(draw, 0.5)[0] for _ in range(SENTENCES))


def _sentence(draw: random.Random, paired: float) -> tuple[str, dict[str, list[int]], str | None]:
    """(text, type -> span, relation) of a sentence, with entities with a probability of `paired`."""
    if draw.random() >= paired:
        return draw.choice(_PLAIN), {}, None
    text, relation = draw.choice(_PAIRED)
    spans = {}
    # The drug stands before the disease in every sentence.
    for kind, names in (("drug", _DRUGS), ("disease", _DISEASES)):
        start, name = text.index(kind.upper()), draw.choice(names)
        text = text.replace(kind.upper(), name)
        spans[kind] = [start, start + len(name)]
    return text, spans, relation
