"""`audit SITE.TOML`: what the updates that a site kept tell of its data."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from rich.table import Table

from tff_re.cli.display import console, say
from tff_re.errors import UserError


def audit_site(file: Path, out: Path | None) -> None:
    """Print a table for each run whose updates the site has kept, and write it to `out`, a JSON file.

    Raises:
      UserError: there are none.
    """
    from tff_re.auditing.site_updates import audit_site_updates
    from tff_re.sites.messages import Lost, Refused
    from tff_re.sites.policy import read_site
    from tff_re.sites.site import SiteService
    from tff_re.sites.store import RunStore
    from tff_re.sites.updates import kept_updates

    site, audits = read_site(file), {}
    service = SiteService(site)
    try:
        for folder in sorted((site.state / "runs").glob("*")):
            updates = kept_updates(RunStore(site.state, folder.name))
            if not updates:
                continue
            try:
                run = service.known_run(folder.name)
            except (Refused, Lost) as error:
                say(f"run {folder.name[:8]}: not audited: {error}")
                continue
            examples = {client: parts[0] for client, parts in run.examples.items()}
            audits[folder.name] = audit_site_updates(run.experiment, examples, updates)
            console.print(_table(folder.name, audits[folder.name]))
    finally:
        service.close()
    if not audits:
        raise UserError(f"{file}: no updates of a run are kept; set keep_updates in it before a run begins")
    if out is not None:
        content = {run: [dataclasses.asdict(row) for row in rows] for run, rows in audits.items()}
        out.write_text(json.dumps(_finite(content), indent=2) + "\n", "utf-8")
        say(f"written: {out}")


def _table(run: str, audits: list) -> Table:
    table = Table(title=f"Updates that left in run {run[:8]}")
    for heading in ("round", "clients", "words", "rows changed", "of these, words", "ranking", "most frequent label"):
        table.add_column(heading, justify="right")
    for row in audits:
        words, labels = row.words, row.labels
        of_words = ["–"] * 4
        if words is not None:
            ranking = "–" if math.isnan(words.ranking) else f"{words.ranking:.3f}"
            of_words = [str(words.words), str(words.changed), f"{words.precision:.1%}", ranking]
        label = "–" if labels is None else "told" if labels.hit else "not told"
        table.add_row(str(row.round), str(row.clients), *of_words, label)
    return table


def _finite(value: Any) -> Any:
    """Return the value with None in place of NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value
