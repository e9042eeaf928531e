"""Sends a run's metrics to MLflow or Weights & Biases: `python -m tff_re.runs.features.tracker_process SERVICE`.

Standard input has a line of JSON with `project`, `name` and `parameters`, one with `round` and `metrics` for each
round, and one with `status`. The process ends with its input. An error is one line on standard output, exit code 1.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Protocol

PROJECT = "tff-re"

SECONDS_AFTER_INPUT = 60
"""After which the process ends itself when its input has ended: the run that would kill it may be dead."""


class Service(Protocol):
    """A run at a tracking service. `SETTINGS`: environment variables, unless the user has set them."""

    SETTINGS: ClassVar[Mapping[str, str]]

    def __init__(self, project: str | None, name: str, parameters: Mapping[str, Any]):
        """Begins a run."""

    def log(self, round_num: int, metrics: Mapping[str, float]) -> None:
        """Adds a round."""

    def end(self, status: str) -> None:
        """Ends the run: it is `finished`, `failed` or `killed`."""


class MLflow:
    """The client without mlflow.start_run, which would add the user's name, the script's path and the commit."""

    SETTINGS: ClassVar[Mapping[str, str]] = {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # Some 20 seconds until an unreachable server is reported, not four minutes.
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    }

    def __init__(self, project: str | None, name: str, parameters: Mapping[str, Any]):
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        self._client, self._metric = MlflowClient(), Metric
        project = project or os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        experiment = self._client.get_experiment_by_name(project)
        number = self._client.create_experiment(project) if experiment is None else experiment.experiment_id
        self._run = self._client.create_run(number, run_name=name).info.run_id
        self._client.log_batch(self._run, params=[Param(key, str(value)) for key, value in parameters.items()])

    def log(self, round_num: int, metrics: Mapping[str, float]) -> None:
        """See `Service`."""
        now = time.time_ns() // 1_000_000
        values = [self._metric(name, value, now, round_num) for name, value in metrics.items()]
        self._client.log_batch(self._run, metrics=values)

    def end(self, status: str) -> None:
        """See `Service`."""
        self._client.set_terminated(self._run, status.upper())


class WeightsAndBiases:
    """Everything that `wandb` collects by itself is off: output, code, commit, host, user, paths, packages, load."""

    SETTINGS: ClassVar[Mapping[str, str]] = {"WANDB_ERROR_REPORTING": "false"}

    def __init__(self, project: str | None, name: str, parameters: Mapping[str, Any]):
        import wandb

        settings = wandb.Settings(
            console="off",
            silent=True,
            init_timeout=30,
            save_code=False,
            disable_code=True,
            disable_git=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
        )
        project = project or os.environ.get("WANDB_PROJECT") or PROJECT
        self._run = wandb.init(project=project, name=name, config=dict(parameters), settings=settings)

    def log(self, round_num: int, metrics: Mapping[str, float]) -> None:
        """See `Service`."""
        self._run.log(dict(metrics), step=round_num)

    def end(self, status: str) -> None:
        """See `Service`."""
        self._run.finish(exit_code=int(status != "finished"))


SERVICES: dict[str, type[Service]] = {"mlflow": MLflow, "wandb": WeightsAndBiases}


def follow(service: type[Service], lines: Iterator[str]) -> None:
    """Sends what the lines say. Raises whatever the service's package raises."""
    for name, value in service.SETTINGS.items():
        os.environ.setdefault(name, value)
    run, status = service(**json.loads(next(lines))), "killed"
    for line in lines:
        entry = json.loads(line)
        if "status" in entry:
            status = entry["status"]
        else:
            run.log(entry["round"], entry["metrics"])
    signal.alarm(SECONDS_AFTER_INPUT)
    run.end(status)


def in_one_line(error: Exception) -> str:
    """The error's kind and the begin of its message, without passwords in addresses."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {re.sub(r'//[^/@ ]*@', '//', lines[0])[:200]}"


def main() -> None:
    """Runs the process. The service's package gets no input, and its output goes nowhere."""
    lines, report = (os.fdopen(os.dup(n), mode, encoding="utf-8") for n, mode in ((0, "r"), (1, "w")))
    for number in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    try:
        follow(SERVICES[sys.argv[1]], lines)
    except Exception as error:
        print(in_one_line(error), file=report, flush=True)
        os._exit(1)  # without waiting for what the package does at Python's exit


if __name__ == "__main__":
    main()
