"""What `import tff_re` offers: the commands as functions, for notebooks and other programs.

Arguments of several functions: `data` is the data folder, by default that of the environment variable TFF_RE_DATA;
`trust`, whether files that can run code when read (gensim's pickles) may be read; `runtime`, where computations run;
`overrides`, keys to set in all recipes, as ``"training.rounds=20"``; `on_round` is called after every round.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tff_re import __version__
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe, load
from tff_re.runtime import DEFAULT_RUNTIME
from tff_re.tasks.sizes import require_limits

if TYPE_CHECKING:
    from tff_re.auditing.audit import Audit
    from tff_re.comparison.suite import Suite
    from tff_re.comparison.write_tables import Report
    from tff_re.exporting.kinds.entities import EntityPredictor, RecognisedText
    from tff_re.exporting.predictors import ExportedModel, Score
    from tff_re.extraction.evaluation import Evaluation
    from tff_re.extraction.extract import Extraction, Progress
    from tff_re.extraction.records import EntityRecogniser
    from tff_re.runs.experiment import Experiment
    from tff_re.runs.training import Result, RoundReport
    from tff_re.sites.asking import Patience
    from tff_re.tasks.data_paths import DataPaths

PathLike = str | os.PathLike


def load_recipe(name: PathLike, *overrides: str, seed: int | None = None) -> Recipe:
    """A recipe that comes with the project, or of a TOML file, with all its values; `seed` replaces its own.

    Raises:
      UserError: there is no such recipe, or a key or value is not valid.
    """
    require_limits()
    return load(os.fspath(name), overrides, seed)


def build(recipe: Recipe | PathLike, *, data: PathLike | None = None, trust: bool = False) -> Experiment:
    """All that a run of a recipe needs: data at clients, the model, the algorithm as a federated computation.

    Raises:
      UserError, DataError: what the recipe asks for does not fit together, or its data are missing or malformed.
    """
    where = data_paths(data, trust)
    from tff_re.runs.experiment import ExperimentBuilder

    return ExperimentBuilder(where).build(_recipe(recipe))


def train(
    recipe: Recipe | PathLike,
    out: PathLike,
    *,
    data: PathLike | None = None,
    trust: bool = False,
    partition: PathLike | None = None,
    resume: bool = False,
    from_run: PathLike | None = None,
    last: bool = False,
    runtime: str = DEFAULT_RUNTIME,
    sites: Sequence[str] = (),
    patience: Patience | None = None,
    on_start: Callable[[Experiment], None] = lambda experiment: None,
    on_round: Callable[[RoundReport], None] = lambda report: None,
    on_line: Callable[[str], None] = lambda line: None,
) -> Result:
    """Trains a recipe into a folder; the final weights and the last evaluation.

    Args:
      out: the run's folder; new, or with `resume` that of the same recipe.
      partition: a partition file to read, in place of drawing one.
      resume: continue a run that was interrupted.
      from_run: start from the weights of this finished run, with its vocabulary and classes.
      last: its last weights, also where a round was chosen on dev.
      sites: with the runtimes `sites` and `flower`, the sites that hold the data, in order.
      patience: how long these are waited for.
      on_start: called with the experiment before the first round.
      on_line: called with a line for the user, such as which site is waited for.

    Raises:
      UserError, DataError: see `build`; or the folder holds something else.
    """
    from tff_re.runs.run import train_in
    from tff_re.sites.experiments import finished_builder, setup_of

    where = data_paths(data, trust, partition)
    return train_in(
        setup_of(runtime, sites, patience, on_line),
        _recipe(recipe),
        Path(out),
        data_paths=where,
        resume=resume,
        from_run=None if from_run is None else Path(from_run),
        last=last,
        builder_of=finished_builder,
        on_start=on_start,
        on_round=on_round,
        on_line=on_line,
    )[1]


def compare(
    what: str | Sequence[str],
    out: PathLike,
    *,
    overrides: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    sweep: Mapping[str, Any] | None = None,
    data: PathLike | None = None,
    trust: bool = False,
    resume: bool = False,
    runtime: str = DEFAULT_RUNTIME,
    jobs: int = 1,
    cluster: str | None = None,
) -> list[Path]:
    """Runs a suite, or several recipes, on the same partitions and seeds; the tables and plots that were written.

    Args:
      what: name or TOML file of a suite, or a list of recipes.
      out: the comparison's folder; with `resume` one that was begun.
      seeds: in place of the suite's.
      sweep: what is tried for each before, e.g. {"seeds": [100], "algorithm.learning_rate": [1e-4, 1e-3]}.
      jobs: how many runs are under way at once, each in a process of its own; the files are the same.
      cluster: the address of the scheduler of a Dask cluster that does the runs, e.g. tcp://node1:8786; it is trusted.

    Raises:
      UserError, DataError: see `build`; or the folder holds something else.
    """
    ways: dict[str, Any] = {"resume": resume, "runtime": runtime, "jobs": jobs, "cluster": cluster}
    report = run_suite(load_suite(what, overrides, seeds, sweep), out, data=data, trust=trust, **ways)
    return [Path(path) for path in report.files]


def load_suite(
    what: str | Sequence[str],
    overrides: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    sweep: Mapping[str, Any] | None = None,
) -> Suite:
    """A suite by its name or TOML file, or one of several recipes; the arguments are those of `compare`."""
    require_limits()
    from tff_re.comparison import suite

    changes = tuple(overrides), None if seeds is None else tuple(seeds), sweep
    return suite.load_suite(what, *changes) if isinstance(what, str) else suite.suite_of_recipes(tuple(what), *changes)


def run_suite(
    suite: Suite,
    out: PathLike,
    *,
    data: PathLike | None = None,
    trust: bool = False,
    resume: bool = False,
    runtime: str = DEFAULT_RUNTIME,
    on_start: Callable[[str, int, int], None] = lambda entry, seed, rounds: None,
    on_round: Callable[[RoundReport], None] = lambda report: None,
    **options: Any,
) -> Report:
    """Runs a suite of `load_suite` into a folder and writes its tables and plots; the errors are `compare`'s.

    Args:
      on_start: called before every run with the entry's name, the seed and the number of rounds.
      options: `jobs`, `cluster`, `part` and `watcher` of `tff_re.comparison.outcome.compare`.
    """
    where = data_paths(data, trust)
    from tff_re.comparison.report import run_and_report
    from tff_re.runs.experiment import ExperimentBuilder

    options |= {"on_start": on_start, "on_round": on_round, "runtime_name": runtime, "resume": resume}
    return run_and_report(suite, Path(out), builder=ExperimentBuilder(where), **options)


def report(path: PathLike, out: PathLike | None = None) -> Path:
    """Writes one HTML page, which needs no network, of a finished run or comparison; the file.

    Args:
      path: a folder that `train` or `compare` wrote; nothing else is read.
      out: the file; `report.html` in the folder by default.

    Raises:
      UserError, DataError: the folder holds no finished run or comparison, or a file of it is damaged.
    """
    from tff_re.pages.writing import write_page

    return write_page(Path(path), None if out is None else Path(out))


def entities_page(texts: Sequence[RecognisedText], predictor: EntityPredictor, out: PathLike) -> Path:
    """Writes one HTML page, which needs no network, of texts with their entities highlighted; it holds the texts.

    Args:
      texts: what `predictor.predict_file` or `recognise_each` gave.
      predictor: the export that found the entities.
      out: the file.

    Raises:
      DataError: the page cannot be written.
    """
    from datasets.files import write_atomically
    from tff_re.pages.entities import entities_page as page_of
    from tff_re.runs.folder import permissions

    model = (predictor.description.get("details") or {}).get("recipe") or predictor.description.get("model")
    with permissions():
        html = page_of(texts, predictor.entity_types, f"Entities that {model} found", f"Made by tff-re {__version__}.")
        write_atomically(Path(out), html.encode("utf-8"))
    return Path(out)


def export(
    run: PathLike,
    out: PathLike | None = None,
    *,
    formats: str = "both",
    quantise: str | None = None,
    tflite: bool = False,
    onnx: bool = False,
    huggingface: bool = False,
    adapter_only: bool = False,
    last: bool = False,
    training_digests: bool | None = None,
    overwrite: bool = False,
    data: PathLike | None = None,
    trust: bool = False,
    runtime: str = DEFAULT_RUNTIME,
) -> Path:
    """Exports the newest checkpoint of a run as a model that TensorFlow alone loads; the export's folder.

    Args:
      run: a folder that `train` wrote.
      out: where to write; `export` in the run's folder by default.
      formats: `keras`, `saved_model` or `both`.
      quantise: `float16` for a second SavedModel of half the size.
      tflite: whether model.tflite is written too.
      onnx: whether model.onnx is written too, with the tokenizer next to it; needs the extra `onnx` of setup.cfg.
      huggingface: whether a folder of the encoder is written too, which `transformers` loads with PyTorch.
      adapter_only: whether the adapter alone is written, as safetensors; `adapter` in the run's folder by default.
      last: the weights of the last round, also where a round was chosen on dev.
      training_digests: whether digests of the training texts are written; None: only of public data sets.
      overwrite: whether an older export of the run is replaced.
      trust: whether files that can run code are read, and a SavedModel is written that holds operations which
        `load_export` refuses without `trust`.

    Raises:
      UserError, DataError: there is no such run, its data are missing, or its model cannot be exported.
    """
    where = data_paths(data, trust)
    from tff_re.exporting.export_run import export_run
    from tff_re.sites.experiments import finished_builder

    target = None if out is None else Path(out)
    if not adapter_only:
        return export_run(
            Path(run),
            target,
            overwrite,
            where,
            runtime,
            formats=formats,
            quantise=quantise,
            tflite=tflite,
            onnx=onnx,
            huggingface=huggingface,
            last=last,
            training_digests=training_digests,
            builder_of=finished_builder,
        )
    from tff_re.exporting.export_adapter import export_adapter

    if formats != "both" or quantise or tflite or onnx or huggingface or training_digests:
        raise UserError(
            "an adapter is written in one form; leave out format, quantise, tflite, onnx, huggingface, training-digests"
        )
    return export_adapter(Path(run), target, overwrite, where, runtime, last=last, builder_of=finished_builder)


def audit(
    run: PathLike,
    out: PathLike | None = None,
    *,
    parts: Sequence[str] | None = None,
    canaries: int = 50,
    shadows: int = 8,
    seed: int | None = None,
    data: PathLike | None = None,
    trust: bool = False,
    runtime: str = DEFAULT_RUNTIME,
    on_step: Callable[[str], None] = lambda text: None,
) -> Audit:
    """Tries what a finished run reveals of its training texts, and writes a report; see docs/audit.md.

    Args:
      run: a folder that `train` wrote, or an export in it.
      out: where to write; `audit` in the run's folder by default.
      parts: some of `words`, `membership`, `canaries`, `artefacts`; all if not given.
      canaries: canary clients in the training that the audit does; 0 for none.
      shadows: shadow models that it trains; 0 for none.
      seed: of what it draws and trains; the run's if not given.
      on_step: called with a line before each longer piece of work.

    Raises:
      UserError, DataError: there is no finished run, or its data are missing.
    """
    where = data_paths(data, trust)
    from tff_re.auditing.audit import PARTS, audit_run

    out, parts = None if out is None else Path(out), PARTS if parts is None else parts
    return audit_run(
        Path(run), where, runtime, parts=parts, canaries=canaries, shadows=shadows, seed=seed, out=out, on_step=on_step
    )


def score(
    export: PathLike, file: PathLike, *, dataset: str | None = None, label: str | None = None, trust: bool = False
) -> Score:
    """Scores an exported model on a file that one of the readers reads.

    Args:
      export: an export's folder.
      file: in the data set's format.
      dataset: a name of the catalogue; the run's if not given.
      label: one of the data set's label choices; the run's if not given.

    Raises:
      UserError, DataError: there is no such export, or the file or its classes do not fit.
    """
    require_limits()
    from tff_re.exporting.prediction import load_export

    return load_export(export, trust=trust).score(Path(file), dataset, label)


def extract(
    entities: PathLike | EntityRecogniser,
    relations: PathLike | ExportedModel | None,
    file: PathLike,
    out: PathLike,
    *,
    lines: bool = False,
    dataset: str | None = None,
    pubtator: PathLike | None = None,
    graph: PathLike | None = None,
    html: PathLike | None = None,
    show_text: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    trust: bool = False,
    on_batch: Callable[[Progress], None] = lambda progress: None,
    **steps: Any,
) -> Extraction:
    """Extracts facts from raw documents into a file of JSON lines; see docs/extraction.md.

    Args:
      entities: the export that recognises entities, or a model that does.
      relations: the export that classifies pairs in sentences or in documents; None: write each document's mentions.
      file: .txt, .jsonl or .pubtator, also with .gz; or a folder of such files.
      out: where to write the facts.
      lines: whether each line of a .txt is a document.
      dataset: the data set in whose form the file is; the ending says the form if not given.
      pubtator: also write all texts with mentions and facts to this file; needs `show_text`.
      graph: also write the graph of the facts: a file .graphml, or a folder for GraphML and CSV.
      html: also write an HTML page of the first documents; needs `show_text`.
      show_text: whether words of the texts may be written.
      resume: continue an interrupted extraction.
      overwrite: replace the files of an older one.
      trust: as in `load_export`.
      on_batch: called after each batch of documents.
      steps: `terminology`, a TSV of names and ids; `similarity`, the least at which a name is linked; `pairs`, the only
        (head type, tail type) to classify; `renamed`, a type of the entities -> its name for the relations; `unit`,
        what the recogniser reads at once: `documents` or `sentences`.

    Raises:
      UserError, DataError: an export or a file cannot be used or written, or the exports do not fit each other.
    """
    require_limits()
    from tff_re.extraction.extract import Outputs, extract_to
    from tff_re.extraction.set_up import SetUp, named_model
    from tff_re.extraction.sources import Source
    from tff_re.pages.extraction_page import extraction_page
    from tff_re.runs.folder import permissions

    texts, drawn, page = (None if path is None else Path(path) for path in (pubtator, graph, html))
    outputs, source = Outputs(Path(out), texts, drawn, page, show_text), Source(Path(file), lines, dataset)
    if relations is None and graph is not None:
        raise UserError("the graph is of relations; give an export of relations, or leave the graph out")
    recogniser, predictor = named_model(entities, trust), None if relations is None else named_model(relations, trust)
    set_up = SetUp.make(recogniser, predictor, **steps)
    run = partial(extract_to, outputs, source, set_up.pipeline, notes=set_up.notes, page_of=extraction_page)
    with permissions():
        return run(
            settings=set_up.settings, exports=set_up.exports, resume=resume, overwrite=overwrite, on_batch=on_batch
        )


def evaluate_extraction(
    entities: PathLike | EntityRecogniser,
    relations: PathLike | ExportedModel,
    gold: PathLike,
    *,
    dataset: str | None = None,
    trust: bool = False,
    on_batch: Callable[[int], None] = lambda documents: None,
    **steps: Any,
) -> Evaluation:
    """Scores an extraction on gold documents: entities, relations on gold mentions, relations from the raw text.

    `gold` is a file in PubTator's form, or in that of `dataset`; the other arguments and the errors are those of
    `extract`.
    """
    require_limits()
    from tff_re.extraction.evaluation import evaluate
    from tff_re.extraction.set_up import SetUp, named_model
    from tff_re.extraction.sources import gold_documents

    models = named_model(entities, trust), named_model(relations, trust)
    label = (getattr(models[1][0], "description", {}).get("details") or {}).get("label")
    documents = gold_documents(Path(gold), dataset, label)
    set_up = SetUp.make(*models, **steps)
    return evaluate(set_up.pipeline(os.urandom(32)), documents, on_batch)


def _recipe(recipe: Recipe | PathLike) -> Recipe:
    return recipe if isinstance(recipe, Recipe) else load_recipe(recipe)


def data_paths(data: PathLike | None = None, trust: bool = False, partition: PathLike | None = None) -> DataPaths:
    """Where a run finds its data, see `train`; to be called before TensorFlow is imported.

    Raises:
      UserError: there is no such folder, or this process is allowed too little memory or too few files.
    """
    from tff_re.tasks.data_paths import DataPaths

    require_limits()
    if data is not None and not Path(data).is_dir():
        raise UserError(f"{data}: no such folder")
    folder, file = (None if path is None else Path(path) for path in (data, partition))
    return DataPaths(data=folder, partition=file, trust=trust)
