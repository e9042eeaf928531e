"""`validate`: an exported model on a file, as a signed result without text."""

from __future__ import annotations

import time
from pathlib import Path

import click

from tff_re.cli import options
from tff_re.cli.display import console, metrics_table, say, say_seen, say_written
from tff_re.errors import UserError


@click.command(
    epilog=options.example(
        "python -m tff_re.run validate --make-key --key aachen.pem --name aachen\n"
        "python -m tff_re.run validate export --file test.tsv --key aachen.pem --name aachen --out aachen.json"
    )
)
@click.argument("export", type=click.Path(path_type=Path), required=False)
@options.path_option("--file", help="Evaluate the export on this file.")
@options.path_option("--key", required=True, help="The site's private key (PEM), which signs the result.")
@click.option(
    "--make-key", is_flag=True, help="Write a new key to --key if there is none, print its public key, and end."
)
@click.option("--name", metavar="SITE", help="The site's name, as the list of keys has it.")
@options.path_option("--out", help="JSON file to write.")
@click.option("--dataset", help="The data set whose format the file has [default: the run's].")
@click.option("--label", help="The data set's label choice [default: the run's].")
@click.option("--no-classes", is_flag=True, help="Leave out the counts by class, which can be small.")
def validate(export, file, key, make_key, name, out, dataset, label, no_classes):
    """Evaluate EXPORT on a file, and write the metrics, counts and digests as signed JSON. No text is written. The
    `validations` command checks the results of all sites and makes a table."""
    from tff_re.sites.keys import read_key
    from tff_re.sites.validation import NAME, signed_file

    if name is not None and not NAME.fullmatch(name):
        raise UserError(f"--name {name}: use letters, digits, '.', '_' and '-', at most 63")
    if make_key:
        if export or file or out:
            raise UserError("--make-key evaluates nothing; leave EXPORT, --file and --out out")
        _make_key(key, name)
        return
    if export is None or file is None or out is None:
        raise UserError("give EXPORT, --file and --out, or --make-key to make a key")
    signing_key = read_key(key, "validate --make-key --key KEY.pem")
    if out.exists() or out.is_symlink():
        raise UserError(f"{out}: is there already; choose another file or remove it")
    if not out.parent.is_dir():
        raise UserError(f"{out.parent}: no such folder; create it first")
    score, content = _evaluated(export, file, dataset, label, classes=not no_classes)
    data = signed_file({"name": name, **content}, signing_key)
    from datasets.files import write_atomically

    write_atomically(out, data)
    console.print(metrics_table(score.title(file.name), score.metrics, score.trivial))
    for note in score.notes:
        say(note)
    say_seen(score.seen, file.name)
    say_written([out])


def _make_key(path: Path, name: str | None) -> None:
    """The site's line in the list of keys, and make the key if there is none."""
    from tff_re.sites.keys import make_key, public_text, read_key

    if make_key(path):
        click.echo(f"written: {path}; keep it, and send this line to whoever collects the results:", err=True)
    click.echo(f'{name or "NAME"} = "{public_text(read_key(path, "validate --make-key --key KEY.pem"))}"')


def _evaluated(export: Path, file: Path, dataset: str | None, label: str | None, *, classes: bool):
    """The score and what is signed of it.

    Raises:
      UserError, DataError: as `tff_re.score`, or the export or the file changed meanwhile.
    """
    from tff_re import __version__, api
    from tff_re.exporting.digests import digest_of_export, digest_of_folder
    from tff_re.exporting.prediction import require_export

    require_export(export)

    def digests() -> dict[str, str]:
        from datasets.files import sha256_of

        of_file = digest_of_folder(file) if file.is_dir() else sha256_of(file)
        return {"export": digest_of_export(export), "file": of_file}

    before = digests()
    score = api.score(export, file, dataset=dataset, label=label)
    if digests() != before:
        raise UserError(f"{export} or {file} changed while it was evaluated; try again")
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return score, {**before, **score.facts(classes=classes), "time": now, "tff_re": __version__}
