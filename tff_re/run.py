"""The command line: `python -m tff_re.run`. Parses, calls the floor below, prints."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import click

from tff_re import __version__
from tff_re.cli.terminal import drop_standard_output, guarded_output
from tff_re.errors import UserError
from tff_re.quiet import be_quiet
from tff_re.runtime import RuntimeProblem, check_runtime_name, runtime_names
from tff_re.runtime.tls import VARIABLES, chosen
from tff_re.tasks.sizes import require_limits

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


def _example(text: str) -> str:
    return "\b\nExample:\n  " + "\n  ".join(text.splitlines())


_recipe_options = [
    click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the recipe."),
    click.option("--data", type=click.Path(path_type=Path), help="Folder of the data sets [default: $TFF_RE_DATA]."),
    click.option(
        "--trust",
        is_flag=True,
        help="Read files that can run code (gensim's pickles, exports that were changed or are not of this project).",
    ),
]
_run_options = [
    click.option("--out", type=click.Path(path_type=Path), help="Folder to write."),
    click.option("--resume", is_flag=True, help="Continue what is in the folder already."),
]


class _RuntimeName(click.ParamType):
    name = "runtime"

    def get_metavar(self, param, ctx=None):
        return f"[{'|'.join(runtime_names())}]"

    def convert(self, value, param, ctx):
        try:
            check_runtime_name(value)
        except RuntimeProblem as error:
            self.fail(str(error), param, ctx)
        return value


_runtime_option = click.option(
    "--runtime", type=_RuntimeName(), default="local", show_default=True, help="Where computations run."
)
_seed_option = click.option("--seed", type=click.IntRange(min=0), help="Seed, in place of the recipe's.")


def _with(*groups):
    def decorate(function):
        for option in reversed([o for group in groups for o in (group if isinstance(group, list) else [group])]):
            function = option(function)
        return function

    return decorate


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}, invoke_without_command=True
)
@click.version_option(__version__, prog_name="tff-re")
@click.pass_context
def cli(context):
    """Federated relation extraction and Chinese medical text classification on TensorFlow Federated."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@cli.command(
    epilog=_example("python -m tff_re.run train flcmc-shipped-fedpap --set training.rounds=20 --out runs/first")
)
@click.argument("recipe")
@_with(_recipe_options, _run_options, _seed_option, _runtime_option)
@click.option("--partition", type=click.Path(path_type=Path), help="Read the partition from this file.")
def train(recipe, overrides, data, trust, out, resume, seed, runtime, partition):
    """Train RECIPE (a name that `recipes` lists, or a TOML file) into a folder."""
    from tff_re.cli import commands

    commands.train(recipe, overrides, _data_paths(data, trust, partition), out, resume, seed, runtime)


@cli.command(epilog=_example("python -m tff_re.run compare --suite flcmc-synthetic --out runs/table8"))
@click.argument("recipes", nargs=-1)
@click.option("--suite", help="A comparison that comes with the project, or a TOML file of one.")
@click.option("--seeds", help="Seeds with commas between, in place of the suite's, e.g. 0,1,2.")
@_with(_recipe_options, _run_options, _runtime_option)
def compare(recipes, suite, seeds, overrides, data, trust, out, resume, runtime):
    """Compare recipes, or the algorithms of a suite, on the same partitions and seeds."""
    from tff_re.cli import commands

    commands.compare(recipes, suite, _seeds(seeds), overrides, _data_paths(data, trust), out, resume, runtime)


@cli.command(
    epilog=_example(
        "python -m tff_re.run evaluate runs/first --split test\n"
        "python -m tff_re.run evaluate runs/first/export --file corpora/pgr/test.tsv"
    )
)
@click.argument("run", metavar="RUN|EXPORT", type=click.Path(path_type=Path))
@click.option("--split", type=click.Choice(["test", "dev", "train"]), help="Of a run's examples [default: test].")
@click.option("--file", type=click.Path(path_type=Path), help="Score an export on this file (also: --data FILE).")
@click.option("--dataset", help="The data set whose format the file has [default: the run's].")
@click.option("--label", help="The data set's label choice [default: the run's].")
@_with(_recipe_options[1:], _runtime_option)
def evaluate(run, split, file, dataset, label, data, trust, runtime):
    """Evaluate the newest checkpoint of RUN (a folder that `train` wrote) on every client or on what its server holds,
    or EXPORT on a file."""
    from tff_re.cli import commands

    require_limits()
    if (run / "export.json").is_file():
        if file is None and data is not None:
            file = data
        if file is None:
            raise UserError(f"{run}: is an export; give the file to score it on by --file")
        if split is not None:
            raise UserError(f"{run}: is an export, which has no splits; leave --split out")
        commands.evaluate_export(run, file, dataset, label, trust)
        return
    for option, value in (("file", file), ("dataset", dataset), ("label", label)):
        if value is not None:
            raise UserError(f"{run}: --{option} is for exports, and this holds no export.json; leave it out")
    commands.evaluate(run, split or "test", _data_paths(data, trust), runtime)


@cli.command(epilog=_example("python -m tff_re.run cases runs/lazy-mil runs/one --facts 2"))
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@click.option("--facts", type=click.IntRange(min=1), default=3, show_default=True, help="How many facts.")
@click.option("--pair", metavar="HEAD,TAIL", help="Identifiers of a pair of entities, in place of --facts.")
@click.option(
    "--sentences", type=click.IntRange(min=1), default=20, show_default=True, help="Of a fact, those of most weight."
)
@click.option("--show-text", is_flag=True, help="Show the sentences (they may be patients').")
@click.option("--out", type=click.Path(path_type=Path), help="A CSV file to write: all sentences, without texts.")
@_with(_recipe_options[1:], _runtime_option)
def cases(runs, facts, pair, sentences, show_text, out, data, trust, runtime):
    """Show which sentences of a fact, on which platforms, each RUN's method trains on (runs on bags, of one seed)."""
    from tff_re.cli import commands

    commands.cases(runs, facts, _pair(pair), sentences, show_text, out, _data_paths(data, trust), runtime)


@cli.command(epilog=_example("python -m tff_re.run export runs/first --quantise float16"))
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write [default: RUN/export].")
@click.option("--overwrite", is_flag=True, help="Replace an older export.")
@click.option(
    "--format",
    "formats",
    type=click.Choice(["both", "keras", "saved_model"]),
    default="both",
    show_default=True,
    help="What to write.",
)
@click.option("--quantise", type=click.Choice(["float16"]), help="Write a second SavedModel with weights in 16 bits.")
@click.option("--tflite", is_flag=True, help="Write model.tflite too: encoded inputs, weights in 8 bits.")
@_with(_recipe_options[1:], _runtime_option)
def export(run, out, overwrite, formats, quantise, tflite, data, trust, runtime):
    """Export RUN as a model (.keras and SavedModel) that takes raw text, with a model card."""
    from tff_re.cli import commands

    forms = {"formats": formats, "quantise": quantise, "tflite": tflite}
    commands.export(run, out, overwrite, _data_paths(data, trust), runtime, **forms)


@cli.command(
    epilog=_example(
        "python -m tff_re.run predict runs/first/export 孩子发烧两天了\n"
        "python -m tff_re.run predict runs/chemprot/export '<e1>Aspirin</e1> inhibits <e2>COX-2</e2>.'"
    )
)
@click.argument("export", type=click.Path(path_type=Path))
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option("--file", type=click.Path(path_type=Path), help="Read the texts from this file, a line each.")
@click.option("--json-lines", is_flag=True, help='Lines are JSON objects: {"text": …, "head": [a, b], "tail": [a, b]}.')
@click.option("--head-type", help="Type of the first mention, for a model that reads types.")
@click.option("--tail-type", help="Type of the second mention.")
@click.option("--dataset", help="For bags and documents: the data set whose form the file has [default: the run's].")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each text in place of a table.")
@click.option("--show-text", is_flag=True, help="Show the texts beside their labels (they may be patients').")
@click.option("--trust", is_flag=True, help="Load an export that was changed, or whose graph could do anything.")
def predict(export, texts, file, json_lines, head_type, tail_type, dataset, as_json, show_text, trust):
    """Classify TEXTs (or the lines of a file or of standard input) with an exported model: label and probability.

    A model of bags or of documents takes a file in its data set's form and answers for each pair of entities.

    For relations a text has its mentions marked: <e1>head</e1>, <e2>tail</e2>. A line that cannot be read is named and
    does not stop the others; the exit code is 2 then.
    """
    from tff_re.cli import commands

    require_limits()
    from tff_re.cli.predict_input import Shown, Source

    shown = Shown(json=as_json, text=show_text)
    commands.predict(export, texts, Source(file, json_lines, head_type, tail_type), shown, dataset, trust)


@cli.command(epilog=_example("python -m tff_re.run recipes"))
@click.option("--keys", is_flag=True, help="Show every key of a recipe, its default and its meaning, as Markdown.")
def recipes(keys):
    """List the recipes and suites that come with the project."""
    from tff_re.cli import commands

    commands.recipes(keys)


@cli.command(epilog=_example("python -m tff_re.run datasets --data ~/corpora"))
@click.option("--data", type=click.Path(path_type=Path), help="Folder of the data sets [default: $TFF_RE_DATA].")
def datasets(data):
    """List the data sets, and which of their files are there."""
    from tff_re.cli import commands

    commands.datasets(_folder(data))


@cli.command(epilog=_example("python -m tff_re.run partition flcmc-shipped-fedpap --out runs/partition"))
@click.argument("recipe")
@_with(_recipe_options, _seed_option)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for partition.json, the table and the heatmap.")
def partition(recipe, overrides, data, trust, seed, out):
    """Show which client would hold what under RECIPE; nothing is trained."""
    from tff_re.cli import commands

    commands.partition(recipe, overrides, _data_paths(data, trust), seed, out)


@cli.command(epilog=_example("python -m tff_re.run doctor"))
@click.option("--data", type=click.Path(path_type=Path), help="Folder of the data sets [default: $TFF_RE_DATA].")
def doctor(data):
    """Check this machine and this installation; start a worker and stop it again."""
    from tff_re.cli import commands

    commands.doctor(_folder(data))


@cli.command(
    epilog=_example(
        "python -m tff_re.run worker --port 8000 --tls-cert me.pem --tls-key me.key --tls-ca hospitals.pem\n"
        "python -m tff_re.run worker --check ward3:8000"
    )
)
@click.option("--port", type=click.IntRange(1, 65535), help="Where to listen.")
@click.option("--bind", metavar="ADDR", help="Address to listen on [default: with TLS 0.0.0.0, without it 127.0.0.1].")
@click.option("--max-concurrent", type=click.IntRange(min=1), help="Clients side by side [default: as many as cores].")
@click.option("--tls-cert", type=click.Path(path_type=Path), envvar=VARIABLES["cert"], help="Our certificate.")
@click.option("--tls-key", type=click.Path(path_type=Path), envvar=VARIABLES["key"], help="Its key.")
@click.option("--tls-ca", type=click.Path(path_type=Path), envvar=VARIABLES["ca"], help="Who signed the others'.")
@click.option("--insecure", is_flag=True, help="No TLS, on all interfaces: for whoever reaches the port.")
@click.option("--log", type=click.Path(path_type=Path), help="File for its output [default: runs/worker-PORT.log].")
@click.option("--check", metavar="HOST:PORT", help="Start none; say whether one answers there.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=10, show_default=True, help="Of --check."
)
def worker(port, bind, max_concurrent, tls_cert, tls_key, tls_ca, insecure, log, check, timeout):
    """Run a worker for `--runtime remote:…` of other machines, until Ctrl-C; or check one (exit code 0 or 2)."""
    from tff_re.cli import worker as worker_command

    if (port is None) == (check is None):
        raise UserError("give --port PORT to start a worker, or --check HOST:PORT to ask for one")
    tls = chosen(cert=tls_cert, key=tls_key, ca=tls_ca)
    if check is not None:
        worker_command.check(check, tls, timeout)
    else:
        worker_command.serve(port, bind, max_concurrent, tls, insecure, log)


@cli.command(epilog=_example("python -m tff_re.run demo --out runs/demo"))
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/demo"), show_default=True)
def demo(out):
    """Train, compare, plot, export and classify on what comes with the project: a few minutes."""
    require_limits()
    from tff_re.cli import commands

    commands.demo(out)


def _data_paths(data, trust, partition=None):
    require_limits()
    _folder(data)
    if partition is not None and not partition.is_file():
        raise UserError(f"--partition {partition}: no such file")
    from tff_re.tasks.data_paths import DataPaths

    return DataPaths(data=data, partition=partition, trust=trust)


def _folder(data):
    if data is not None and not data.is_dir():
        raise UserError(f"--data {data}: no such folder")
    return data


def _pair(text):
    if text is None:
        return None
    parts = tuple(part.strip() for part in text.split(","))
    if len(parts) != 2 or not all(parts):
        raise UserError(f"--pair {text}: must be two identifiers with a comma between, e.g. D008094,D014262")
    return parts


def _seeds(text):
    if text is None:
        return None
    try:
        seeds = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"--seeds {text}: must be whole numbers with commas between, e.g. 0,1,2") from None
    if min(seeds) < 0 or len(set(seeds)) != len(seeds):
        raise UserError(f"--seeds {text}: must be different and not negative")
    if max(seeds) >= 2**32:
        raise UserError(f"--seeds {text}: must be from 0 to 2^32 - 1")
    return seeds


def _refuse_other_datasets() -> None:
    """`datasets` is also the name of a Hugging Face package, which would be imported in place of ours or beside it."""
    from importlib import metadata

    try:
        metadata.version("datasets")
    except metadata.PackageNotFoundError:
        return
    raise UserError(
        "the Hugging Face package 'datasets' is installed in this environment and has the name of ours; use the "
        "project's own environment (make setup) or run: pip uninstall datasets"
    )


def _known_errors() -> tuple[type[BaseException], ...]:
    """Errors whose text is the line to print. The modules are small; none of them imports TensorFlow."""
    from datasets.errors import DataError
    from tff_re.runtime.errors import RuntimeProblem

    errors = [UserError, DataError, RuntimeProblem]
    if "computations.errors" in sys.modules:
        errors.append(sys.modules["computations.errors"].CompositionError)
    return tuple(errors)


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; returns its exit code: 0, 2 for bad input with one line on standard error, 130 for Ctrl-C.

    Where the reader of standard output goes (a pipe into head), the command goes on in silence to its end.
    """
    be_quiet()
    from tff_re.runtime import install_signal_handlers

    install_signal_handlers()
    code = 0
    try:
        with guarded_output():
            code = _run(sys.argv[1:] if arguments is None else list(arguments))
        return code
    except BrokenPipeError:  # the last of the output may come after the command's end
        drop_standard_output()
        return code
    except UserError as error:  # of what was still in standard output's buffer
        return _fail(str(error))


def _run(arguments: list[str]) -> int:
    try:
        _refuse_other_datasets()
        # Not cli.main(), which prints an empty line of its own for Ctrl-C.
        with cli.make_context("python -m tff_re.run", arguments) as context:
            cli.invoke(context)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as error:
        data_paths = f" (see: {error.ctx.command_path} --help)" if getattr(error, "ctx", None) else ""
        return _fail(error.format_message() + data_paths)
    except (click.Abort, KeyboardInterrupt):
        after = "\n" if sys.stderr.isatty() else ""  # the terminal's ^C
        print(f"{after}tff-re: interrupted; a run continues with --resume", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None:
            raise
        return _fail(f"{error.filename}: {error.strerror}")
    except Exception as error:
        if not isinstance(error, _known_errors()):
            raise
        return _fail(str(error))
    return 0


def _fail(message: str) -> int:
    with contextlib.suppress(OSError):  # standard error may be full, too
        print("tff-re: " + " ".join(message.split()), file=sys.stderr)
    return EXIT_BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
