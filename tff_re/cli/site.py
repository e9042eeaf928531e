"""`site`: answers a coordinator from this machine's own data, until Ctrl-C."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import click

from tff_re.cli import options
from tff_re.runtime import events

_log = logging.getLogger("tff_re")


@click.command(
    epilog=options.example(
        "python -m tff_re.run site hospital/site.toml --key\npython -m tff_re.run site hospital/site.toml\n"
        "python -m tff_re.run site --digest flcmc-shipped-fedpap\n"
        "python -m tff_re.run site hospital/site.toml --check flcmc-shipped-fedpap --out check.html"
    )
)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--digest", metavar="RECIPE", help="Print a recipe's digest, for allow.recipes, and end.")
@click.option("--key", is_flag=True, help="Print the site's public key, for [sites] of the others, and end.")
@click.option("--mask-key", is_flag=True, help="Print its public key of masked sums, for [mask_keys], and end.")
@click.option("--ledger", is_flag=True, help="Print what left the site in all runs, and the ε they spent, and end.")
@click.option("--check", metavar="RECIPE", help="Print whether the site's data fit a recipe, and end.")
@options.path_option("--out", help="Also write what --check prints, to FILE.html or FILE.json.")
@options.overrides
@options.log
def site(file, digest, key, mask_key, ledger, check, out, overrides):
    """Answer a coordinator's rounds from the data that FILE (site.toml) names, on a local socket; no port is opened."""
    from tff_re.errors import UserError
    from tff_re.tasks.sizes import require_limits

    require_limits()
    for option, typed in (("--key", key), ("--mask-key", mask_key), ("--ledger", ledger), ("--check RECIPE", check)):
        if typed and file is None:
            raise UserError(f"{option} needs the site's file: site SITE.TOML {option}")
    if (file is None) == (digest is None):
        raise UserError("give a site's file to start the site, or --digest RECIPE")
    if out is not None and check is None:
        raise UserError("--out is where --check RECIPE writes its page; give both")
    if check is not None:
        from tff_re.cli.site_check import check_site

        check_site(file, check, overrides, out)
        return
    if digest is not None:
        from tff_re.recipes.reading import load
        from tff_re.sites.policy import recipe_digest

        click.echo(recipe_digest(load(digest, overrides)))
        return
    from tff_re.sites.policy import read_site

    config = read_site(file)
    if key or mask_key:
        _print_key(config, masks=mask_key)
        return
    from tff_re.sites.ledger import Ledger
    from tff_re.sites.surveys import survey_lines

    lines = Ledger(config.state, config.options.allow).lines(runs=ledger) + survey_lines(config.state)
    if ledger:
        click.echo("\n".join(lines) or "no run was begun on this site's data")
        return
    for line in lines:
        click.echo(f"ledger: {line}")
    from tff_re.sites.starting import start_lines

    for line in start_lines(config, file):
        click.echo(line)
    _log_to(config.state / "site.log")
    from tff_re.sites.site import SiteService
    from tff_re.sites.transport import Serving

    service = SiteService(config)
    serving = Serving(service.answer, config.socket)
    click.echo(f"site {config.options.name} answers on {config.socket}; its log is {config.state / 'site.log'}")
    events.SITE_BEGUN.log(_log, site=config.options.name)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            serving.run()
    finally:
        serving.close()
        service.close()
        events.SITE_ENDED.log(_log, site=config.options.name)


def _print_key(config, *, masks: bool) -> None:
    """Print this site's line for the others' [sites] or [mask_keys], and make the key if there is none."""
    from tff_re.sites.keys import make_key, mask_key, public_text

    path, table = config.path(config.options.key), "mask_keys" if masks else "sites"
    if make_key(path):
        click.echo(f"written: {path}; keep it, and give the other sites' operators this line for [{table}]:", err=True)
    key = config.signing_key()
    click.echo(f'{config.options.name} = "{public_text(mask_key(key) if masks else key)}"')


def _log_to(path: Path) -> None:
    """Append the log to a file that only this user can read."""
    from tff_re.runtime.logs import formatter, log_form

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(formatter(log_form()))
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    _log.propagate = False
