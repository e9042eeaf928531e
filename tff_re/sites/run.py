"""Training a run across sites: the usual run, whose examples and clients' states are elsewhere."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from datasets.files import csv_text
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.evaluation import measured_at
from tff_re.runs.experiment import Experiment
from tff_re.runs.finished import FinishedRun, open_run
from tff_re.runs.folder import RunFolder, write_text
from tff_re.runs.reading import read_table
from tff_re.runs.run import train_in
from tff_re.runs.setup import Setup
from tff_re.runs.training import Result
from tff_re.runtime.errors import WorkerDied
from tff_re.runtime.events import RUN_NOTE, SITES_AGREED
from tff_re.sites.agreement import Agreement, read_agreement
from tff_re.sites.asking import Patience
from tff_re.sites.experiments import finished_builder
from tff_re.sites.runtime import SitesRuntime
from tff_re.sites.set_up import agree
from tff_re.sites.transport import Engine
from tff_re.tasks.data_paths import DataPaths

_log = logging.getLogger("tff_re.sites")


class AcrossSites(Setup):
    """Data at sites, which compute for their clients.

    The run also writes sites.json, took_part.csv and, of sites that allow it, site_metrics.csv.

    Args:
      engine: reaches the sites; their sums are added in its order.
      patience: how long sites are waited for.
      on_line: called with a line for the user: which sites are waited for, lost or back.
    """

    def __init__(
        self, engine: Engine, patience: Patience | None = None, on_line: Callable[[str], None] = lambda line: None
    ):
        self._sites = engine.sites
        self._runtime = SitesRuntime(os.devnull, engine=engine, patience=patience, on_line=on_line)
        self._opened = contextlib.ExitStack()
        self._known: Agreement | None = None

    def check(self, folder, data_paths, *, resume):
        """See `Setup`."""
        if data_paths.partition is not None:
            raise UserError("--partition: the partition of a run across sites is what they hold; leave it out")
        if resume and folder.sites.exists():
            self._known = read_agreement(folder.sites)
            _require_sites_of(folder, self._known.sites, self._sites)

    def build(self, recipe, folder, data_paths, start, *, resume):
        """See `Setup`.

        Raises:
          UserError: a site refuses the recipe or is not there, what they hold does not fit together, or, with `resume`,
            is not what the run was begun with.
        """
        runtime = self._opened.enter_context(self._runtime)
        run = None if self._known is None else self._known.run
        self._agreement, numbers, experiment = agree(runtime.sites, recipe, data_paths, run, start)
        if self._known is not None and self._agreement != self._known:
            raise UserError(
                f"{folder.path}: the sites' clients, classes, words or allow.evaluation are not those that the run was "
                "begun with; bring the sites' data and site.toml back, or train into another --out"
            )
        runtime.take(self._agreement, numbers, experiment)
        self._measures = experiment.prepared.measures
        return experiment

    def open(self, folder, stack):
        """See `Setup`."""
        return self._runtime

    def begun(self, folder):
        """See `Setup`."""
        table = read_table(folder.took_part, "round", "sites")
        self._rounds = {int(row["round"]): row["sites"].split() for row in table}
        self._rows = {(int(row["round"]), row["split"], row["site"]): row for row in read_table(folder.site_metrics)}
        hidden = set(self._agreement.sites_that_allow("own")) - {*self._runtime.sites_with_rows}
        if hidden:
            line = (
                f"no rows of single sites are written ({', '.join(sorted(hidden))}): sums are masked, and a row would "
                "tell the sums of the other sites"
            )
            self._runtime.sites.say(RUN_NOTE, line=line)
        write_text(folder.sites, self._agreement.to_json() + "\n")
        patience, clients = self._runtime.sites.patience, len(self._agreement.clients)
        said = {"clients": clients, "quorum": patience.quorum, "seconds": patience.stage_seconds}
        SITES_AGREED.log(_log, sites=self._agreement.sites, **said)

    def after_round(self, folder, report):
        """See `Setup`."""
        self._write_rows(folder, report.round)
        self._rounds[report.round] = self._runtime.took_part.get(report.round, [])
        rows = [[number, " ".join(sites)] for number, sites in sorted(self._rounds.items()) if number <= report.round]
        write_text(folder.took_part, csv_text([["round", "sites"], *rows]))

    def _write_rows(self, folder: RunFolder, round_num: int) -> None:
        """Write site_metrics.csv up to a round, without a row of a site that does not allow it."""
        for (number, split), results in self._runtime.evaluations.items():
            for site, measured in measured_at(self._measures, results).items():
                self._rows[number, split, site] = measured
        self._runtime.evaluations.clear()
        self._rows = {key: row for key, row in self._rows.items() if key[0] <= round_num}
        if self._rows:
            names = ["examples", *self._measures.names]
            rows = [[*key, *(row[name] for name in names)] for key, row in sorted(self._rows.items())]
            write_text(folder.site_metrics, csv_text([["round", "split", "site", *names], *rows]))

    def finish(self):
        """See `Setup`."""
        self._runtime.finish()

    def close(self):
        """See `Setup`."""
        self._opened.close()


def train_at_sites(
    recipe: Recipe,
    out: Path,
    engine: Engine,
    *,
    patience: Patience | None = None,
    on_line: Callable[[str], None] = lambda line: None,
    **options: Any,
) -> tuple[Experiment, Result]:
    """Train a recipe into a folder across sites.

    Args:
      engine, patience, on_line: see `AcrossSites`.
      options: those of `train_in`. `data_paths` are the coordinator's; no examples of clients are read. With `from_run`
        the new run has the old run's vocabulary, for which no site sends words.

    Raises:
      UserError: see `AcrossSites.build`.
    """
    setup = AcrossSites(engine, patience, on_line)
    return train_in(setup, recipe, out, on_line=on_line, builder_of=finished_builder, **options)


def _require_sites_of(folder: RunFolder, sites: Sequence[str], named: Sequence[str]) -> None:
    """Raise UserError unless the named sites are those that the run began with."""
    if more := [site for site in named if site not in sites]:
        raise UserError(
            f"{folder.path}: the run is of the sites {', '.join(sites)}, and {', '.join(more)} cannot join it; begin a "
            f"new run with its weights: train RECIPE --from {folder.path} --sites {','.join(named)} --out NEW"
        )
    if missing := [site for site in sites if site not in named]:
        raise UserError(
            f"{folder.path}: the run continues with all of its sites, and {', '.join(missing)} is not named; give "
            f"--sites {','.join(sites)}"
        )


@contextlib.contextmanager
def open_at_sites(
    path: Path,
    data_paths: DataPaths,
    engine: Engine,
    *,
    patience: Patience | None = None,
    last: bool = False,
    on_line: Callable[[str], None] = lambda line: None,
) -> Iterator[tuple[FinishedRun, SitesRuntime]]:
    """Like `open_run`, for a run across sites.

    The sites answer its evaluations from what they stored for it.

    Raises:
      UserError: there is no such run, a site of it is not reached, does not answer, or does not know the run.
    """
    folder = RunFolder(path)
    folder.require_run()
    if not folder.sites.exists():
        raise UserError(f"{path}: is not a run across sites; leave out --sites and --runtime")
    agreement = read_agreement(folder.sites)
    if missing := sorted(set(agreement.sites) - set(engine.sites)):
        raise UserError(
            f"{path}: an evaluation is over all sites of the run, and {', '.join(missing)} is not named; give "
            f"--sites {','.join(agreement.sites)}"
        )
    patience = patience or Patience(retry_seconds=10.0)
    runtime = SitesRuntime(os.devnull, engine=engine, patience=patience, on_line=on_line)
    with open_run(path, data_paths, runtime, last=last, builder_of=finished_builder) as (run, _):
        runtime.take_again(agreement, run.experiment)
        try:
            yield run, runtime
        except WorkerDied as error:
            raise UserError(f"{path}: {error}") from None
