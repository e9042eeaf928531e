"""The ledger of a site: what the runs on its data have received, and the ε that they spent together.

    state/ledger.json   SHA-256 of a file of training data -> runs -> rounds, bytes of sums, what each client released

It is written whole before an answer leaves, and stays when runs end. How ε is composed over the runs is in `spending`.
Another file is another data set with a ledger of its own, also if it differs in one example.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from computations.privacy.options import rounded_up
from datasets.catalogue import split_file
from datasets.files import replace_file
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.sites.policy import AllowOptions, recipe_digest
from tff_re.sites.spending import EXAMPLE, GUARANTEES, SHARES, guarantee_of, shares_text, spent

FILE = "ledger.json"
"""In the site's folder of state."""

VERSION = 1


@dataclass(frozen=True)
class TrainingData:
    """What a run trains on.

    Attributes:
      name, digest: of the file; the digest is SHA-256.
      partition: digest of the assignment of examples to clients.
      one_client: whether the site is one client, by its file.
    """

    name: str
    digest: str
    partition: str
    one_client: bool = False


def training_data(
    recipe: Recipe, clients: Mapping[str, Iterable], folder: Path | None, *, one_client: bool = False
) -> TrainingData:
    """Return the training data of a site's recipe.

    Args:
      recipe: with the site's own files.
      clients: client -> the ids of the samples that it trains on.
      folder: the data folder, for files of the catalogue.
      one_client: see `TrainingData`.

    Raises:
      DataError, OSError: the file is not there.
    """
    options = recipe.task.options
    path = Path(options.path) if options.path else split_file(options.dataset, options.split, folder)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    held = repr(sorted((client, list(samples)) for client, samples in clients.items()))
    partition = hashlib.sha256(held.encode("utf-8", "surrogatepass")).hexdigest()
    return TrainingData(path.name, digest, partition, one_client)


class Ledger:
    """What left a site, stored across restarts."""

    def __init__(self, state: Path, allow: AllowOptions):
        """Read the ledger.

        Raises UserError if its file is damaged or a link.
        """
        self._path, self._allow = state / FILE, allow
        self._data: dict[str, dict] = {}
        if self._path.is_symlink():
            raise UserError(f"{self._path}: is a link; put the original back: it says what runs have spent")
        try:
            table = json.loads(self._path.read_bytes())
            if table["version"] != VERSION:
                raise ValueError
            self._data = table["data"]
            self.lines()
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{self._path}: is damaged; put it back: it says what runs have spent") from None

    def begun_on(self, run: str) -> tuple[str, str] | None:
        """Return the digests of a run's training data and partition, or None if they are not known."""
        for digest, known in self._data.items():
            if run in known["runs"]:
                return digest, known["runs"][run]["partition"]
        return None

    def runs_on(self, data: TrainingData) -> int:
        """Return how many runs began on a file of training data."""
        return len(self._data.get(data.digest, {"runs": ()})["runs"])

    def begin(self, data: TrainingData, run: str, recipe: Recipe) -> None:
        """Record a new run."""
        of_data = self._data.get(data.digest, {"file": data.name, "runs": {}})
        guarantee = guarantee_of(recipe)
        sites = [recipe.privacy.least_sites, recipe.privacy.colluding_sites] if guarantee == SHARES else None
        entry = {
            "recipe": recipe_digest(recipe),
            "unit": guarantee or recipe.privacy_unit,
            "delta": recipe.privacy.delta if recipe.privacy_unit else None,
            "sites": sites,
            "partition": data.partition,
            "one_client": data.one_client,
            **{"noise_multiplier": None, "rounds": 0, "newest": 0, "bytes_up": 0, "clients": {}},
        }
        self.write({**self._data, data.digest: {**of_data, "runs": {**of_data["runs"], run: entry}}})

    def charged(
        self, run: str, round_num: int, noise_multiplier: float | None, releases: Mapping[str, tuple[float, int]]
    ) -> dict | None:
        """Return the ledger after one more training round, or None if the newest round is this one or later.

        Args:
          run: of `begin`.
          round_num: the round, which only grows.
          noise_multiplier: of the noise that the site adds, or of that which it adds with others; None: there is none.
          releases: client -> (share of its examples in a step, steps of the round), of those with noise.
        """
        data = copy.deepcopy(self._data)
        entry = data[self._digest_of(run)]["runs"][run]
        if round_num <= entry["newest"]:
            return None
        entry |= {"rounds": entry["rounds"] + 1, "newest": round_num, "noise_multiplier": noise_multiplier}
        for client, (share, steps) in releases.items():
            taken = entry["clients"].get(client, (share, steps, 0))[2]
            entry["clients"][client] = [share, steps, taken + 1]
        return data

    def charge_bytes(self, run: str, size: int) -> None:
        """Record the bytes of sums before they are sent."""
        data = copy.deepcopy(self._data)
        data[self._digest_of(run)]["runs"][run]["bytes_up"] += size
        self.write(data)

    def rounds_of(self, run: str) -> dict[str, int]:
        """Return, for each client, the rounds of the run that it took part in with noise of sites."""
        clients = self._data[self._digest_of(run)]["runs"][run]["clients"]
        return {client: rounds for client, (_, _, rounds) in clients.items()}

    def other_guarantees(self, data: TrainingData, recipe: Recipe) -> set[str]:
        """Return the guarantees of runs on a file of training data, except that of the recipe."""
        units = {run["unit"] for run in self._data.get(data.digest, {"runs": {}})["runs"].values()}
        return units.intersection(GUARANTEES) - {guarantee_of(recipe)}

    def epsilon(self, digest: str, guarantee: str = EXAMPLE) -> float:
        """Return the ε that the runs on a file of training data have spent together, of those with this guarantee."""
        return self._epsilon(self._data[digest], guarantee)

    def epsilon_with(self, run: str, charged: dict | None = None) -> float:
        """Return the ε of a run's data for the guarantee of the run, either as it is or after `charged`."""
        data = (charged or self._data)[self._digest_of(run)]
        guarantee = data["runs"][run]["unit"]
        return self._epsilon(data, guarantee) if guarantee in GUARANTEES else 0.0

    def lines(self, *, runs: bool = False) -> list[str]:
        """Return what the ledger says, for the operator.

        With `runs`, it also lists each run.
        """
        lines = []
        for digest, data in self._data.items():
            rounds, sent = (sum(run[key] for run in data["runs"].values()) for key in ("rounds", "bytes_up"))
            line = f"{data['file']} ({digest[:8]}): {_runs(len(data['runs']))}, {rounds} rounds, {sent} bytes of sums"
            guarded = 0
            for guarantee in GUARANTEES:
                private = _with(data, guarantee)
                guarded += len(private)
                line += f"; {self._spent_line(data, guarantee, private)}" if private else ""
            if guarded < len(data["runs"]):
                line += f"; {_runs(len(data['runs']) - guarded)} without a guarantee of the site's own"
            lines.append(line)
            lines += [self._line_of(run, data, entry) for run, entry in data["runs"].items() if runs]
        return lines

    def _spent_line(self, data: dict, guarantee: str, private: list[dict]) -> str:
        limit, delta = self._allow.epsilon_total, self._delta(data, guarantee)
        line = f"ε = {rounded_up(self._epsilon(data, guarantee))} at δ = {delta:g}"
        line += "" if limit is None else f" of {limit:g} (allow.epsilon_total)"
        if guarantee == EXAMPLE:
            return f"{line} over {_runs(len(private))} with noise of the site's own"
        return f"{line} over {_runs(len(private))} with noise in shares, {shares_text(private, delta)}"

    def _line_of(self, run: str, data: dict, entry: dict) -> str:
        said = "no guarantee of the site's own"
        if entry["unit"] in GUARANTEES:
            only = {**data, "runs": {run: entry}}
            said = f"ε = {rounded_up(self._epsilon(only, entry['unit']))}"
            if entry["unit"] == SHARES:
                said += f" with noise in shares, {shares_text([entry], self._delta(only, SHARES))}"
        return (
            f"  run {run[:8]}, recipe {entry['recipe'][:8]}: {entry['rounds']} rounds, {entry['bytes_up']} bytes of "
            f"sums, {said}"
        )

    def _epsilon(self, data: dict, guarantee: str) -> float:
        private = _with(data, guarantee)
        return spent(private, guarantee, self._delta(data, guarantee)) if private else 0.0

    def _delta(self, data: dict, guarantee: str) -> float:
        if self._allow.delta_total is not None:
            return self._allow.delta_total
        return min(run["delta"] for run in _with(data, guarantee))

    def _digest_of(self, run: str) -> str:
        return next(digest for digest, data in self._data.items() if run in data["runs"])

    def write(self, data: dict) -> None:
        """Replace the file atomically."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(self._path, json.dumps({"version": VERSION, "data": data}).encode())
        self._data = data


def _with(data: dict, guarantee: str | None) -> list[dict]:
    """Return the runs on the data that have this guarantee."""
    return [run for run in data["runs"].values() if run["unit"] == guarantee]


def _runs(number: int) -> str:
    return f"{number} run" if number == 1 else f"{number} runs"
