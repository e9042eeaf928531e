# ruff: noqa: E501
"""Makes docs/claims.md from the files in docs/results: python scripts/claims.py > docs/claims.md

Every difference and interval is computed from the values by seed (values.csv) of a comparison.
"""

from __future__ import annotations

import csv
import functools
import math
import operator
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from scripts.published_gains import CLAIMS, IMCS_V2, IMCS_V2_WORDS, MIE, Claim  # noqa: E402
from tff_re.comparison.rows import Table  # noqa: E402
from tff_re.comparison.statistics import Difference, paired_difference  # noqa: E402
from tff_re.comparison.tables import first_values, pooled_tuning  # noqa: E402
from tff_re.comparison.values import VALUES, read_values, tables_of  # noqa: E402
from tff_re.comparison.verdicts import LEAST_SEEDS, Contrast, judge_all  # noqa: E402
from tff_re.comparison.write_tables import stem_of  # noqa: E402

RESULTS = ROOT / "docs" / "results"

PUBLISHED_COMPARISONS = 123
"""With a baseline, in the tables of the five papers; counted by hand."""


@dataclass(frozen=True)
class Line:
    """A claim and what was measured, for one kind of values; differences as fractions.

    Attributes:
      claim: that is tested.
      values: `best`, `chosen` or `final`.
      room: the best pooled or oracle row less the baseline.
      tuned: whether the pooled row was tuned like the methods, in words.
      judged: whether it may have a verdict.
      verdict: adjusted over all lines; '–': none.
      alone: what it would be as the only line, without an adjustment.
    """

    claim: Claim
    values: str
    difference: Difference
    room: float | None
    tuned: str
    judged: bool = True
    verdict: str = "–"
    alone: str = "–"


# What was measured


@functools.cache
def _table(file: str) -> list[dict[str, str]]:
    with open(RESULTS / file, newline="", encoding="utf-8") as text:
        return list(csv.DictReader(text))


@functools.cache
def _values(folder: str) -> dict[str, Table]:
    """File stem -> table of a comparison, made of its values by seed."""
    return {stem_of(table): table for table in tables_of(*read_values(RESULTS / folder))}


def _table_by_seed(file: str) -> Table:
    folder, _, name = file.partition("/")
    return _values(folder)[name.removesuffix(".csv")]


def measured(claim: Claim) -> Iterator[Line]:
    """A line for each kind of values that the table has."""
    table = _table_by_seed(claim.file)
    baseline = claim.baseline or table.rows[0].algorithm
    compared = [row for row in table.rows if row.compared]
    pooled = [row for row in table.rows if row.role == "pooled"]
    for which, name in (("best", first_values(table.rows, claim.metric)), ("final", "final")):
        difference = table.difference(claim.row, baseline, claim.metric, which)
        if difference is not None:
            room = table.room(baseline, claim.metric, which)
            tuned = "yes" if pooled and pooled_tuning(pooled, compared) == "tuned like the methods" else "no"
            judged = table.row(claim.row).compared
            line = Line(claim, name, difference, room, tuned if pooled else "–", judged)
            yield replace(line, claim=replace(claim, made_up=claim.made_up or table.made_up))


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
    return text[1:] if float(text) == 0 else text.replace("-", "−")


def _points(difference: Difference, factor: float = 100, digits: int = 1) -> str:
    def shown(value: float) -> str:
        return _signed(factor * value, digits)

    interval = "" if difference.low is None else f" ({shown(difference.low)} to {shown(difference.high)})"
    return f"{shown(difference.mean)}{interval}"


def _line(file: str, row: str, values: str, baseline: str, metric: str) -> Line:
    (line,) = (x for x in measured(Claim("", 0, "", "", file, row, metric, baseline)) if x.values == values)
    return line


def ours(file: str, row: str, values: str = "final", *, baseline: str = "", metric: str = "test/accuracy") -> str:
    """The difference of two rows in points, with its interval."""
    return _points(_line(file, row, values, baseline, metric).difference)


def lowest_loss(file: str, row: str) -> str:
    """The difference of two rows' lowest training losses, in nats, with its interval."""
    return _points(_line(file, row, "best", "", "train/loss").difference, 1, 2)


def _cell(file: str, row: str, column: str) -> str:
    (value,) = (r[column] for r in _table(file) if r["algorithm"] == row)
    return value


def level(file: str, row: str, values: str = "chosen", metric: str = "test/f1") -> str:
    """A row's mean in percent, a loss in nats."""
    value = float(_cell(file, row, f"{metric}_{values}_mean"))
    return f"{value:.2f}" if metric.endswith("loss") else f"{100 * value:.1f}"


def lowest_and_highest(file: str, row: str) -> str:
    """A row's final accuracies over the seeds, in percent."""
    values = _table_by_seed(file).row(row).metrics["test/accuracy"].final.values()
    return f"{100 * min(values):.1f} to {100 * max(values):.1f}"


def highest(file: str, start: str) -> str:
    """How the name of the row with the highest mean of final accuracies goes on, of the rows that begin with `start`."""
    rows = [r["algorithm"] for r in _table(file) if r["algorithm"].startswith(start)]
    best = max(rows, key=lambda row: float(_cell(file, row, "test/accuracy_final_mean")))
    return best.removeprefix(start)


def examples_tested(folder: str) -> str:
    """How many examples the runs of a comparison were tested on, from the fewest to the most."""
    return _between([int(row["test_examples"]) for row in _table(f"{folder}/{VALUES}") if row["test_examples"]])


def times_as_long(folder: str, group: str, row: str, baseline: str) -> str:
    """The seconds of a round of one row over those of another: the geometric mean over the seeds, with a 95 % interval."""
    logarithms: dict[str, dict[str, float]] = {row: {}, baseline: {}}
    for cell in _table(f"{folder}/{VALUES}"):
        if cell["metric"] == "seconds_per_round" and cell["group"] == group and cell["entry"] in logarithms:
            logarithms[cell["entry"]][cell["seed"]] = math.log(float(cell["value"]))
    seeds = sorted(logarithms[row])
    ratio = paired_difference(*([logarithms[name][seed] for seed in seeds] for name in (row, baseline)))
    return f"{math.exp(ratio.mean):.2f} ({math.exp(ratio.low):.2f} to {math.exp(ratio.high):.2f})"


def kilobytes(file: str, row: str) -> str:
    """What a client sends in a round."""
    return f"{float(_cell(file, row, 'bytes_up')) / 1e3:.1f} kB"


def rounds(file: str, row: str, column: str) -> list[float]:
    """The rounds of a column `…_rounds_to_…`, by seed; infinite for a seed that did not reach the target."""
    return [int(number) if number else math.inf for number in _cell(file, row, column).split(";")]


def rounds_by_seed(file: str, row: str, column: str) -> str:
    """The same in words, with a dash for a seed that did not reach the target."""
    return ", ".join("–" if math.isinf(number) else str(number) for number in rounds(file, row, column))


def _by_method(file: str) -> str:
    """The rounds of FedED, the methods that it is compared with and its control to an accuracy of 0.65, by fold."""
    rows = ("FedED", "FedAvg", "FedAtt", "FedAvg and the same pass over D_v")
    return ", ".join(f"{row} ({rounds_by_seed(file, row, _TO_65)})" for row in rows)


def _sooner(file: str) -> str:
    """In how many folds FedED comes to an accuracy of 0.78 in fewer rounds than FedAvg and in more, and each comes there."""
    feded, fedavg = (rounds(file, row, _TO_78) for row in ("FedED", "FedAvg"))
    fewer, more = (sum(map(compare, feded, fedavg)) for compare in (operator.lt, operator.gt))
    came = [sum(map(math.isfinite, of_row)) for of_row in (feded, fedavg)]
    return f"fewer in {fewer} folds, more in {more} (it comes there in {came[0]}, FedAvg in {came[1]})"


def _of_table_6() -> str:
    """The rounds of FedAvg and FedLCC to an F1 of 0.44 on test, by seed."""
    cells = []
    for batch, epochs in ((3, 1), (15, 1), (3, 5), (15, 5)):
        file, column = f"fedlcc-cdr-target/comparison-b-{batch}-e-{epochs}-c-1.csv", "test/f1_rounds_to_0.44"
        rows = [rounds_by_seed(file, f"{name}, B = {batch}, E = {epochs}", column) for name in ("FedAvg", "FedLCC")]
        cells.append(f"B = {batch}, E = {epochs}: FedAvg ({rows[0]}), FedLCC ({rows[1]})")
    return "; ".join(cells)


def _between(numbers: list[float]) -> str:
    return str(min(numbers)) if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"


_SYNTHETIC = "flcmc-synthetic/comparison.csv"
_SWEEP_100 = "flcmc-sweeps-100-rounds/comparison-{}.csv"
_LSTM_SGD = "flcmc-imcs-v2-lstm/comparison-symptoms-sgd.csv"
_FEDCMC_FIGURE_3, _TO_33 = "fedcmc-rounds/comparison-e-1.csv", "test/macro_f1_rounds_to_0.33"
_FEDDS_FIGURE_4 = "lazy-mil-cdr-figure-4/comparison-e-{}.csv"
_REDOCRED = "fedlcc-redocred/comparison.csv"
_FEDED_B2 = "feded-ade-rounds/comparison-c-0.1-b-2-e-1.csv"
_FEDED_EUADR, _TO_78 = "feded-euadr-rounds/comparison-c-{}.csv", "test/accuracy_rounds_to_0.78"
_FEDED_GAD, _TO_65 = "feded-gad-rounds/comparison-c-{}.csv", "test/accuracy_rounds_to_0.65"


def notes() -> dict[str, str]:
    """Page of a paper -> what a reader of its lines has to know."""
    lcc, filtered = "fedlcc-30-rounds/comparison-cdr-non-iid.csv", "fedlcc-cdr-filtered/comparison.csv"
    return {
        "flcmc": f"The gains are mostly not attention's: the uniform mean with the same server step has {ours(_SYNTHETIC, 'uniform mean, λ=4', 'best')} of FedAttS' {ours(_SYNTHETIC, 'FedAttS', 'best')} on the synthetic data; with SGD on MIE it has {ours(MIE.format('sgd'), 'SGD, uniform mean, λ=4', 'best')} for FedAtt's {ours(MIE.format('sgd'), 'FedAtt', 'best')}; with Adam and PAdam {ours(MIE.format('adam'), 'Adam, uniform mean, PAdam, λ=9')} for FedPAP's {ours(MIE.format('adam'), 'FedPAP')} in the last rounds. On IMCS-V2, the paper's own corpus, with words as input it has {ours(IMCS_V2_WORDS.format('sgd'), 'uniform mean, λ=4', 'best')} of FedAtt's {ours(IMCS_V2_WORDS.format('sgd'), 'FedAtt', 'best')}, and with PAdam {ours(IMCS_V2_WORDS.format('adam'), 'uniform mean, PAdam, λ=9', 'best')} of FedPAP's {ours(IMCS_V2_WORDS.format('adam'), 'FedPAP', 'best')}; with word vectors FedPAP has {ours(IMCS_V2.format('adam'), 'FedPAP', 'best')} on FedAvgS, and {ours(IMCS_V2.format('adam'), 'FedPAP', 'best', baseline='uniform mean, PAdam, λ=9')} on the uniform mean with PAdam and the same λ. MIE tests on {examples_tested('flcmc-imcs-lr')} sentences a seed. With the LSTM and 50 rounds \"final\" is one evaluated round (50), in which the sign of FedAttS' difference changed from one run of the same seeds to the next. No option was tuned.",
        "fedcmc": "The PCNN and the frozen pretrained encoder have eight seeds, the trained encoder (MiniLM-L6) three, which are too few to decide. The paper's encoder (DistilBERT) was not trained. The rates were chosen on dev, and the test set is the whole official dev split of ChemProt, or a fifth of PGR's abstracts. On PGR at α = 0.05 models name one class for nearly all pairs, so that its lines say nothing. The paper does not say which F1 it prints, so both are here.",
        "feded": f"Clinical BERT was not trained: on GAD and EU-ADR MiniLM-L6 is frozen and a dense layer above it is trained, on EU-ADR all of it in four further lines; on ADE, which is not the paper's corpus, it is a PCNN, judged by the smallest of the three published gains. The pooled row leaves no room for FedED's gain: it is {ours('feded-gad/comparison.csv', 'Centralised, D_v included', 'chosen', metric='test/micro_f1')} on FedAvg on GAD and {ours('feded-tuned/comparison.csv', 'pooled', 'chosen', metric='test/micro_f1')} on ADE. On EU-ADR no row is above naming every pair associated, whose F1 of {level('feded-euadr/comparison.csv', 'trivial: every pair positive', metric='test/micro_f1')} (mean over BioBERT's ten folds) is above the 83.87 that the paper prints for FedED. FedAvg with a plain pass over the server's examples D_v, which the paper does not have, is {ours('feded-gad/comparison.csv', 'FedAvg and the same pass over D_v', 'chosen', metric='test/micro_f1')} on FedAvg in F1 on GAD, {ours('feded-tuned/comparison.csv', 'FedAvg and the same pass over D_v', 'chosen', metric='test/micro_f1')} on ADE.",
        "fedds": "CDR is not the paper's corpus; it is judged by the published gains on MIRGENE, which is biomedical and binary, too. The made-up corpora were chosen for having a gap between NONE and true sentences; a gain there says that the effect exists, not that it is found in real data. Settings were searched only in the lines with SGD. At equal rounds Lazy MIL takes fewer local steps than the others. The pooled row trains on noisy labels, so a method that removes noise may pass it: its room is a soft bound.",
        "fedlcc": f"CDR: over 30 rounds with one trained layer, non-IID, FedLCC is {ours(lcc, 'FedLCC', 'chosen', baseline='Unweighted mean', metric='test/f1')} on the unweighted mean, which is FedLCC without its contrast, in the chosen round, and {ours(filtered, 'FedLCC', 'chosen', baseline='Unweighted mean', metric='test/f1')} with hypernyms left out, which turns the sign of its difference to FedAvg. In these two tables documents and clients are the same in all seeds, so intervals are over initial weights and the order of training; with IID clients each seed has its own. The paper has 50 rounds, all layers, 500 documents and SciBERT. CHR: the centralised model ({level('fedlcc-30-rounds/comparison-chr-non-iid.csv', 'Centralised')}) is below the row that predicts a relation for every pair ({level('fedlcc-30-rounds/comparison-chr-non-iid.csv', 'trivial: every pair positive')}), so F1 hardly separates methods. On no corpus are the federated rows better than a rule that reads no text (docs/results/fedlcc.md). CDR with IID clients and Re-DocRED: all clients have as many documents, so that FedAvg is the unweighted mean, too; on Re-DocRED FedAvg has an F1 of {level(_REDOCRED, 'FedAvg')}, the paper 51.95, and a rule that knows only the types of a pair {level(_REDOCRED, 'trivial: by the types of a pair, from dev')}. Rows of pooled data have no verdict.",
    }


def others() -> list[tuple[str, str, str]]:
    """(paper and place, published, here) of what is not a published gain in a score."""
    half, step = "flcmc-sweeps/comparison-sgd-0.5-0.5.csv", "flcmc-imcs-v2-sweeps/comparison-sgd-step.csv"
    sgd, rate = _SWEEP_100.format("sgd-0.5-0.5"), _SWEEP_100.format("rate-0.001-0.5-0.5")
    skewed = {name: _SWEEP_100.format(f"sgd-{name.replace(', ', '-')}") for name in ("0, 0", "0.5, 0.5", "1, 1")}
    pap = "flcmc-imcs-v2-sweeps/comparison-adam-mu-with-step-9.csv"
    feded, fedavg, passed, alone = (
        rounds(_FEDED_B2, row, "test/accuracy_rounds_to_0.75")
        for row in ("FedED", "FedAvg", "FedAvg and the same pass over D_v", "D_v alone")
    )
    fewer = paired_difference(fedavg, feded)
    return [
        ("FLCMC, Table 8", "FedPAP > FedAttS > FedProxP > FedAvgS", f"the same order of best accuracies, 10 seeds; the uniform mean with FedAttS' server step: {ours(_SYNTHETIC, 'uniform mean, λ=4', 'best')} on FedAvgS"),
        ("FLCMC, Table 8", "lowest training loss: FedAvgS 0.81, FedAvgT 1.1, FedProxP 0.70, FedAttS 0.47, FedPAP 0.48", f"FedPAP is lowest, FedProxP is level with FedAttS, FedAvgT not above FedAvgS; 10 seeds, in nats: FedAvgS {level(_SYNTHETIC, 'FedAvgS', 'best', 'train/loss')}; on it FedAvgT {lowest_loss(_SYNTHETIC, 'FedAvgT')}, FedProxP {lowest_loss(_SYNTHETIC, 'FedProxP')}, FedAttS {lowest_loss(_SYNTHETIC, 'FedAttS')}, FedPAP {lowest_loss(_SYNTHETIC, 'FedPAP')}; the uniform mean with FedAttS' server step {lowest_loss(_SYNTHETIC, 'uniform mean, λ=4')}, and with PAdam {lowest_loss(_SYNTHETIC, 'uniform mean, PAdam, λ=4')}"),
        ("FLCMC, Figure 8", "FedAtt rises from λ = 1 to 4 and not at 5", f"round 30, 3 seeds, synthetic(0.5, 0.5): 4 less 1 {ours(half, 'FedAtt, λ=4', baseline='FedAtt, λ=1')}; 5 less 4 {ours(half, 'FedAtt, λ=5', baseline='FedAtt, λ=4')}; the uniform mean, 4 less 1 {ours(half, 'uniform mean, λ=4', baseline='uniform mean, λ=1')}"),
        ("FLCMC, Figure 7", "FedPA is highest with the default values (no numbers)", f"100 rounds, 5 seeds: FedPA − FedAtt {ours(sgd, 'FedPA, λ=1.2, μ=1', baseline='FedAtt, λ=1.2')}; on FedAvg {ours(sgd, 'FedPA, λ=1.2, μ=1')}"),
        ("FLCMC, Figure 11", "FedPA is best at μ = 0.03", f"100 rounds, 5 seeds: 0.03 less 0.001 {ours(sgd, 'FedPA, λ=4, μ=0.03', baseline='FedPA, λ=4, μ=0.001')}, less 1 {ours(sgd, 'FedPA, λ=4, μ=0.03', baseline='FedPA, λ=4, μ=1')}; the highest mean is at {highest(sgd, 'FedPA, λ=4, μ=')}"),
        ("FLCMC, Figure 12", "FedPA is best, FedAtt similar (no numbers)", f"100 rounds, 5 seeds: FedPA on FedProx {ours(sgd, 'FedPA, λ=4, μ=0.03', baseline='FedProx, μ=1')}, on FedAtt {ours(sgd, 'FedPA, λ=4, μ=0.03', baseline='FedAtt, λ=4')}, on the uniform mean with the same λ and μ {ours(sgd, 'FedPA, λ=4, μ=0.03', baseline='uniform mean, λ=4, μ=0.03')}"),
        ("FLCMC, Figure 13", "FedProx is worst on IID data, FedPA best on the others", f"100 rounds, 5 seeds: FedProx − FedAvg on IID data {ours(_SWEEP_100.format('sgd-iid'), 'FedProx, μ=1')}; FedPA − FedAvg {'; '.join(f'({name}) ' + ours(file, 'FedPA, λ=4, μ=0.03') for name, file in skewed.items())}. FedAtt breaks down in a seed: accuracy by seed {'; '.join(f'({name}) ' + lowest_and_highest(skewed[name], 'FedAtt, λ=4') + ', the uniform mean with the same λ ' + lowest_and_highest(skewed[name], 'uniform mean, λ=4') for name in ('0, 0', '1, 1'))}"),
        ("FLCMC, Figure 14", "Adam's forms converge more steadily (no numbers)", f"100 rounds, 5 seeds, synthetic(0.5, 0.5), rate 0.001, last rounds: FedAvgS − FedAvg {ours(rate, 'FedAvgS')}, FedProxP − FedProx {ours(rate, 'FedProxP, μ=1', baseline='FedProx, μ=1')}, FedAttS − FedAtt {ours(rate, 'FedAttS, λ=4', baseline='FedAtt, λ=4')}, FedPAP − FedPA {ours(rate, 'FedPAP, λ=4, μ=0.03', baseline='FedPA, λ=4, μ=0.03')}"),
        ("FLCMC, Figure 16", "FedPAP with λ = 9 is best at μ = 0.03 (no numbers)", f"IMCS-V2, round 100, 10 seeds: 0.03 less 0.001 {ours(pap, 'FedPAP, μ=0.03', baseline='FedPAP, μ=0.001')}, 3 less 0.03 {ours(pap, 'FedPAP, μ=3', baseline='FedPAP, μ=0.03')}; {highest(pap, 'FedPAP, μ=')}, the largest value tried, is best, {ours(pap, 'FedPAP, μ=3')} on FedAvgS"),
        ("FLCMC, Figure 17", "FedAtt is best at λ = 4 (no numbers)", f"IMCS-V2, round 100, 10 seeds: 4 less 3 {ours(step, 'FedAtt, λ=4', baseline='FedAtt, λ=3')}, 5 less 4 {ours(step, 'FedAtt, λ=5', baseline='FedAtt, λ=4')}; {highest(step, 'FedAtt, λ=')} is best; for the uniform mean {highest(step, 'uniform mean, λ=')}, 4 less 3 {ours(step, 'uniform mean, λ=4', baseline='uniform mean, λ=3')}"),
        ("FLCMC, Figure 18", "FedAtt at λ = 4 hardly depends on the seed (no numbers)", f"IMCS-V2, round 100, accuracy by seed from {lowest_and_highest(step, 'FedAtt, λ=4')} over 10 seeds, with λ = 1 from {lowest_and_highest(step, 'FedAtt, λ=1')}"),
        ("FLCMC, Figure 20", "LSTM with SGD: FedAvg and FedProx level, FedAtt and FedPA level, all between 55 and 65 % (no numbers)", f"IMCS-V2, 100 rounds, 5 seeds, best rounds: FedAvg {level(_LSTM_SGD, 'FedAvg', 'best', 'test/accuracy')}; FedProx − FedAvg {ours(_LSTM_SGD, 'FedProx', 'best')}; FedPA − FedAtt {ours(_LSTM_SGD, 'FedPA', 'best', baseline='FedAtt')}; the largest class {level(_LSTM_SGD, 'trivial: largest class', 'best', 'test/accuracy')}"),
        ("FLCMC, Table 11", "ms of a round: FedAvgS 5817, FedProxP 8994, FedAttS 5762, FedPAP 8628 (no model named)", f"IMCS-V2, LSTM over given vectors, 5 seeds, times FedAvgS' seconds: {', '.join(f'{row} ' + times_as_long('flcmc-imcs-v2-lstm', 'symptoms, Adam', row, 'FedAvgS') for row in ('FedProxP', 'FedAttS', 'FedPAP'))}"),
        ("FedCMC, Figure 3", "i2b2, one local epoch: an F1 of 45 in round 5, FedRS in 15, FedAvg in 20", f"ChemProt, PCNN, α = 0.05, a macro-F1 of 0.33 by seed (of 20 rounds): FedCMC {rounds_by_seed(_FEDCMC_FIGURE_3, 'FedCMC', _TO_33)}; FedRS {rounds_by_seed(_FEDCMC_FIGURE_3, 'FedRS', _TO_33)}; FedAvg {rounds_by_seed(_FEDCMC_FIGURE_3, 'FedAvg', _TO_33)}; the mean with equal client weights {rounds_by_seed(_FEDCMC_FIGURE_3, 'uniform mean', _TO_33)}"),
        ("FedED", "42 KB are sent where FedAvg sends 423 MB", f"{kilobytes('feded-ade/comparison.csv', 'FedED')} against {kilobytes('feded-ade/comparison.csv', 'FedAvg')} (PCNN): it does not grow with the model"),
        ("FedED, Table 8", "fewer rounds to a target than FedAvg: 9 for 27 at B = 2, E = 1", f"ADE, an accuracy of 0.75, 3 seeds: {_between(feded)} for {_between(fedavg)}, fewer by {_points(fewer, 1)}; FedAvg with the same pass over D_v needs {_between(passed)}, D_v without any client {_between(alone)}"),
        ("FedED, Table 8", "the same; B = 16, E = 1: FedED 34, FedAvg and FedAtt never; E = 3: 15, 47, 46", f"GAD, a frozen encoder, an accuracy of 0.65 by fold: {'; '.join(f'B = {batch}, E = {epochs}: ' + _by_method(_FEDED_GAD.format(f'0.1-b-{batch}-e-{epochs}')) for batch, epochs in ((2, 1), (16, 1), (16, 3)))}"),
        ("FedED, Table 8", "the same", f"EU-ADR, a frozen encoder, an accuracy of 0.78, 10 folds, FedED against FedAvg: {'; '.join(f'B = {batch}, E = {epochs}: ' + _sooner(_FEDED_EUADR.format(f'0.1-b-{batch}-e-{epochs}')) for epochs in (1, 3) for batch in (2, 8, 16))}"),
        ("FedED, Figure 2", "all methods need fewest rounds at C = 1", f"GAD, the same encoder, an accuracy of 0.65 by fold, B = 4, E = 2: {'; '.join(f'C = {share}: ' + _by_method(_FEDED_GAD.format(f'{share}-b-4-e-2')) for share in ('0.1', '0.2', '0.4', '1'))}"),
        ("FedED, Figure 2", "the same", f"EU-ADR, the same encoder, an accuracy of 0.78, 10 folds, FedED against FedAvg, B = 4, E = 2: {'; '.join(f'C = {share}: ' + _sooner(_FEDED_EUADR.format(f'{share}-b-4-e-2')) for share in ('0.1', '0.2', '0.4', '0.6', '0.8', '1'))}"),
        ("FedDS, Figure 4", "Lazy MIL is best with E = 1, B = 64 (NYT10, no numbers)", f"CDR, SGD, the round chosen on dev, settings of E = 3, B = 32, 3 seeds: {level(_FEDDS_FIGURE_4.format('1-b-64'), 'Lazy MIL', metric='test/auc')}; with E = 1, B = 32 {level(_FEDDS_FIGURE_4.format('1-b-32'), 'Lazy MIL', metric='test/auc')}, with E = 3, B = 64 {level(_FEDDS_FIGURE_4.format('3-b-64'), 'Lazy MIL', metric='test/auc')}, with E = 3, B = 32 (5 seeds) {level('lazy-mil-cdr-searched/comparison.csv', 'Lazy MIL', metric='test/auc')}; a search in each cell is open"),
        ("FedLCC, Table 6", "rounds to an F1 of 80 % on CHR, FedAvg and FedLCC: 8 and 5 with B = 3, E = 1; 13 and 9 with B = 15, E = 1; 7 and 2 with B = 3, E = 5; 11 and 4 with B = 15, E = 5", f"CDR, IID, to an F1 of 0.44 on test, by seed: {_of_table_6()}"),
        ("FedLCC, Table 7", "Ign F1: FedAvg 50.82, FedAtt 52.03, FedLCC 55.56, centralised 59.55", f"Re-DocRED, the round chosen on dev: FedAvg {level(_REDOCRED, 'FedAvg', metric='test/ign_f1')}; on it FedAtt {ours(_REDOCRED, 'FedAtt', 'chosen', metric='test/ign_f1')}, FedLCC {ours(_REDOCRED, 'FedLCC', 'chosen', metric='test/ign_f1')}, centralised {ours(_REDOCRED, 'Centralised', 'chosen', metric='test/ign_f1')}"),
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
    smaller = sum(
        line.alone.endswith("gain") and 100 * line.difference.high < line.claim.published for _, line in every
    )
    return f"""# Published gains that were tested: {len(tested)} of about {PUBLISHED_COMPARISONS}

The five papers print about {PUBLISHED_COMPARISONS} comparisons with a baseline. {len(tested)} of them are tested here, {sum(tested.values())} on a corpus of the paper (mostly a part
of it), the others on other or on made-up data. Only FLCMC's Table 8 and, on a part of its dialogues
and without its word vectors, Tables 9 and 10 are in the paper's own regime; none of the papers' pretrained encoders was trained. A gain
that does not show here may show there.

Made by `python scripts/claims.py > docs/claims.md` from the tables in [results](results/README.md). Differences are in points, paired
by seed, with 95 % t-intervals over the seeds, each for one comparison. They do not contain the sampling of the test set. "Could show" is the
smallest true difference that a paired t-test with this spread and number of seeds detects with probability 80 %. "Room" is what the best
pooled or oracle row has on the baseline; "pooled tuned": whether the pooled row was tuned, with as many settings as the methods ("–": there is
no pooled row). The words are those of all tables:

- **gain**, **loss**: the paired t-test's p is below 0.05, adjusted by Holm over all lines of this page.
- **no room**: neither, and the room is smaller than the published gain, so that it could hardly show.
- **does not show**: none of these; the interval contains zero or lies below it, and the published value is excluded, also after Holm's
  adjustment over this page. A smaller gain is still possible.
- **open**: anything else, and everything with fewer than {LEAST_SEEDS} seeds.
- **made up**: before a verdict on data that were made up for the comparison.

Of {len(every)} lines {without} have no verdict; the others: {words}. {_seeds_of(line for _, line in every)} With three to five
hardly a difference is left after an adjustment over {len(every) - without} lines. "As one line" is the verdict without any adjustment: {alone}.
Of these gains {smaller} end below the published value. One line in twenty misses the true value by chance. "Best" is the best over the rounds, which papers
print and which is selected on the test data; "chosen" is the round selected on dev; "final" is the mean over the last tenth of the rounds.

Every line is computed from `values.csv` of its comparison; `python -m tff_re.run tables FOLDER` makes the tables of a comparison from that file anew.
"""


def _seeds_of(lines: Iterable[Line]) -> str:
    """How many lines have how many seeds, in words."""
    seeds = [line.difference.n for line in lines]
    ranges = ((1, 2), (3, 5), (6, 7), (8, 10))
    counts = {f"{low} to {high}": sum(low <= n <= high for n in seeds) for low, high in ranges}
    if sum(counts.values()) != len(seeds):
        raise ValueError(f"lines with other numbers of seeds: {sorted(set(seeds))}")
    return "Seeds: " + ", ".join(f"{words} in {count} lines" for words, count in counts.items() if count) + "."


def _counted(words: list[str]) -> str:
    """`gain 1, open 2`, the most frequent first."""
    counts = Counter(word for word in words if word != "–")
    return ", ".join(f"{word} {count}" for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _cells(line: Line) -> str:
    claim, difference = line.claim, line.difference
    could = "–" if difference.detectable is None else f"{100 * difference.detectable:.1f}"
    room = "–" if line.room is None else _signed(100 * line.room)
    cells = (
        *(claim.comparison, f"{claim.published:+g}".replace("-", "−") + f" ({claim.source})"),
        *(f"[{claim.data}](results/{claim.file.partition('/')[0]}/comparison.md)", line.values, difference.n),
        *(_points(difference), could, room, line.tuned, line.alone, line.verdict),
    )
    return f"| {' | '.join(map(str, cells))} |"


def page() -> str:
    """The text of docs/claims.md."""
    made, said = lines(), notes()
    paragraphs = []
    for (paper, name), of_page in made.items():
        header = "| claim | published | our data | values | seeds | ours, 95 % interval | could show | room | pooled tuned | as one line | verdict |"
        paragraphs += [
            f"\n## {paper}\n",
            f"Equations, differences and commands: [{paper}](papers/{name}.md). {said[name]}\n",
            *(
                header,
                "| --- | --: | --- | --- | --: | --: | --: | --: | --- | --- | --- |",
                *map(_cells, of_page),
            ),
        ]
    paragraphs += [
        "\n## Claims that are not differences of scores\n",
        "Differences in points with 95 % intervals; none is adjusted.\n",
        *("| paper | published | here |", "| --- | --- | --- |"),
        *(f"| {' | '.join(row)} |" for row in others()),
    ]
    return _introduction(made) + "\n".join(paragraphs) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
