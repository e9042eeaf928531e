# ruff: noqa: E501
"""Makes docs/claims.md from the files in docs/results: python scripts/claims.py > docs/claims.md

Every difference and interval is computed: from a comparison's values.csv where there is one; else from the means and
deviations of its table, which only has differences to its first row; other differences of old tables have no interval.
"""

from __future__ import annotations

import csv
import functools
import math
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tff_re.comparison.rows import Table  # noqa: E402
from tff_re.comparison.statistics import Difference, difference_of, paired_difference  # noqa: E402
from tff_re.comparison.tables import first_values, pooled_tuning  # noqa: E402
from tff_re.comparison.values import VALUES, read_values, tables_of  # noqa: E402
from tff_re.comparison.verdicts import LEAST_SEEDS, Contrast, judge_all  # noqa: E402
from tff_re.comparison.write_tables import stem_of  # noqa: E402

RESULTS = ROOT / "docs" / "results"

PUBLISHED_COMPARISONS = 123
"""With a baseline, in the tables of the five papers; counted by hand."""

PER_SEED, FROM_MEANS, NOT_RECOMPUTED = "per seed", "table's means", "cannot be recomputed: no per-seed values"


@dataclass(frozen=True)
class Claim:
    """A published gain of a method, and the table that tests it.

    Attributes:
      comparison: "method − baseline".
      published: gain in points.
      source: the table in the paper.
      data: our data.
      file: the table in docs/results.
      row, metric: row and column group of that table.
      baseline: another row; '': the table's first.
      same_corpus: whether our data are of the paper's corpus, mostly a part of it.
      made_up: whether they were made up for the comparison.
    """

    comparison: str
    published: float
    source: str
    data: str
    file: str
    row: str
    metric: str
    baseline: str = ""
    same_corpus: bool = False
    made_up: bool = False


@dataclass(frozen=True)
class Line:
    """A claim and what was measured, for one kind of values; differences as fractions.

    Attributes:
      claim: that is tested.
      values: `best`, `chosen` or `final`.
      difference: only its mean where nothing else can be recomputed.
      room: the best pooled or oracle row less the baseline.
      tuned: whether the pooled row was tuned like the methods, in words.
      basis: `PER_SEED`, `FROM_MEANS` or `NOT_RECOMPUTED`.
      judged: whether it may have a verdict.
      verdict: adjusted over all lines; '–': none.
      alone: what it would be as the only line, without an adjustment.
    """

    claim: Claim
    values: str
    difference: Difference
    room: float | None
    tuned: str
    basis: str
    judged: bool = True
    verdict: str = "–"
    alone: str = "–"


def _synthetic(row: str, published: float) -> Claim:
    file = "flcmc-synthetic/comparison.csv"
    return Claim(
        f"{row} − FedAvgS", published, "Table 8", "synthetic(0.5, 0.5)", file, row, "test/accuracy", same_corpus=True
    )


_TABLE_9 = {
    "SGD": ("FedAvg", {"FedAtt": 2, "FedPA": 5}),
    "Adam": ("FedAvgS", {"FedProxP": 2, "FedAttS": 3, "FedPAP": 6}),
}
"""Optimizer -> baseline, published gains of FLCMC's Table 9."""


def _table_9(data: str, files: str, *, same_corpus: bool) -> list[Claim]:
    """The claims on two tables of ours, `files` with an optimizer's name in it."""
    return [
        Claim(
            f"{row} − {baseline}",
            gain,
            "Table 9",
            f"{data}, {optimizer}",
            files.format(optimizer.lower()),
            row,
            "test/accuracy",
            same_corpus=same_corpus,
        )
        for optimizer, (baseline, gains) in _TABLE_9.items()
        for row, gain in gains.items()
    ]


def _lstm(row: str, suffix: str, published: float, file: str, rounds: int) -> Claim:
    data = f"MIE, LSTM, Adam, {rounds} rounds"
    return Claim(f"{row} − FedAvgS", published, "Table 10", data, file, f"{row}{suffix}", "test/accuracy")


def _chemprot(row: str, published: float, group: str, data: str, metric: str, method: str = "FedCMC") -> Claim:
    file, kind = f"fedcmc-chemprot/comparison-{group}.csv", metric.replace("_", "-")
    return Claim(
        f"{method} − FedAvg",
        published,
        "Table 2, CPR",
        f"ChemProt, {data}, {kind}",
        file,
        row,
        f"test/{metric}",
        same_corpus=True,
    )


def _fedcmc(group: str, data: str, published: float) -> list[Claim]:
    suite = "fedcmc-tuned-encoder" if "frozen" in data else "fedcmc-tuned"
    source = f"{suite}/comparison-{group}.csv", "FedCMC"
    return [
        Claim(
            "FedCMC − FedAvg",
            published,
            "Table 2, CPR",
            f"ChemProt, {data}, {metric.replace('_', '-')}",
            *source,
            f"test/{metric}",
            same_corpus=True,
        )
        for metric in ("macro_f1", "micro_f1")
    ]


_MIRGENE = {0.2: (2.87, 6.51, 3.64), 1.0: (3.83, 7.13, 3.30)}
"""C -> published Lazy MIL − ONE, Lazy MIL − NONE, ONE − NONE on MIRGENE, which is biomedical and binary as CDR is."""
_NYT10 = (4.7, 9.02, 4.32), "NYT10, C = 0.1"


def _bags(
    gains: tuple,
    source: str,
    data: str,
    file: str,
    row: str = "Lazy MIL",
    suffix: str = "",
    *,
    one: bool = True,
    made_up: bool = False,
) -> list[Claim]:
    """Lazy MIL − ONE, Lazy MIL − NONE and, with `one`, ONE − NONE."""
    rows = [("Lazy MIL − ONE", row, "ONE"), ("Lazy MIL − NONE", row, "")]
    claims = [
        Claim(name, gain, source, f"{data}{suffix}", file, method, "test/auc", baseline, made_up=made_up)
        for (name, method, baseline), gain in zip(rows, gains, strict=False)
    ]
    return claims + [Claim("ONE − NONE", gains[2], source, data, file, "ONE", "test/auc", made_up=made_up)] * one


def _cdr(clients: int, share: float) -> list[Claim]:
    file = f"lazy-mil-cdr/comparison-k-{clients}-c-{share}.csv"
    return _bags(_MIRGENE[share], f"MIRGENE, C = {share}", f"CDR, K = {clients}, C = {share}", file)


def _cdr_steps() -> list[Claim]:
    source = f"MIRGENE, C = {0.2}", "CDR, K = 10, C = 0.2, 20 rounds", "lazy-mil-cdr-steps/comparison-k-10-c-0.2.csv"
    equal_rounds = _bags(_MIRGENE[0.2], *source, suffix=", equal rounds")
    return (
        equal_rounds[:2]
        + _bags(_MIRGENE[0.2], *source, "Lazy MIL with NONE's steps", ", equal steps", one=False)
        + equal_rounds[2:]
    )


def _planted(noise: str, group: str, *rows: tuple[str, str]) -> list[Claim]:
    source = *_NYT10, f"made up, noise {noise}", f"lazy-mil-planted/comparison-noise-{group}.csv"
    return [
        c
        for n, (row, suffix) in enumerate(rows)
        for c in _bags(*source, row, suffix, one=n == 0 and "rounds" not in group, made_up=True)
    ]


def _long_tail() -> list[Claim]:
    source = (
        *_NYT10,
        "bags as long as NYT10's",
        "lazy-mil-long-tail/comparison-each-pair-has-a-true-sentence-noise-0.8.csv",
    )
    return _bags(*source, suffix=", equal rounds", made_up=True) + _bags(
        *source, "Lazy MIL with NONE's steps", ", equal steps", one=False, made_up=True
    )


_UPPER_LAYERS, _WHOLE_ENCODER = "alpha-0.05-the-upper-two-layers-are-trained", "alpha-0.05-the-whole-encoder-is-trained"
_IMCS_V2, _MIE = "flcmc-imcs-v2/comparison-symptoms-{}.csv", "flcmc-imcs-lr/comparison-{}.csv"
"""Of an optimizer."""
_LSTM, _LSTM_100 = "flcmc-imcs-lstm/comparison-table-10-adam.csv", "flcmc-imcs/comparison-table-10-lstm-adam.csv"
_EQUAL_ROUNDS, _EQUAL_STEPS = ("Lazy MIL", ", equal rounds"), ("Lazy MIL with NONE's steps", ", equal steps")

CLAIMS: dict[tuple[str, str], list[Claim]] = {
    ("FLCMC", "flcmc"): [
        *(_synthetic(row, gain) for row, gain in (("FedAttS", 7), ("FedPAP", 7), ("FedProxP", 2), ("FedAvgT", -1))),
        *_table_9("IMCS-V2, word vectors", _IMCS_V2, same_corpus=True),
        *_table_9("MIE, logistic regression", _MIE, same_corpus=False),
        *(
            _lstm(row, suffix, gain, file, rounds)
            for file, suffix, rounds in ((_LSTM, "", 50), (_LSTM_100, " (LSTM)", 100))
            for row, gain in (("FedProxP", 3.84), ("FedAttS", 3.84), ("FedPAP", 4.61))
        ),
    ],
    ("FedCMC", "fedcmc"): [
        *_fedcmc("alpha-0.05-k-10-plain-partition-by-size", "PCNN, α = 0.05", 8.39),
        *_fedcmc("alpha-0.5-k-10-plain-partition-by-size", "PCNN, α = 0.5", 7.81),
        *_fedcmc("alpha-0.05-k-10-moon-s-partition-by-size", "PCNN, α = 0.05, MOON's partition", 8.39),
        *_fedcmc("alpha-0.05-k-10-plain-partition-alike", "PCNN, α = 0.05, clients count alike", 8.39),
        *_fedcmc("alpha-0.05-k-50-plain-partition-by-size", "PCNN, α = 0.05, K = 50", 12.2),
        *_fedcmc("alpha-0.05-k-10-plain-partition-by-size", "frozen encoder, α = 0.05", 8.39),
        *_fedcmc("alpha-0.5-k-10-plain-partition-by-size", "frozen encoder, α = 0.5", 7.81),
        *(
            Claim(f"FedCMC − {other}", gain, f"Table 3, CPR, {group}", f"ChemProt, PCNN, 500 sentences, {group}, {metric.replace('_', '-')}", f"fedcmc-500/comparison-{group}.csv", "FedCMC", f"test/{metric}", baseline=other, same_corpus=True)
            for group, other, gain in (("unbalanced", "FedRS", 9.3), ("unbalanced", "FedLC", 7.8), ("balanced", "FedRS", 0.3), ("balanced", "FedLC", 1.4))
            for metric in ("macro_f1", "micro_f1")
        ),
        *(
            claim
            for metric in ("micro_f1", "macro_f1")
            for claim in (
                _chemprot("FedCMC", 8.39, _UPPER_LAYERS, "α = 0.05, upper two layers", metric),
                _chemprot("FedCMC (whole)", 8.39, _WHOLE_ENCODER, "α = 0.05, whole encoder", metric),
                _chemprot("FedCMC (uniform)", 8.39, "alpha-0.05-every-client-counts-one", "α = 0.05, clients count alike", metric),
                _chemprot("FedRS", 2.81, _UPPER_LAYERS, "α = 0.05, upper two layers", metric, "FedRS"),
                _chemprot("FedLC", 4.09, _UPPER_LAYERS, "α = 0.05, upper two layers", metric, "FedLC"),
                _chemprot("FedCMC (α=0.5)", 7.81, _UPPER_LAYERS.replace("0.05", "0.5"), "α = 0.5, upper two layers", metric),
            )
        ),
        *(
            Claim("FedCMC − FedAvg", gain, "Table 2, PGR", f"PGR, α = {alpha}", f"fedcmc-pgr/comparison-alpha-{alpha}-the-upper-two-layers-are-trained.csv", row, "test/micro_f1", same_corpus=True)
            for alpha, row, gain in (("0.05", "FedCMC", 4.04), ("0.5", "FedCMC (α=0.5)", 3.12))
        ),
    ],
    ("FedED", "feded"): [
        Claim("FedED − FedAvg", 3.38, "Table 3, GAD", "GAD, frozen encoder", "feded-gad/comparison.csv", "FedED", "test/micro_f1", same_corpus=True),
        Claim("FedAtt − FedAvg", 1.37, "Table 3, GAD", "GAD, frozen encoder", "feded-gad/comparison.csv", "FedAtt", "test/micro_f1", same_corpus=True),
        Claim("FedED − FedAvg", 3.22, "Table 4, EU-ADR", "EU-ADR, frozen encoder", "feded-euadr/comparison.csv", "FedED", "test/micro_f1", same_corpus=True),
        Claim("FedAtt − FedAvg", 1.89, "Table 4, EU-ADR", "EU-ADR, frozen encoder", "feded-euadr/comparison.csv", "FedAtt", "test/micro_f1", same_corpus=True),
        Claim("FedED − FedAvg", 2.54, "i2b2; GAD 3.38, EU-ADR 3.22", "ADE, tuned on dev", "feded-tuned/comparison.csv", "FedED", "test/micro_f1"),
        Claim("FedED − FedAvg", 2.54, "i2b2; GAD 3.38, EU-ADR 3.22", "ADE, all rates 1e-3", "feded-ade/comparison.csv", "FedED", "test/micro_f1"),
        Claim("FedAtt − FedAvg", 0.31, "i2b2; GAD 1.37, EU-ADR 1.89", "ADE", "feded-ade/comparison.csv", "FedAtt", "test/micro_f1"),
    ],
    ("FedDS, Lazy MIL", "fedds"): [
        *(claim for clients in (10, 50) for share in (0.2, 1.0) for claim in _cdr(clients, share)),
        *_cdr_steps(),
        *_planted("0.8", "0.8", _EQUAL_ROUNDS, _EQUAL_STEPS),
        *_planted("0.8, 40 rounds", "0.8-40-rounds", ("Lazy MIL", "")),
        *_planted("0.65", "0.65", _EQUAL_STEPS),
        *_long_tail(),
    ],
    ("FedLCC", "fedlcc"): [
        Claim(f"{row} − FedAvg", gain, f"Table 3, CDR, {name}", f"CDR, {name}", f"fedlcc-cdr/comparison-{name.lower()}.csv", row, "test/f1", same_corpus=True)
        for name, gains in (("non-IID", (0.55, 2.59)), ("IID", (1.16, 3.11)))
        for row, gain in zip(("FedAtt", "FedLCC"), gains, strict=True)
    ]
    + [
        Claim(f"{row} − FedAvg", gain, "Table 3, CDR, non-IID", "CDR, non-IID, 30 rounds, 100 documents", "fedlcc-30-rounds/comparison-cdr-non-iid.csv", row, "test/f1", same_corpus=True)
        for row, gain in (("FedAtt", 0.55), ("FedLCC", 2.59), ("Centralised", 5.09))
    ]
    + [Claim("FedLCC − FedAvg", 0.92, "Table 4, CHR, non-IID", "CHR, non-IID, 30 rounds, 40 documents", "fedlcc-30-rounds/comparison-chr-non-iid.csv", "FedLCC", "test/f1", same_corpus=True)],
}  # fmt: skip


# What was measured


@functools.cache
def _table(file: str) -> list[dict[str, str]]:
    with open(RESULTS / file, newline="", encoding="utf-8") as text:
        return list(csv.DictReader(text))


@functools.cache
def _values(folder: str) -> dict[str, Table]:
    """File stem -> table of a comparison with values by seed; empty for an older one."""
    if not (RESULTS / folder / VALUES).exists():
        return {}
    return {stem_of(table): table for table in tables_of(*read_values(RESULTS / folder))}


def measured(claim: Claim) -> Iterator[Line]:
    """A line for each kind of values that the table has."""
    folder, _, name = claim.file.partition("/")
    table = _values(folder).get(name.removesuffix(".csv"))
    yield from _of_means(claim) if table is None else _of_seeds(claim, table)


def _of_seeds(claim: Claim, table: Table) -> Iterator[Line]:
    baseline = claim.baseline or table.rows[0].algorithm
    compared = [row for row in table.rows if row.compared]
    pooled = [row for row in table.rows if row.role == "pooled"]
    for which, name in (("best", first_values(table.rows, claim.metric)), ("final", "final")):
        difference = table.difference(claim.row, baseline, claim.metric, which)
        if difference is not None:
            room = table.room(baseline, claim.metric, which)
            tuned = "yes" if pooled and pooled_tuning(pooled, compared) == "tuned like the methods" else "no"
            judged = table.row(claim.row).compared
            line = Line(claim, name, difference, room, tuned if pooled else "–", PER_SEED, judged)
            yield replace(line, claim=replace(claim, made_up=claim.made_up or table.made_up))


def _of_means(claim: Claim) -> Iterator[Line]:
    rows = {row["algorithm"]: row for row in _table(claim.file)}
    baseline = claim.baseline or next(iter(rows))
    ceilings = [
        row for name, row in rows.items() if name.startswith(("pooled", "Centralised", "oracle")) and name != baseline
    ]
    pooled = [row for row in ceilings if not row["algorithm"].startswith("oracle")]
    tuned = (
        "–"
        if not pooled
        else "yes"
        if pooled[0].get("tried") and pooled[0]["tried"] == rows[claim.row].get("tried")
        else "no"
    )
    for values in ("best", "chosen", "final"):
        mean = f"{claim.metric}_{values}_mean"
        if not rows[claim.row].get(mean):
            continue
        base = float(rows[baseline][mean])
        room = max((float(row[mean]) - base for row in ceilings if row.get(mean)), default=None)
        difference, basis = _of_row(rows[claim.row], baseline == next(iter(rows)), claim.metric, values, base)
        yield Line(
            claim,
            values,
            difference,
            room,
            tuned,
            basis,
            basis != NOT_RECOMPUTED and not claim.row.startswith("Centralised"),
        )


def _of_row(row: dict[str, str], to_first: bool, metric: str, values: str, base: float) -> tuple[Difference, str]:
    """The difference of a row of an older table to a row with the mean `base`, and what it rests on."""
    prefix = f"{metric}_{values}_difference"
    if not to_first or not row[f"{prefix}_mean"]:
        return Difference(
            float(row[f"{metric}_{values}_mean"]) - base, None, 0, int(row[f"{metric}_seeds"])
        ), NOT_RECOMPUTED
    mean, std = (float(row[f"{prefix}_{key}"]) for key in ("mean", "std"))
    return difference_of(mean, 0.0 if math.isclose(std, 0, abs_tol=1e-11) else std, int(row[f"{prefix}_n"])), FROM_MEANS


def lines() -> dict[tuple[str, str], list[Line]]:
    """Page of a paper -> its lines; the verdicts are adjusted over all of them."""
    made = {page: [line for claim in claims for line in measured(claim)] for page, claims in CLAIMS.items()}
    judged = [line for of_page in made.values() for line in of_page if line.judged]
    contrasts = [
        Contrast(line.difference, line.claim.published / 100, line.room, made_up=line.claim.made_up) for line in judged
    ]
    adjusted = {id(line): word for line, (_, word) in zip(judged, judge_all(contrasts), strict=True)}
    alone = {id(line): judge_all([contrast])[0][1] for line, contrast in zip(judged, contrasts, strict=True)}
    return {
        page: [replace(line, verdict=adjusted.get(id(line), "–"), alone=alone.get(id(line), "–")) for line in of_page]
        for page, of_page in made.items()
    }


# The page


def _signed(value: float, digits: int = 1) -> str:
    text = f"{value:+.{digits}f}"
    text = text.rstrip("0").rstrip(".") if digits > 1 else text
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")


def _points(difference: Difference, factor: float = 100) -> str:
    interval = (
        ""
        if difference.low is None
        else f" ({_signed(factor * difference.low)} to {_signed(factor * difference.high)})"
    )
    return f"{_signed(factor * difference.mean)}{interval}"


def ours(file: str, row: str, values: str = "final", *, baseline: str = "", metric: str = "test/accuracy") -> str:
    """The difference of two rows in points, with its interval where it can be recomputed."""
    found = [line for line in measured(Claim("", 0, "", "", file, row, metric, baseline)) if line.values == values]
    (line,) = found
    return _points(line.difference) + (", no interval: no per-seed values" if line.basis == NOT_RECOMPUTED else "")


def level(file: str, row: str, values: str = "chosen", metric: str = "test/f1") -> str:
    """A row's mean in percent."""
    (mean,) = (r[f"{metric}_{values}_mean"] for r in _table(file) if r["algorithm"] == row)
    return f"{100 * float(mean):.1f}"


def kilobytes(file: str, row: str) -> str:
    """What a client sends in a round."""
    (sent,) = (r["bytes_up"] for r in _table(file) if r["algorithm"] == row)
    return f"{float(sent) / 1e3:.1f} kB"


def rounds(file: str, row: str, target: str) -> list[int]:
    """By seed, the round in which a row reached a target in accuracy."""
    (reached,) = (r[f"test/accuracy_rounds_to_{target}"] for r in _table(file) if r["algorithm"] == row)
    return [int(number) for number in reached.split(";")]


def _between(numbers: list[int]) -> str:
    return str(min(numbers)) if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"


_SYNTHETIC, _SWEEP = "flcmc-synthetic/comparison.csv", "flcmc-sweeps/comparison-sgd-{}.csv"
_FEDED_B2 = "feded-ade-rounds/comparison-c-0.1-b-2-e-1.csv"


def notes() -> dict[str, str]:
    """Page of a paper -> what a reader of its lines has to know."""
    lcc = "fedlcc-30-rounds/comparison-cdr-non-iid.csv"
    return {
        "flcmc": f"The gains are mostly not attention's: the uniform mean with the same server step has {ours(_SYNTHETIC, 'uniform mean, λ=4', 'best')} of FedAttS' {ours(_SYNTHETIC, 'FedAttS', 'best')} on the synthetic data; with SGD on MIE it has {ours(_MIE.format('sgd'), 'SGD, uniform mean, λ=4', 'best')} for FedAtt's {ours(_MIE.format('sgd'), 'FedAtt', 'best')}; with Adam and PAdam {ours(_MIE.format('adam'), 'Adam, uniform mean, PAdam, λ=9')} for FedPAP's {ours(_MIE.format('adam'), 'FedPAP')} in the last rounds. On IMCS-V2, the paper's own corpus, FedPAP has {ours(_IMCS_V2.format('adam'), 'FedPAP', 'best')} on FedAvgS, and {ours(_IMCS_V2.format('adam'), 'FedPAP', 'best', baseline='uniform mean, PAdam, λ=9')} on the uniform mean with PAdam and the same λ. MIE tests on about 270 sentences a seed: one sentence is 0.4 points. With the LSTM and 50 rounds \"final\" is one evaluated round (50). No option was tuned.",
        "fedcmc": "The PCNN and the frozen pretrained encoder have eight seeds, the trained encoder two, which are too few to decide. The paper's encoder (DistilBERT) was not trained. With eight seeds the rates were chosen on dev, and the test set is the whole official dev split. The paper does not say which F1 it prints, so both are here.",
        "feded": f"Clinical BERT was not trained: on GAD and EU-ADR MiniLM-L6 is frozen and a dense layer above it is trained; on ADE, which is not the paper's corpus, it is a PCNN, judged by the smallest of the three published gains. The pooled row leaves no room for FedED's gain: it is {ours('feded-gad/comparison.csv', 'Centralised, D_v included', 'chosen', metric='test/micro_f1')} on FedAvg on GAD and {ours('feded-tuned/comparison.csv', 'pooled', 'chosen', metric='test/micro_f1')} on ADE. On EU-ADR no row is above naming every pair associated, whose F1 of 84.9 (mean over BioBERT's ten folds) is above the 83.87 that the paper prints for FedED. FedAvg with a plain pass over the server's examples D_v, which the paper does not have, is {ours('feded-gad/comparison.csv', 'FedAvg and the same pass over D_v', 'chosen', metric='test/micro_f1')} on FedAvg in F1 on GAD, {ours('feded-tuned/comparison.csv', 'FedAvg and the same pass over D_v', 'chosen', metric='test/micro_f1')} on ADE.",
        "fedds": "CDR is not the paper's corpus; it is judged by the published gains on MIRGENE, which is biomedical and binary, too. The made-up corpora were chosen for having a gap between NONE and true sentences; a gain there says that the effect exists, not that it is found in real data. Rates were not searched. At equal rounds Lazy MIL takes fewer local steps than the others. The pooled row trains on noisy labels, so a method that removes noise may pass it: its room is a soft bound.",
        "fedlcc": f"CDR: with eight rounds there are only two seeds; with 30 rounds and one trained layer FedLCC is {ours(lcc, 'FedLCC', 'chosen', baseline='Unweighted mean', metric='test/f1')} on the unweighted mean, which is FedLCC without its contrast, in the chosen round. Documents and clients are the same in all seeds, so intervals are over initial weights and the order of training. The paper has 50 rounds, all layers, 500 documents and SciBERT. CHR: the centralised model ({level('fedlcc-30-rounds/comparison-chr-non-iid.csv', 'Centralised')}) is below the row that predicts a relation for every pair ({level('fedlcc-30-rounds/comparison-chr-non-iid.csv', 'trivial: every pair positive')}), so F1 hardly separates methods. Rows of pooled data have no verdict.",
    }


def others() -> list[tuple[str, str, str]]:
    """(paper and place, published, here) of what is not a published gain in a score."""
    half, mie = _SWEEP.format("0.5-0.5"), "flcmc-imcs-sweeps/comparison-sgd-step.csv"
    pap = "flcmc-imcs-sweeps/comparison-adam-mu-with-step-9.csv"
    feded, fedavg, passed, alone = (
        rounds(_FEDED_B2, row, "0.75") for row in ("FedED", "FedAvg", "FedAvg and the same pass over D_v", "D_v alone")
    )
    fewer = paired_difference(fedavg, feded)
    return [
        ("FLCMC, Table 8", "FedPAP > FedAttS > FedProxP > FedAvgS", f"the same order of best accuracies, 10 seeds; the uniform mean with FedAttS' server step: {ours(_SYNTHETIC, 'uniform mean, λ=4', 'best')} on FedAvgS"),
        ("FLCMC, Figure 8", "FedAtt rises from λ = 1 to 4 and not at 5", f"round 30, 3 seeds, synthetic(0.5, 0.5): 4 less 1 {ours(half, 'FedAtt, λ=4', baseline='FedAtt, λ=1')}; 5 less 4 {ours(half, 'FedAtt, λ=5', baseline='FedAtt, λ=4')}; the uniform mean, 4 less 1 {ours(half, 'uniform mean, λ=4', baseline='uniform mean, λ=1')}"),
        ("FLCMC, Figure 11", "FedPA is best at μ = 0.03", f"round 30 of 100, 3 seeds: 0.03 less 0.001 {ours(half, 'FedPA, λ=4, μ=0.03', baseline='FedPA, λ=4, μ=0.001')}"),
        ("FLCMC, Figure 13", "FedProx is worst on IID data, FedPA best on the others", f"round 30 of 100, 3 seeds: FedProx − FedAvg on IID data {ours(_SWEEP.format('iid'), 'FedProx, μ=1')}; FedPA − FedAvg {'; '.join(f'({name}) ' + ours(_SWEEP.format(file), 'FedPA, λ=4, μ=0.03') for name, file in (('0, 0', '0-0'), ('0.5, 0.5', '0.5-0.5'), ('1, 1', '1-1')))}. FedAvg has not converged then: its distance to FedAtt falls until round 200"),
        ("FLCMC, Figure 14", "Adam's forms converge more steadily (no numbers)", "open: our sweeps end in round 30 of the paper's 100, without FedAvgT; SGD and Adam are in two tables of means, so there is no interval"),
        ("FLCMC, Figure 16", "FedPAP with λ = 9 is best at μ = 0.03 (no numbers)", f"MIE, round 100, 5 seeds: 1 less 0.03 {ours(pap, 'FedPAP, μ=1', baseline='FedPAP, μ=0.03')}; the largest value tried is best"),
        ("FLCMC, Figure 17", "FedAtt is best at λ = 4 (no numbers)", f"MIE, round 100, 5 seeds: 9 less 4 {ours(mie, 'FedAtt, λ=9', baseline='FedAtt, λ=4')}; the largest value tried is best; the uniform mean the same, {ours(mie, 'uniform mean, λ=9', baseline='uniform mean, λ=4')}"),
        ("FLCMC, Figure 18", "FedAtt at λ = 4 hardly depends on the seed (no numbers)", f"MIE, round 100, 5 seeds: FedAtt − FedAvg {ours(mie, 'FedAtt, λ=4')}"),
        ("FLCMC, Figure 20", "LSTM with SGD: all between 55 and 65 % (no numbers)", f"nothing learned in 50 rounds on MIE, 5 seeds: FedAvg {level('flcmc-imcs-lstm/comparison-figure-20-sgd.csv', 'FedAvg', 'final', 'test/accuracy')}, the largest class {level('flcmc-imcs-lstm/comparison-figure-20-sgd.csv', 'trivial: largest class', 'final', 'test/accuracy')}, pooled {level('flcmc-imcs-lstm/comparison-figure-20-sgd.csv', 'pooled', 'final', 'test/accuracy')}; no test of the claim"),
        ("FedED", "42 KB are sent where FedAvg sends 423 MB", f"{kilobytes('feded-ade/comparison.csv', 'FedED')} against {kilobytes('feded-ade/comparison.csv', 'FedAvg')} (PCNN): it does not grow with the model"),
        ("FedED, Table 8", "fewer rounds to a target than FedAvg: 9 for 27 at B = 2, E = 1", f"ADE, an accuracy of 0.75, 3 seeds: {_between(feded)} for {_between(fedavg)}, fewer by {_points(fewer, 1)}; FedAvg with the same pass over D_v needs {_between(passed)}, D_v without any client {_between(alone)}"),
        ("FedLCC", "a centralised model has 68.1", f"{level('fedlcc-cdr-central/comparison.csv', 'Centralised with 500 documents')} with a smaller encoder"),
    ]  # fmt: skip


def _introduction(made: dict[tuple[str, str], list[Line]]) -> str:
    every = [(page, line) for page, of_page in made.items() for line in of_page]
    tested: dict[tuple, bool] = {}
    for page, line in every:
        gain = page, line.claim.comparison, line.claim.published, line.claim.source
        tested[gain] = tested.get(gain, False) or line.claim.same_corpus
    without = Counter(line.verdict for _, line in every)["–"]
    words, alone = (_counted([getattr(line, name) for _, line in every]) for name in ("verdict", "alone"))
    bases = Counter(line.basis for _, line in every)
    smaller = sum(
        line.alone.endswith("gain") and 100 * line.difference.high < line.claim.published for _, line in every
    )
    return f"""# Published gains that were tested: {len(tested)} of about {PUBLISHED_COMPARISONS}

The five papers print about {PUBLISHED_COMPARISONS} comparisons with a baseline. {len(tested)} of them are tested here, {sum(tested.values())} on a corpus of the paper (mostly a part
of it), the others on other or on made-up data. Only FLCMC's Table 8 and, on a part of its dialogues, Table 9 (nine comparisons) are in the
paper's own regime; none of the papers' pretrained encoders was trained. A gain that does not show here may show there.

Made by `python scripts/claims.py > docs/claims.md` from the tables in [results](results/README.md). Differences are in points, paired
by seed, with 95 % t-intervals over the seeds, each for one comparison. They do not contain the sampling of the test set. "Could show" is the
smallest true difference that a paired t-test with this spread and number of seeds detects with probability 80 %. "Room" is what the best
pooled or oracle row has on the baseline; "pooled tuned": whether the pooled row had as many settings tried as the methods ("–": there is
no pooled row). The words are those of all tables:

- **gain**, **loss**: the paired t-test's p is below 0.05, adjusted by Holm over all lines of this page.
- **no room**: neither, and the room is smaller than the published gain, so that it could hardly show.
- **does not show**: none of these; the interval contains zero or lies below it, and the published value is excluded, also after Holm's
  adjustment over this page. A smaller gain is still possible.
- **open**: anything else, and everything with fewer than {LEAST_SEEDS} seeds.
- **made up**: before a verdict on data that were made up for the comparison.

Of {len(every)} lines {without} have no verdict; the others: {words}. Most tables have three to five seeds, with which hardly a
difference is left after an adjustment over {len(every) - without} lines. "As one line" is the verdict without any adjustment: {alone}.
Of these gains {smaller} end below the published value. One line in twenty misses the true value by chance. "Best" is the best over the rounds, which papers
print and which is selected on the test data; "chosen" is the round selected on dev; "final" is the mean over the last tenth of the rounds.

What a line rests on: "{PER_SEED}": values.csv of the comparison, {bases[PER_SEED]} lines. "{FROM_MEANS}": an older table, which has the mean, deviation
and number of the differences to its first row, {bases[FROM_MEANS]} lines. "{NOT_RECOMPUTED}": an older table without this difference;
its mean is that of the rows' means, and there is no interval and no verdict, {bases[NOT_RECOMPUTED]} lines. `python -m tff_re.run tables FOLDER`
makes the tables of a comparison with values.csv anew.
"""


def _counted(words: list[str]) -> str:
    """`gain 1, open 2`, the most frequent first."""
    counts = Counter(word for word in words if word != "–")
    return ", ".join(f"{word} {count}" for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _cells(line: Line) -> str:
    claim, difference = line.claim, line.difference
    could = "–" if difference.detectable is None else f"{100 * difference.detectable:.1f}"
    room = "–" if line.room is None else _signed(100 * line.room)
    cells = (
        *(claim.comparison, f"{_signed(claim.published, 2)} ({claim.source})"),
        *(f"[{claim.data}](results/{claim.file.partition('/')[0]}/comparison.md)", line.values, difference.n),
        *(_points(difference), could, room, line.tuned, line.basis, line.alone, line.verdict),
    )
    return f"| {' | '.join(map(str, cells))} |"


def page() -> str:
    """The text of docs/claims.md."""
    made, said = lines(), notes()
    paragraphs = []
    for (paper, name), of_page in made.items():
        header = "| claim | published | our data | values | seeds | ours, 95 % interval | could show | room | pooled tuned | from | as one line | verdict |"
        paragraphs += [
            f"\n## {paper}\n",
            f"Equations, differences and commands: [{paper}](papers/{name}.md). {said[name]}\n",
            *(
                header,
                "| --- | --: | --- | --- | --: | --: | --: | --: | --- | --- | --- | --- |",
                *map(_cells, of_page),
            ),
        ]
    paragraphs += [
        "\n## Claims that are not differences of scores\n",
        "Differences in points with 95 % intervals where they can be recomputed; none is adjusted.\n",
        *("| paper | published | here |", "| --- | --- | --- |"),
        *(f"| {' | '.join(row)} |" for row in others()),
    ]
    return _introduction(made) + "\n".join(paragraphs) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
