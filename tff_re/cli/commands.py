"""What each command of the command line does: calls the floor below and prints."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tff_re.cli.terminal import Terminal
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe, load, read_toml, shipped, suites
from tff_re.runs.folder import writing

if TYPE_CHECKING:  # TensorFlow's import takes seconds, which a list of recipes can do without
    from tff_re.cli.predict_input import Shown, Source
    from tff_re.tasks.data_paths import DataPaths

console = Terminal()


def train(
    recipe_name: str, overrides, data_paths: DataPaths, out: Path | None, resume: bool, seed: int | None, runtime: str
):
    """`train`: a recipe into a folder."""
    from tff_re.cli import progress
    from tff_re.runs.run import train_run

    recipe = load(recipe_name, overrides, seed)
    out = out or Path("runs") / f"{recipe.name}-seed{recipe.seed}"
    with progress.RoundProgress(console, _title(recipe.name), recipe.training.rounds) as shown:
        _, result = train_run(
            recipe, out, data_paths=data_paths, resume=resume, runtime=runtime, on_start=_say_start, on_round=shown
        )
    if result.test is not None:
        console.print(
            _metrics_table(
                f"{recipe.name}, seed {recipe.seed}: test examples of all clients",
                result.test.metrics,
                result.test.trivial,
            )
        )
    if result.server_evaluation is not None:
        title = f"{recipe.name}, seed {recipe.seed}: examples at the server"
        if result.chosen is not None:
            title += f", round {result.chosen[0]}, chosen by {result.chosen[1]}"
        console.print(_metrics_table(title, result.server_evaluation.metrics))
    _say(f"written: {out} (metrics.csv, plots, model.keras, TensorBoard; export it with: export {out})")


def compare(
    recipes, suite_name, seeds, overrides, data_paths: DataPaths, out: Path | None, resume: bool, runtime_name: str
):
    """`compare`: several recipes, or a suite."""
    from tff_re.comparison.suite import load_suite, suite_of_recipes

    if bool(recipes) == bool(suite_name):
        raise UserError("give recipes to compare, or --suite NAME (one of them)")
    suite = load_suite(suite_name, overrides, seeds) if suite_name else suite_of_recipes(recipes, overrides, seeds)
    run_suite(
        suite,
        out or Path("runs") / (Path(suite_name).stem if suite_name else "comparison"),
        data_paths,
        resume,
        runtime_name,
    )


def run_suite(suite, out: Path, data_paths: DataPaths, resume: bool, runtime_name: str) -> None:
    """Runs a suite into a folder, writes its tables and curves, prints the tables."""
    from tff_re.comparison.outcome import compare as run_comparison
    from tff_re.comparison.report import write_report
    from tff_re.runs.experiment import ExperimentBuilder

    with _suite_progress(suite) as (on_start, on_round), writing(out):
        outcomes = run_comparison(
            suite,
            out,
            builder=ExperimentBuilder(data_paths),
            runtime_name=runtime_name,
            resume=resume,
            on_start=on_start,
            on_round=on_round,
        )
        report = write_report(suite, outcomes, out)
    for table in report.tables:
        console.print(table)
    for line in report.text:
        console.print(line, highlight=False)
    _say(f"written: {', '.join(str(path) for path in report.files)}")


def evaluate(run: Path, split: str, data_paths: DataPaths, runtime: str):
    """`evaluate`: the newest checkpoint of a run on all clients, or on what the server holds."""
    from tff_re.report import confusion_png
    from tff_re.runs.evaluation import Evaluator, ServerEvaluator
    from tff_re.runs.finished import open_run

    with open_run(run, data_paths, runtime) as (opened, _):
        held_out = opened.experiment.prepared.held_out
        if held_out is not None and split in held_out.splits:
            found = ServerEvaluator(opened.experiment)(opened.weights).metrics
            own = {name.removeprefix(f"{split}/"): value for name, value in found.items() if name.startswith(split)}
            console.print(_metrics_table(f"{split} examples at the server after round {opened.round}", own))
            return
        if split == "dev":
            raise UserError(f"{run}: its task has no dev examples; choose another --split")
        evaluator = Evaluator(opened.experiment, split)
        if evaluator.empty:
            raise UserError(f"{run}: no client has {split} examples; choose the other --split")
        result = evaluator(opened.weights)
        title = f"{split} examples of {len(result.clients)} clients after round {opened.round}"
        console.print(_metrics_table(title, result.metrics, result.trivial))
        if result.confusion is None:
            return
        opened.folder.plots.mkdir(exist_ok=True)
        picture = opened.folder.plots / f"confusion-{split}.png"
        confusion_png(picture, result.confusion, opened.experiment.prepared.label_names)
    prepared = opened.experiment.prepared
    console.print(_class_table(prepared.label_names, result.confusion, prepared.positive_labels))
    _say(f"written: {picture}")


def evaluate_export(folder: Path, file: Path, dataset: str | None, label: str | None, trust: bool):
    """`evaluate` of an exported model on a file."""
    from tff_re.exporting.prediction import load_export
    from tff_re.exporting.scoring import CorpusScore, score
    from tff_re.tasks.metrics import trivial_metrics

    result = score(load_export(folder, trust=trust), file, dataset, label)
    if isinstance(result, CorpusScore):
        console.print(_metrics_table(f"{file.name}: {result.size}", result.metrics))
        return
    trivial = trivial_metrics(result.confusion.sum(axis=1), result.positive_labels)
    console.print(_metrics_table(f"{result.examples} samples of {file.name}", result.metrics, trivial))
    console.print(_class_table(result.labels, result.confusion, result.positive_labels))


def _class_table(labels, confusion, positive) -> Table:
    """Precision, recall and F1 of each class."""
    from tff_re.tasks.metrics import per_class

    left_out = [] if positive is None else [name for label, name in enumerate(labels) if label not in positive]
    table = Table(title="by class", caption=f"micro-F1 and macro-F1 leave out {left_out[0]}" if left_out else None)
    for heading in ("class", "precision", "recall", "F1", "examples"):
        table.add_column(heading, justify="left" if heading == "class" else "right")
    for label, *numbers, support in zip(labels, *per_class(confusion), strict=True):
        table.add_row(label, *(f"{n:.4f}" for n in numbers), f"{support:.0f}")
    return table


def cases(
    runs, facts: int, pair, sentences: int, show_text: bool, out: Path | None, data_paths: DataPaths, runtime: str
):
    """`cases`: which sentences of a fact each run's method trains on."""
    from tff_re.comparison.case_study import case_csv, study

    found = study(runs, data_paths, runtime, facts=facts, pair=pair)
    for case in found:
        head, tail = case.pair
        shown = case.most_trained(sentences)
        title = f"{head}, {case.relation}, {tail}: {len(case.sentences)} sentences"
        left_out = len(case.sentences) - len(shown)
        caption = f"{left_out} more, of which methods train on less" if left_out else None
        table = Table(title=title, caption=caption, show_lines=show_text)
        table.add_column("sentence", overflow="fold")
        table.add_column("platform")
        known = any(one.states is not None for one in case.sentences)
        if known:
            table.add_column("states it")
        for name in case.sentences[0].shares:
            table.add_column(name, justify="right", overflow="fold")
        for one in shown:
            what = _marked(one) if show_text else one.sentence_id
            truth = ["yes" if one.states else "no"] if known else []
            table.add_row(what, one.platform, *truth, *(_share(share) for share in one.shares.values()))
        console.print(table)
    if out is not None:
        with writing(out.parent):
            case_csv(out, found)
        _say(f"written: {out}")


def _share(value: float) -> str:
    return "✓" if value == 1 else "·" if value == 0 else f"{value:.2f}"


def _marked(sentence) -> Text:
    """The text with its head in bold and its tail in bold italics."""
    text = Text(sentence.text)
    text.stylize("bold", *sentence.head)
    text.stylize("bold italic", *sentence.tail)
    return text


def export(run: Path, out: Path | None, overwrite: bool, data_paths: DataPaths, runtime: str, **forms):
    """`export`: a run as a model that takes raw text; `forms` are `export_run`'s."""
    from tff_re.runs.finished import export_run

    folder = export_run(run, out, overwrite, data_paths, runtime, **forms)
    written = ", ".join(f"{path.name}/" if path.is_dir() else path.name for path in sorted(folder.iterdir()))
    _say(f"written: {folder} ({written})")


def predict(export_folder: Path, texts, source: Source, shown: Shown, dataset: str | None, trust: bool):
    """`predict`: label and probability of each text; what cannot be read is named at the end, and stops nothing.

    For models of bags and documents: of each pair of entities in the file, which is read whole or not at all.
    """
    from tff_re.exporting.corpus_prediction import CorpusPredictor
    from tff_re.exporting.prediction import PredictionError, load_export

    predictor = load_export(export_folder, trust=trust)
    if isinstance(predictor, CorpusPredictor):
        _predict_records(predictor, source.records(texts, predictor.kind), shown, dataset)
        return
    if dataset is not None:
        raise UserError("--dataset is for models of bags and of documents, and this one takes texts; leave it out")
    lines = list(source.lines(texts))
    if not lines:
        raise UserError("there is no text: give it behind the folder, by --file, or a line each on standard input")
    good = [(i, line) for i, line in enumerate(lines) if not isinstance(line, UserError)]
    results: list = list(lines)
    for (i, _), result in zip(good, predictor.predict_each([line for _, line in good]), strict=True):
        results[i] = result
    bad = [(n, str(result)) for n, result in enumerate(results, 1) if isinstance(result, UserError)]
    if shown.json:
        _print_json(results)
    else:
        console.print(_prediction_table(lines, results, shown))
    if bad:
        number, reason = bad[0]
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise PredictionError(f"{source.name(number)} {reason}{more}")


def _predict_records(predictor, file: Path, shown: Shown, dataset: str | None) -> None:
    results = predictor.predict_file(file, dataset=dataset)
    if shown.json:
        for result in results:
            print(json.dumps(dataclasses.asdict(result), ensure_ascii=False))
        return
    of_bags = predictor.kind == "bags"
    table = Table()
    for heading in ("head", "tail", "sentences", "label") if of_bags else ("document", "head", "tail", "label"):
        table.add_column(heading, justify="right" if heading == "sentences" else "left", overflow="fold")
    table.add_column("probability", justify="right")
    for result in results:
        ids = [result.head_id, result.tail_id]
        if of_bags:
            cells = [*ids, str(result.sentences), result.label]
        else:
            cells = [result.document_id, *ids, ", ".join(result.labels) or "-"]
        table.add_row(*cells, f"{result.probability:.4f}")
    console.print(table)


def _print_json(results) -> None:
    for number, result in enumerate(results, 1):
        if isinstance(result, UserError):
            value = {"line": number, "error": str(result)}
        else:
            value = {"line": number, **dataclasses.asdict(result)}
        print(json.dumps(value, ensure_ascii=False))


def _prediction_table(lines, results, shown: Shown) -> Table:
    table = Table()
    table.add_column("text" if shown.text else "text no.", justify="left" if shown.text else "right")
    table.add_column("label")
    table.add_column("probability", justify="right")
    for number, (line, result) in enumerate(zip(lines, results, strict=True), 1):
        text = line.get("text", "") if isinstance(line, dict) else line
        first = str(text) if shown.text and not isinstance(line, UserError) else str(number)
        if isinstance(result, UserError):
            table.add_row(first, Text(f"{result}", "red"), "")
        else:
            table.add_row(first, result.label, f"{result.probability:.4f}")
    return table


def recipes(keys: bool):
    """`recipes`: what comes with the project, or every key of a recipe."""
    if keys:
        from tff_re.recipes.keys import markdown

        print(markdown(), end="")
        return
    table = Table(title="recipes (train NAME)", show_lines=True)
    table.add_column("name", no_wrap=True)
    table.add_column("what", overflow="fold")
    for name, path in shipped().items():
        raw = read_toml(path)
        parts = ", ".join(raw[section]["name"] for section in ("task", "model", "algorithm"))
        table.add_row(name, Text.assemble(raw["description"], "\n", (parts, "dim")))
    console.print(table)
    table = Table(title="suites (compare --suite NAME)", show_lines=True)
    table.add_column("name", no_wrap=True)
    table.add_column("entries", justify="right")
    table.add_column("what", overflow="fold")
    for name, path in suites().items():
        raw = read_toml(path)
        table.add_row(name, str(len(raw["entry"])), raw["title"])
    console.print(table)


def datasets(data: Path | None):
    """`datasets`: the catalogue, and which files are there."""
    from datasets.catalogue import DATA_SETS, files_there

    table = Table(title="data sets (+ file is there, - is not)", show_lines=True)
    table.add_column("name", no_wrap=True)
    table.add_column("what", overflow="fold")
    for data_set in DATA_SETS.values():
        there = files_there(data_set.name, data)
        lines = [
            f"{data_set.title}: {data_set.task}",
            *([f"labels: {', '.join(data_set.labels)}"] if data_set.labels else []),
            *(f"{'+' if is_there else '-'} {name}" for name, is_there in there.items()),
            f"licence: {data_set.licence}",
            f"available from: {data_set.available_from}",
        ]
        table.add_row(data_set.name, "\n".join(lines))
    console.print(table)


def partition(recipe_name: str, overrides, data_paths: DataPaths, seed: int | None, out: Path | None):
    """`partition`: who would hold what."""
    from datasets.partition import write_partition
    from tff_re.report import documents_table, partition_heatmap, partition_table, write_documents
    from tff_re.runs.experiment import ExperimentBuilder

    recipe = load(recipe_name, overrides, seed)
    prepared = ExperimentBuilder(data_paths).prepare(recipe)
    console.print(partition_table(prepared.counts))
    if prepared.documents is not None:
        console.print(documents_table(prepared.documents.rows))
    for note in prepared.notes:
        console.print(f"note: {note}", highlight=False)
    if out is None:
        return
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        picture = out / "partition.png"
        counts = prepared.counts
        partition_heatmap(picture, counts.train, counts.clients, counts.label_names)
        written = [picture]
        if prepared.partition is not None:
            write_partition(prepared.partition, out / "partition.json")
            written.append(out / "partition.json")
        if prepared.documents is not None:
            written += write_documents(out, prepared.documents)
    _say(f"written: {', '.join(map(str, written))}")


def doctor(data: Path | None):
    """`doctor`: what this machine has, and whether a worker starts and computes."""
    from tff_re.cli.doctor import check

    table = Table(title="doctor")
    for heading in ("", "what", "found"):
        table.add_column(heading, overflow="fold")
    findings = check(data)
    for finding in findings:
        table.add_row("ok" if finding.good else "!!", finding.what, finding.found)
    console.print(table)
    bad = [finding for finding in findings if not finding.good]
    if bad:
        raise UserError(f"{bad[0].what}: {bad[0].remedy}")


def demo(out: Path):
    """`demo`: everything once, on what comes with the project."""
    from tff_re.cli.demo import SENTENCES, classify, train_demo

    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out}: is not empty; remove it or give another --out")
    exported = train_demo(out, run_suite=run_suite, say=_say)
    table = Table(title=f"the exported model on sentences that were written for this demo ({exported})")
    for heading in ("sentence", "label", "probability"):
        table.add_column(heading)
    for sentence, prediction in zip(SENTENCES, classify(exported), strict=True):
        table.add_row(sentence, prediction.label, f"{prediction.probability:.4f}")
    console.print(table)


@contextlib.contextmanager
def _suite_progress(suite):
    """(on_start, on_round) for a comparison: a progress of its own for every run."""
    from tff_re.cli import progress

    done = [0]
    total = len(suite.entries) * len(suite.seeds)
    stack = contextlib.ExitStack()
    shown: list = []

    def on_start(entry: str, seed: int, rounds: int) -> None:
        stack.close()
        done[0] += 1
        title = _title(f"[{done[0]}/{total}] {entry}, seed {seed}")
        shown[:] = [stack.enter_context(progress.RoundProgress(console, title, rounds))]

    with stack:
        yield on_start, lambda report: shown[0](report)


def _say_start(experiment) -> None:
    recipe: Recipe = experiment.recipe
    examples, held_out = experiment.prepared.examples, experiment.prepared.held_out
    tested = f" and {examples.size('test')} test examples"
    if held_out is not None:
        tested = f" examples, {' and '.join(held_out.splits)} at the server"
    _say(
        f"{recipe.name}: {recipe.algorithm.name} on {recipe.task.name}, {len(examples.clients)} clients, "
        f"{examples.size('train')} training{tested}; a client gets {experiment.traffic.down:,} bytes and sends "
        f"{experiment.traffic.up:,} a round"
    )


def _metrics_table(title: str, metrics: dict[str, float], trivial: dict[str, dict[str, float]] | None = None) -> Table:
    """The metrics, and beside them those of models that give every example one class."""
    table = Table(title=title)
    table.add_column("metric")
    table.add_column("value", justify="right")
    for name in trivial or {}:
        table.add_column(name, justify="right", style="dim", overflow="fold")
    for name, value in metrics.items():
        others = (f"{own[name]:.4f}" if name in own else "" for own in (trivial or {}).values())
        table.add_row(name, f"{value:.4f}", *others)
    return table


def _title(text: str) -> str:
    """The text as a progress shows it: the bar of a terminal reads markup, the lines elsewhere do not."""
    return escape(text) if console.is_terminal else text


def _say(text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True)
