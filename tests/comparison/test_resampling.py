"""The bootstrap over test units and seeds, against plain NumPy, and its file."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tomli_w
from scipy import stats
from sklearn.metrics import confusion_matrix

from tests.documents_for_tests import document_table
from tests.upper_floors import builder, command, consultations, text_recipe, tiny, write_json, write_recipe
from tff_re.comparison.outcome import compare
from tff_re.comparison.report import write_report
from tff_re.comparison.suite import load_suite
from tff_re.comparison.units_file import read_units, write_units
from tff_re.errors import UserError
from tff_re.runs import measured_units
from tff_re.runs.reading import read_test_units
from tff_re.runs.run import train_run
from tff_re.tasks import resampling
from tff_re.tasks.measured_units import MeasuredUnits, summed_by_unit
from tff_re.tasks.metrics import classification_metrics
from tff_re.tasks.ranking_metrics import ranking_metrics
from tff_re.tasks.resampling import difference_interval, metrics_of_draws
from tff_re.tasks.span_metrics import SpanMeasures


def pairs(array) -> MeasuredUnits:
    return MeasuredUnits("pairs", {"counts": np.asarray(array)})


def counts(seed: int, units: int, correct: float) -> np.ndarray:
    """Of the same documents for every seed."""
    stated, drawn = np.random.default_rng(0).integers(1, 6, units), np.random.default_rng([seed, 1])
    predicted = drawn.integers(1, 6, units)
    return np.stack([drawn.binomial(np.minimum(stated, predicted), correct), predicted, stated], axis=-1)


def by_hand(ours, theirs, draws: int, together: bool = True) -> tuple[float, float]:
    """The same with loops and another generator. What the seeds add is widened as Student's t is."""
    n = len(ours)

    def of_seed(seed, units):
        (a, p, g), (b, q, h) = ours[seed][units].sum(0), theirs[seed][units].sum(0)
        return 2 * a / (p + g) - 2 * b / (q + h)

    whole = [of_seed(seed, slice(None)) for seed in range(n)]
    widening = stats.t.ppf(0.975, n - 1) / stats.norm.ppf(0.975) * (n / (n - 1)) ** 0.5
    drawn, means = np.random.RandomState(7), []
    for _ in range(draws):
        units = drawn.randint(len(ours[0]), size=(1 if together else len(ours), len(ours[0])))
        of_test = np.mean([of_seed(seed, units[0 if together else seed]) for seed in range(n)])
        of_seeds = np.mean([whole[seed] for seed in drawn.randint(n, size=n)]) - np.mean(whole)
        means.append(of_test + widening * of_seeds)
    return tuple(np.percentile(means, [2.5, 97.5]))


def rows(units: int):
    return [{seed: counts(10 * seed + n, units, level) for seed in range(4)} for n, level in enumerate((0.8, 0.6))]


def of_rows(*both):
    return [{seed: pairs(array) for seed, array in row.items()} for row in both]


def test_the_interval_is_that_of_a_plain_bootstrap():
    ours, theirs = rows(60)
    assert difference_interval(*of_rows(ours, theirs), "test/f1", draws=6000) == pytest.approx(
        by_hand(ours, theirs, 6000), abs=6e-3
    )


def test_units_of_seeds_with_different_tests_are_drawn_separately():
    """The same number of units does not make the same test."""
    orders = {seed: np.random.default_rng(seed).permutation(60) for seed in range(4)}
    same = [{seed: counts(n, 60, level) for seed in orders} for n, level in enumerate((0.8, 0.6))]
    other = [{seed: row[seed][order] for seed, order in orders.items()} for row in same]
    together, apart = (difference_interval(*of_rows(*both), "test/f1", draws=6000) for both in (same, other))
    assert together == pytest.approx(by_hand(*same, 6000), abs=8e-3)
    assert apart == pytest.approx(by_hand(*other, 6000, together=False), abs=8e-3)
    assert np.ptp(apart) < 0.8 * np.ptp(together)


def test_one_unit_and_one_seed_vary_nothing():
    ours, theirs = of_rows({0: [[1, 2, 2]]}, {0: [[0, 1, 2]]})
    assert difference_interval(ours, theirs, "test/f1") == (0.5, 0.5)
    assert difference_interval(ours, {1: theirs[0]}, "test/f1") is None
    assert difference_interval(ours, {0: pairs(np.zeros((2, 3)))}, "test/f1") is None
    assert difference_interval(ours, theirs, "test/accuracy") is None, "documents have no accuracy"


def test_the_interval_is_wider_with_fewer_units():
    widths = [np.ptp(difference_interval(*of_rows(*rows(units)), "test/f1")) for units in (15, 150, 1500)]
    assert widths[0] > 1.5 * widths[1] > 2 * widths[2] > 0


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_it_holds_the_true_difference_of_few_seeds(seeds):
    """Seeds spread more than test documents do, and percentiles hold the true difference, zero, in 75 to 91 of 100."""
    drawn, held = np.random.default_rng(seeds), 0
    for _ in range(100):
        levels = np.clip(0.5 + 0.05 * drawn.normal(size=(2, seeds)), 0.05, 0.95)
        both = [
            {
                s: pairs(np.stack([drawn.binomial(5, level, 200), *np.full((2, 200), 5)], -1))
                for s, level in enumerate(row)
            }
            for row in levels
        ]
        low, high = difference_interval(*both, "test/f1", draws=300)
        held += low <= 0 <= high
    assert held >= 88


def test_rows_are_paired():
    ours, _ = of_rows(*rows(40))
    assert difference_interval(ours, ours, "test/recall") == (0, 0)


def test_draws_in_parts_are_the_same_draws(monkeypatch):
    whole = difference_interval(*of_rows(*rows(40)), "test/f1", draws=100)
    monkeypatch.setattr(resampling, "_AT_ONCE", 40 * 7)
    assert difference_interval(*of_rows(*rows(40)), "test/f1", draws=100) == whole


# Metrics of drawn units


def classes(seed=0, documents=12, per_document=5, num_classes=4):
    """(labels, predictions, document of each example, their units)."""
    drawn = np.random.default_rng(seed)
    labels, predicted = drawn.integers(0, num_classes, (2, documents * per_document))
    predicted = np.where(drawn.random(labels.shape) < 0.6, labels, predicted)
    document = drawn.permutation(np.repeat(np.arange(documents), per_document))
    eye = np.eye(num_classes)
    of_examples = {
        "true_positives": eye[labels] * (labels == predicted)[:, None],
        "predicted": eye[predicted],
        "actual": eye[labels],
    }
    return labels, predicted, document, summed_by_unit([f"d{d:02d}" for d in document], of_examples)


@pytest.mark.parametrize("positive", [None, (1, 2, 3), (2,)])
def test_metrics_of_drawn_documents_are_scikit_learns_of_their_examples(positive):
    labels, predicted, document, arrays = classes()
    units = MeasuredUnits("classes", arrays, positive)
    weights = np.random.default_rng(1).multinomial(12, np.full(12, 1 / 12), size=5)
    values = metrics_of_draws(units, weights)
    named = {"test/accuracy", "test/macro_f1", *(["test/micro_f1"] if positive else [])}
    assert set(values) == named | ({"test/matthews"} if positive == (2,) else set())
    for number, of_draw in enumerate(weights):
        rows_drawn = np.concatenate([np.flatnonzero(document == d) for d in range(12) for _ in range(of_draw[d])])
        confusion = confusion_matrix(labels[rows_drawn], predicted[rows_drawn], labels=range(4))
        statistics = {"examples": len(rows_drawn), "loss": 0.0, "confusion": confusion}
        expected = classification_metrics(statistics, positive)
        for name in values:
            assert values[name][number] == pytest.approx(expected[name.removeprefix("test/")]), name


def test_matthews_of_two_classes():
    """By hand: 2 true and 1 false positive, 3 true and 1 false negative."""
    arrays = {"true_positives": [[3, 2]], "predicted": [[4, 3]], "actual": [[4, 3]]}
    units = MeasuredUnits("classes", {name: np.array(value) for name, value in arrays.items()}, (1,))
    values = metrics_of_draws(units, np.array([[1]]))
    assert values["test/matthews"] == pytest.approx((2 * 3 - 1 * 1) / np.sqrt(3 * 3 * 4 * 4))
    assert values["test/micro_f1"] == values["test/macro_f1"] == pytest.approx(4 / 6)
    assert values["test/accuracy"] == pytest.approx(5 / 7)


def test_metrics_of_drawn_texts_are_those_of_their_entities():
    drawn = np.random.default_rng(3)
    predicted, actual = drawn.integers(0, 4, (2, 9, 3))
    least = np.minimum(predicted, actual)
    arrays = {
        **{"predicted": predicted, "actual": actual, "true_positives": drawn.binomial(least, 0.6)},
        **{"overlapping_predicted": least, "overlapping_actual": least},
    }
    weights = drawn.multinomial(9, np.full(9, 1 / 9), size=6)
    values = metrics_of_draws(MeasuredUnits("entities", arrays), weights)
    for number, of_draw in enumerate(weights):
        statistics = {name: (of_draw[:, None] * array).sum(axis=0) for name, array in arrays.items()}
        expected = SpanMeasures(("a", "b", "c")).metrics({**statistics, "examples": 1, "loss": 0.0})
        assert {name: values[f"test/{name}"][number] for name in expected if name != "loss"} == pytest.approx(
            {name: value for name, value in expected.items() if name != "loss"}
        )


@pytest.mark.parametrize("bags", [30, 400])  # fewer and more predictions than P@N and the area over the top ask for
def test_metrics_of_drawn_bags_are_those_of_their_rankings(bags):
    drawn = np.random.default_rng(bags)
    scores = np.round(drawn.random((bags, 7)), 2 if bags == 30 else 6)  # with and without ties
    true = drawn.random((bags, 7)) < scores / 2
    units = MeasuredUnits("rankings", {"scores": scores, "true": true})
    weights = drawn.multinomial(bags, np.full(bags, 1 / bags), size=4)
    values = metrics_of_draws(units, weights)
    for number, of_draw in enumerate(weights):
        rows_drawn = np.repeat(np.arange(bags), of_draw)
        expected = ranking_metrics(scores[rows_drawn], true[rows_drawn])
        tied = () if bags == 400 else ("p_at_100", "p_at_200", "p_at_300", "p_at_mean", "auc_2000")
        for name, value in expected.items():
            close = 0.03 if name in tied else 1e-9  # of equal scores those that come first in the draw
            assert values[f"test/{name}"][number] == pytest.approx(value, abs=close), name


def test_a_ranking_by_hand():
    """Two bags, one relation: the first true and certain, the second false."""
    units = MeasuredUnits("rankings", {"scores": np.array([[0.9], [0.4]]), "true": np.array([[True], [False]])})
    values = metrics_of_draws(units, np.array([[1, 1], [2, 0], [1, 3], [0, 2]]))
    assert values["test/auc"][:3].tolist() == [1, 1, 1] and np.isnan(values["test/auc"][3])
    assert values["test/p_at_100"][:3].tolist() == [0.5, 1, 0.25]
    assert values["test/max_f1"][:3].tolist() == [1, 1, 1]


def test_bags_have_an_interval():
    def row(seed, certain):
        drawn = np.random.default_rng(0)
        true = drawn.random((80, 2)) < 0.3
        noise = np.random.default_rng(seed).random((80, 2))
        return MeasuredUnits("rankings", {"scores": certain * true + noise, "true": true})

    ours, theirs = ({seed: row(10 * seed + n, level) for seed in range(6)} for n, level in enumerate((0.8, 0.2)))
    low, high = difference_interval(ours, theirs, "test/auc", draws=300)
    point = np.mean(
        [
            ranking_metrics(*ours[s].arrays.values())["auc"] - ranking_metrics(*theirs[s].arrays.values())["auc"]
            for s in range(6)
        ]
    )
    assert 0 < low < point < high < 1


def test_units_of_examples_are_sums_over_documents_in_the_order_of_their_ids():
    of_examples = {"actual": np.array([[1.0, 0], [0, 1], [1, 0], [0, 2]])}
    assert summed_by_unit(["b", "a", "b", "c"], of_examples)["actual"].tolist() == [[0, 1], [2, 0], [0, 2]]


def test_metrics_of_nothing_are_zero():
    arrays = classes()[-1]
    for units in (pairs(np.ones((2, 3))), MeasuredUnits("classes", {n: a[:2] for n, a in arrays.items()}, (1,))):
        values = metrics_of_draws(units, np.zeros((1, 2)))
        assert all(value == 0 for value in values.values()) and len(values) >= 3


def test_arrays_of_another_kind_are_no_units():
    with pytest.raises(ValueError, match="units of kind 'classes'"):
        MeasuredUnits("classes", {"counts": np.zeros((1, 3))})
    with pytest.raises(ValueError, match="different numbers of units"):
        MeasuredUnits("rankings", {"scores": np.zeros((2, 1)), "true": np.zeros((1, 1))})


# The file


def test_the_file(tmp_path):
    units = {
        ("A: α", "FedAvg", 3): pairs([[1, 2, 3]]),
        ("", "x/y", 0): MeasuredUnits("classes", classes()[-1], (1, 2), chosen=False),
        ("", "bags", 0): MeasuredUnits("rankings", {"scores": np.ones((2, 1)), "true": np.ones((2, 1), bool)}),
    }
    write_units(tmp_path / "test_units.npz", units)
    again = read_units(tmp_path / "test_units.npz")
    assert again.keys() == units.keys()
    for key, of_run in units.items():
        same = again[key]
        assert (same.kind, same.positive, same.chosen) == (of_run.kind, of_run.positive, of_run.chosen)
        assert all((same.arrays[name] == array).all() for name, array in of_run.arrays.items())
    assert read_units(tmp_path / "none.npz") == {}


@pytest.mark.parametrize("read", [read_units, read_test_units])
def test_a_damaged_file_is_named_whatever_is_damaged(read, tmp_path):
    path, noted = tmp_path / "test_units.npz", 0
    units = pairs(np.random.default_rng(0).integers(0, 9, (40, 3)))
    if read is read_units:
        write_units(path, {("", "A", 0): units})
    else:
        path.write_bytes(units.to_bytes())
    whole = path.read_bytes()
    for damaged in (b"junk", b"", *_with_a_bit_changed(whole, 300)):
        path.write_bytes(damaged)
        try:
            read(path)
        except UserError as error:
            assert str(error).startswith(f"{path}: is damaged")
            noted += 1
    assert noted > 150  # other bits change nothing that is read: dates, unused fields


def _with_a_bit_changed(whole: bytes, count: int):
    drawn = np.random.default_rng(0)
    for place, bit in zip(drawn.integers(len(whole), size=count), drawn.integers(8, size=count), strict=True):
        yield whole[:place] + bytes([whole[place] ^ (1 << int(bit))]) + whole[place + 1 :]


def test_older_files_are_read(tmp_path):
    """`counts` of documents in a run's file, and in a comparison's file by (group, entry, seed)."""
    counted = np.array([[1, 2, 3], [0, 1, 1]])
    np.savez_compressed(tmp_path / "run.npz", counts=counted)
    of_run = read_test_units(tmp_path / "run.npz")
    assert of_run.kind == "pairs" and of_run.chosen and (of_run.arrays["counts"] == counted).all()
    np.savez_compressed(tmp_path / "comparison.npz", **{json.dumps(["", "A", 0]): counted})
    (key, units), *others = read_units(tmp_path / "comparison.npz").items()
    assert key == ("", "A", 0) and not others and (units.arrays["counts"] == counted).all()


@pytest.mark.slow
def test_a_comparison_of_documents_has_the_column(runtime, tmp_path, capsys):
    write_recipe(tmp_path / "documents.toml", document_table())
    named = [{"name": name, "set": [f"algorithm.learning_rate={rate}"]} for name, rate in (("A", 0.001), ("B", 0.05))]
    table = {"title": "Tiny", "recipe": str(tmp_path / "documents.toml"), "seeds": [0, 1], "entry": named}
    table |= {"metrics": ["test/f1", "dev/f1"], "choose_by": "dev/f1"}
    (tmp_path / "suite.toml").write_text(tomli_w.dumps(table), "utf-8")
    suite, out = load_suite(str(tmp_path / "suite.toml")), tmp_path / "out"
    outcomes = compare(suite, out, builder=builder())
    for outcome in (outcome for by_seed in outcomes.values() for outcome in by_seed.values()):
        correct, predicted, stated = outcome.test_units.arrays["counts"].sum(axis=0)
        f1 = 2 * correct / (predicted + stated)
        assert f1 == pytest.approx(outcome.at_best("dev/f1")["test/f1"]), "the counts make the metric"
    write_report(suite, outcomes, out)
    written = (out / "comparison.md").read_text("utf-8")
    assert "| 95 %, test sample |" in written and "dev/f1 chosen − A | 95 % interval" in written
    # The command makes the same from the files, without the runs.
    typed = command(capsys, "tables", out, "--out", tmp_path / "again")
    assert typed.code == 0
    for line in written.splitlines():
        assert not line.startswith("| B ") or line in (tmp_path / "again" / "tables.md").read_text("utf-8")
    # A run that is resumed keeps its file; one of an older version has none, and the table says nothing.
    kept = {path: path.read_bytes() for path in out.glob("runs/*/test_units.npz")}
    again = compare(suite, out, builder=builder(), resume=True)
    assert len(kept) == 4 and kept == {path: path.read_bytes() for path in out.glob("runs/*/test_units.npz")}
    assert (again["B"][1].test_units.gold == outcomes["B"][1].test_units.gold).all()
    for without in ((0, 1), (1,)):  # of all seeds, or the difference's interval would be of other seeds
        old = {
            name: {s: replace(o, test_units=None) if s in without else o for s, o in by_seed.items()}
            for name, by_seed in outcomes.items()
        }
        (tmp_path / "old").mkdir(exist_ok=True)
        (tmp_path / "old" / "test_units.npz").write_bytes(b"of another choice of rounds")
        write_report(suite, old, tmp_path / "old")
        assert "test sample" not in (tmp_path / "old" / "comparison.md").read_text("utf-8")
        assert (tmp_path / "old" / "test_units.npz").exists() == (without == (1,))


def test_a_comparison_of_examples_at_clients_has_the_column(runtime, tmp_path, capsys):
    corpus = write_json(tmp_path / "corpus.json", consultations(8, 6))
    table = text_recipe(corpus, test_share=0.4) | {"evaluation": {"train_split": False}}
    write_recipe(tmp_path / "texts.toml", table | {"partition": {"name": "iid", "num_clients": 3}})
    named = [{"name": name, "set": [f"algorithm.learning_rate={rate}"]} for name, rate in (("A", 0.001), ("B", 0.5))]
    suite = {"title": "Tiny", "recipe": str(tmp_path / "texts.toml"), "seeds": [0, 1], "entry": named}
    suite |= {"metrics": ["test/accuracy", "test/macro_f1"]}
    (tmp_path / "suite.toml").write_text(tomli_w.dumps(suite), "utf-8")
    suite, out = load_suite(str(tmp_path / "suite.toml")), tmp_path / "out"
    outcomes = compare(suite, out, builder=builder())
    for entry in suite.entries:
        for seed, outcome in outcomes[entry.name].items():
            units, last = outcome.test_units, outcome.history[-1]
            prepared = builder().prepare(entry.recipe_for(seed))
            tested = [i for client in prepared.partition.clients.values() for i in client.test]
            documents = sorted({sample_id.partition("/")[0] for sample_id in tested})
            assert units.kind == "classes" and not units.chosen and len(units) == len(documents) < len(tested)
            each = [sum(sample_id.startswith(f"{name}/") for sample_id in tested) for name in documents]
            assert units.gold.sum(axis=1).tolist() == each, "a unit is a dialogue, in the order of the ids"
            values = metrics_of_draws(units, np.ones((1, len(units))))
            for name in suite.metrics:
                assert values[name][0] == pytest.approx(last[name], abs=1e-6), name
    write_report(suite, outcomes, out)
    written = (out / "comparison.md").read_text("utf-8")
    assert "| 95 %, test sample |" in written and "of the last round's weights" in written
    typed = command(capsys, "tables", out, "--out", tmp_path / "again")
    assert typed.code == 0
    for line in written.splitlines():
        assert not line.startswith("| B ") or line in (tmp_path / "again" / "tables.md").read_text("utf-8")
    train_run(suite.entries[0].recipe_for(0), tmp_path / "plain", builder=builder(), details=False)
    assert not (tmp_path / "plain" / "test_units.npz").exists(), "only comparisons measure each unit at clients"


def test_examples_of_no_document_are_units_by_themselves(runtime):
    prepared = builder().prepare(tiny())
    keys = prepared.test_unit_keys()
    together = [key for of_client in keys.values() for key in of_client]
    assert len(set(together)) == len(together) == prepared.examples.size("test")


def test_clients_at_sites_measure_no_single_units(runtime):
    """A site gives sums over many examples; what is computed there is listed, and this is not."""
    experiment = builder().build(tiny())
    at_sites = replace(experiment, prepared=replace(experiment.prepared, sites=("aachen",)))

    def asked(*arguments):
        raise AssertionError("a client was asked")

    result = SimpleNamespace(weights=None, test=SimpleNamespace(metrics={}), chosen=None, server_evaluation=None)
    assert measured_units._at_clients(at_sites, result, asked) is None
