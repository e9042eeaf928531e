"""An audit of a finished run, part by part, into a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tff_re.auditing.artefacts import audit_artefacts
from tff_re.auditing.canaries import audit_canaries, claim_of
from tff_re.auditing.judgement import judgement
from tff_re.auditing.membership import audit_membership
from tff_re.auditing.report import NUMBERS_FILE, Audited, summary_rows, write_report
from tff_re.auditing.sections import Section
from tff_re.auditing.updates import audit_updates
from tff_re.errors import UserError, nearest
from tff_re.runs.features.aggregation import rule_of
from tff_re.runs.features.attack import Attack
from tff_re.runs.features.guarantee import not_covered
from tff_re.runs.finished import FinishedRun, may_be_written, open_run
from tff_re.runs.folder import RunFolder, make_private_folder, permissions, writing
from tff_re.tasks.data_paths import DataPaths

PARTS = ("words", "membership", "canaries", "artefacts")


@dataclass(frozen=True, repr=False)
class Audit:
    """A finished audit.

    Attributes:
      sections: part -> what it found.
      files: the files written, audit.md first.
    """

    sections: dict[str, Section]
    files: list[Path]

    @property
    def summary(self) -> list[list[str]]:
        """Rows of the table at the report's end: part, finding, value, interval, by chance, what would cover it."""
        return summary_rows(self.sections)

    @property
    def judgement(self) -> list[str]:
        """The verdict, and a sentence for each part."""
        return judgement(self.sections)

    def __repr__(self) -> str:
        return f"Audit({self.judgement[0]} {len(self.sections)} parts, report in {self.files[0]})"


def audit_run(
    path: Path,
    data_paths: DataPaths,
    runtime: str,
    *,
    parts: Sequence[str] = PARTS,
    canaries: int = 50,
    shadows: int = 8,
    seed: int | None = None,
    out: Path | None = None,
    on_step: Callable[[str], None] = lambda text: None,
) -> Audit:
    """Audits a run, or an export that lies in its run's folder, and writes the report.

    Args:
      path: the folder.
      data_paths: where the run's data are.
      runtime: name of a runtime.
      parts: of `PARTS`, which are done.
      canaries: how many canary clients there are.
      shadows: how many shadow models are trained.
      seed: of what the audit draws, and of what it trains; the run's if not given.
      out: the folder to write; `audit` in the run's folder by default.
      on_step: called with a line before each longer piece of work.

    Raises:
      UserError: there is no finished run, an option has no meaning, or `out` holds something else.
      DataError: the run's data are missing or malformed.
    """
    for part in parts:
        if part not in PARTS:
            raise UserError(f"--parts: there is no part '{part}'; {nearest(part, PARTS)}")
    if not parts:
        raise UserError(f"--parts: names no part; give one or more of {', '.join(PARTS)}")
    if shadows == 1:
        raise UserError(
            "--shadows 1: each example must be in one shadow model and out of another; give 2 or more, or 0"
        )
    if canaries and canaries < 10:
        raise UserError(f"--canaries {canaries}: too few for a result; give 10 or more, or 0")
    _require_something(parts, canaries)
    run_path = _run_of(path)
    _require_finished(run_path)
    out = run_path / "audit" if out is None else out
    if out.parent == run_path and not may_be_written(run_path):
        raise UserError(f"{run_path}: cannot be written; give --out another folder")
    _require_free(out)
    with open_run(run_path, data_paths, runtime, only_read=True) as (run, _):
        _require_honest(run)
        seed = run.experiment.recipe.seed if seed is None else seed
        with permissions(), writing(out):
            make_private_folder(out)
            audits = {
                "words": lambda: audit_updates(run, seed, out, on_step),
                "membership": lambda: audit_membership(run, seed, shadows, out, on_step),
                "canaries": lambda: audit_canaries(run, seed, canaries, out, on_step),
                "artefacts": lambda: audit_artefacts(run, path, out, on_step),
            }
            sections = {}
            for left_out in _left_out(parts, canaries, shadows):
                on_step(f"left out: {left_out}")
            for part in filter(parts.__contains__, PARTS):
                on_step(f"part: {part}")
                sections[part] = audits[part]()
            files = write_report(out, _audited(run, parts, seed), sections)
    return Audit(sections, files)


def _require_something(parts: Sequence[str], canaries: int) -> None:
    """UserError where the options leave no part to audit."""
    if set(parts) == {"canaries"} and not canaries:
        raise UserError("--canaries 0 leaves nothing to audit; give 10 or more, or add other --parts")


def _left_out(parts: Sequence[str], canaries: int, shadows: int) -> list[str]:
    """What the options leave out of the parts that were asked for."""
    omitted = ["canary clients (--canaries 0), so ε was not measured"] if "canaries" in parts and not canaries else []
    without = "shadow models (--shadows 0), so membership was tested by the loss only"
    return omitted + ([without] if "membership" in parts and not shadows else [])


def _run_of(path: Path) -> Path:
    """The run's folder: the path's own, or of an export the one that it lies in."""
    if (path / "export.json").is_file() and not RunFolder(path).recipe.exists():
        if RunFolder(path.resolve().parent).recipe.exists():
            return path.resolve().parent
        raise UserError(
            f"{path}: is an export outside its run's folder, but an audit needs the run's clients; give the run's "
            "folder"
        )
    return path


def _require_finished(path: Path) -> None:
    folder = RunFolder(path)
    folder.require_run()
    if not folder.summary.exists():
        raise UserError(f"{path}: the run is not finished (summary.json is missing); finish it with: train --resume")


def _require_honest(run: FinishedRun) -> None:
    """UserError for a run whose rounds are not those of its clients alone."""
    recipe = run.experiment.recipe
    if run.experiment.feature(Attack) is not None:
        raise UserError(f"{run.folder.path}: its clients were attacked; audit a run without [attack]")
    rule = rule_of(recipe)
    if rule is not None and rule.server_examples:
        raise UserError(
            f"{run.folder.path}: its server trains on its own examples (aggregation.rule = {rule.name!r}), which an "
            "audit cannot repeat; audit a run with another rule"
        )


def _require_free(out: Path) -> None:
    """UserError for a file, or a folder that holds something else than an older audit."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: is a file; give a folder as --out")
    if out.exists() and any(out.iterdir()) and not (out / NUMBERS_FILE).exists():
        raise UserError(f"{out}: is not empty and holds no audit; give an empty or new folder as --out")


def _audited(run: FinishedRun, parts: Sequence[str], seed: int) -> Audited:
    recipe, claim = run.experiment.recipe, claim_of(run.folder)
    clients = len(run.experiment.prepared.examples.clients)
    claimed = (
        "It claims no differential privacy."
        if claim.epsilon is None
        else f"It claims ε = {claim.epsilon:.2f} at δ = {claim.delta} for one {claim.unit}."
    )
    about = [
        f"The run trained `{recipe.model.name}` by `{recipe.algorithm.name}` on the task `{recipe.task.name}` with "
        f"{clients} clients; the model is that of round {run.round} of {recipe.training.rounds}. {claimed}",
        "",
        "This report says what the run's numbers and files reveal about the texts that it was trained on. An audit "
        "finds only what it looks for: a finding is real, but no finding is no proof. Only a proven bound ([privacy] "
        "in the recipe) is. This report and the files next to it contain no patients' text.",
        "",
        f"Intervals are at 95 %. The audit sampled and trained with seed {seed}.",
    ]
    left_open = []
    if recipe.privacy_unit is not None:
        left_open = [line.text for line in not_covered(run.experiment) if line.by_server]
        about += ["", "Its guarantee does not cover what the server saw in addition to the noised updates:", ""]
        about += [f"- {line}" for line in left_open]
    left_out = [part for part in PARTS if part not in parts]
    if left_out:
        about += ["", f"Parts that were not requested: {', '.join(left_out)}."]
    numbers = {
        "recipe": recipe.name,
        "algorithm": recipe.algorithm.name,
        "model": recipe.model.name,
        "round": run.round,
        "clients": clients,
        "seed": seed,
        "seen_by_server_not_covered": left_open,
    }
    return Audited(f"Audit of the run {recipe.name}", about, numbers)
