"""Digests of the numbers of runs, to check that a refactoring changes none of them.

    python -m tests.recorded_numbers write FILE [NAME…]     train all (or those whose names contain NAME) and write
    python -m tests.recorded_numbers compare BEFORE AFTER   print the differences; exit code 1 if there are any

The runs are every shipped recipe, cut as in tests/recipes and to two rounds, and small runs of every feature of a run:
on both runtimes, and on three sites in memory. Digests are of whole files, so a difference in a last digit is detected.
They are comparable on one type of processor.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

FILES = ("metrics.csv", "client_states.csv", "partition.json", "clients.csv", "answers.csv", "took_part.csv")

SMALL = ("training.clients_per_round=3", "training.rounds=3")
CLIENT = "privacy={clip=0.5, noise_multiplier=0.5, delta=0.01}"
QUIET = "evaluation.train_split=false"
PRIVATE = ("algorithm={name='fedavg', local_epochs=1}", "training.sampling=poisson", QUIET)
TEXT_ATTACK = "attack={kind='backdoor', clients=1, trigger='烧', target='symptom'}"

SYNTHETIC = {
    "fedpap": (),
    "moon": ("algorithm={name='moon', local_epochs=1}",),
    "scaffold": ("algorithm={name='scaffold', local_epochs=1}",),
    "feddyn": ("algorithm={name='feddyn', local_epochs=1}",),
    "fednova": ("algorithm={name='fednova', local_epochs=1}",),
    "fedcmc": ("algorithm={name='fedcmc', local_epochs=1}",),
    "private clients": (*PRIVATE, CLIENT),
    "private clients, attention": (CLIENT, QUIET),
    "private clients, tree": (
        "algorithm={name='fedavg', local_epochs=1}",
        "privacy={clip=0.5, noise_multiplier=0.5, delta=0.01, mechanism='tree'}",
        QUIET,
    ),
    "private examples": (*PRIVATE, "privacy={unit='example', clip=0.5, noise_multiplier=0.5, delta=0.01}"),
    **{f"attack {kind}": (f"attack={{kind='{kind}', clients=1}}",) for kind in ("label_flip", "sign_flip", "gaussian")},
    **{f"attack {kind}": (f"attack={{kind='{kind}', clients=1}}",) for kind in ("scale", "little_is_enough")},
    "rule rfa": ("attack={kind='scale', clients=1}", "aggregation.rule=rfa"),
    "rule median": ("aggregation.rule=median",),
    "clip and zeroing": ("aggregation={clip=1.0, zeroing=100.0}",),
    "secure": ("aggregation.secure=simulated",),
    "compression": ("aggregation.compression=stochastic_8bit",),
    "failures": ("failures={dropout=0.3, late=0.2}", "training.min_clients=1", "training.attempts=4"),
    "tolerated": ("attack={kind='nan', clients=1}", "training.min_clients=1"),
    "choice": ("choice={dev_share=0.3, patience=6}",),
    "baseline local": ("baseline.kind=local", "choice={dev_share=0.3}"),
    "baseline pooled": ("baseline.kind=pooled",),
    "personalise": ("personalise={epochs=2, learning_rate=0.1}",),
    "server optimizer": ("algorithm={name='fedavg', local_epochs=1}", "server_optimizer.name=adam"),
    "resumed later": ("training.checkpoint_every=1",),
}
"""Name -> overrides of tests.upper_floors.SYNTHETIC."""

TEXT = {
    "text": (),
    "text, private groups": (
        "algorithm={name='fedavg', local_epochs=1}",
        "privacy={unit='group', clip=0.5, noise_multiplier=0.5, delta=0.01}",
        QUIET,
    ),
    "text, local head": (
        "algorithm={name='fedavg', local_epochs=1}",
        "model={name='lstm', units=4, embedding_width=3}",
        "personalise={epochs=0, local_head=true}",
    ),
    "text, backdoor": (TEXT_ATTACK,),
    "text, feded": ("algorithm={name='feded', local_epochs=1}", "task.server_share=0.2"),
    "text, fltrust": ("algorithm={name='fedavg', local_epochs=1}", "task.server_share=0.2", "aggregation.rule=fltrust"),
}

SITES = {
    "sites fedpap": ("fedpap",),
    "sites moon": ("moon",),
    "sites choice": ("fedpap", "choice.dev_share=0.3", "choice.dev_unit=document", "choice.metric=accuracy"),
    "sites rule": ("fedavgs", "aggregation.rule=rfa"),
}


def digests(folder: Path) -> dict[str, str]:
    """Name of a file of a run -> digest of its content."""
    files = {name: folder / name for name in FILES if (folder / name).exists()}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest()[:24] for name, path in files.items()}


def runs(
    folder: Path, *overrides: str, runtimes: Sequence[str] = ("in-process", "local")
) -> Iterator[tuple[str, Callable[[Path], object]]]:
    """(name, function that trains it into a folder).

    Args:
      folder: for the data that the runs read.
      overrides: set in all recipes.
      runtimes: of the runs that are not across sites.
    """
    from tests.sites.sites_for_tests import Federation, recipe_of, write_sites
    from tests.upper_floors import consultations, text_recipe, tiny, write_json
    from tff_re.recipes.reading import resolve
    from tff_re.runs.run import train_run
    from tff_re.sites.run import train_at_sites

    def simulated(recipe, runtime):
        return lambda out: train_run(recipe, out, runtime=runtime, details=True)

    corpus = write_json(folder / "corpus.json", consultations(8))
    recipes = {name: lambda keys=keys: tiny(*SMALL, *keys, *overrides) for name, keys in SYNTHETIC.items()}
    for name, keys in TEXT.items():
        recipes[name] = lambda keys=keys: resolve(text_recipe(corpus), "tiny-text.toml", (*keys, *overrides))
    for name, recipe in recipes.items():
        for runtime in runtimes:
            yield f"{name} / {runtime}", lambda out, recipe=recipe, runtime=runtime: simulated(recipe(), runtime)(out)

    def at_sites(out, algorithm, *keys):
        federation = Federation(write_sites(out.parent / f"{out.name} sites"))
        try:
            train_at_sites(recipe_of(algorithm, *keys, *overrides), out, federation.engine, details=False)
        finally:
            federation.close()

    for name, arguments in SITES.items():
        yield name, lambda out, arguments=arguments: at_sites(out, *arguments)
    yield from _shipped(overrides, runtimes)


def _shipped(extra: Sequence[str], runtimes: Sequence[str]):
    from tests.recipe_data_for_tests import data_folder
    from tests.recipes.test_shipped_recipes import cut
    from tff_re.recipes.reading import load, shipped
    from tff_re.runs.run import train_run
    from tff_re.tasks.data_paths import DataPaths

    for name in shipped():
        overrides = [*(override for override in cut(name) if override != "--set"), "training.rounds=2", *extra]
        for runtime in runtimes:

            def train(out, name=name, overrides=overrides, runtime=runtime):
                paths = DataPaths(data=data_folder())
                train_run(load(name, tuple(overrides)), out, runtime=runtime, data_paths=paths, details=True)

            yield f"{name} / {runtime}", train


def write(path: Path, substrings: list[str]) -> int:
    """Trains and writes; of a run that fails its error line is printed and written."""
    records: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, (run, train) in enumerate(runs(folder)):
            if substrings and not any(substring in run for substring in substrings):
                continue
            began = time.monotonic()
            try:
                with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
                    train(folder / f"{number}")
                records[run] = digests(folder / f"{number}")
            except Exception as error:
                records[run] = f"{type(error).__name__}: {' '.join(str(error).replace(name, '').split())[:300]}"
            outcome = records[run] if isinstance(records[run], str) else f"{len(records[run])} files"
            print(f"{run}: {outcome}, {time.monotonic() - began:.1f} s", flush=True)
            path.write_text(json.dumps(records, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")
    return 0


def compare(before: Path, after: Path) -> int:
    """Prints the differences; returns the exit code."""
    old, new = (json.loads(path.read_text("utf-8")) for path in (before, after))
    count = 0
    for name in sorted(old.keys() | new.keys()):
        before_run, after_run = old.get(name), new.get(name)
        if before_run != after_run:
            count += 1
            comparable = isinstance(before_run, dict) and isinstance(after_run, dict)
            differences = (
                sorted(f for f in before_run.keys() | after_run.keys() if before_run.get(f) != after_run.get(f))
                if comparable
                else [before_run, after_run]
            )
            print(f"{name}: {differences}")
    print(f"{len(old)} and {len(new)} runs, {count} differ")
    return int(count > 0)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    if sys.argv[1] == "compare":
        sys.exit(compare(Path(sys.argv[2]), Path(sys.argv[3])))
    sys.exit(write(Path(sys.argv[2]), sys.argv[3:]))
