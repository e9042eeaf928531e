"""Folders of runs that were never trained, as `watch` finds them."""

from __future__ import annotations

import json

from tests.pages.test_page import EVIL, SUMMARY, csv_file

RECIPE = """name = "live"
seed = 5
task = { name = "sentence_relations" }
model = { name = "pcnn" }
algorithm = { name = "fedavgs" }
training = { rounds = 4, clients_per_round = 3, min_clients = 2 }
"""
PRIVATE = RECIPE + 'privacy = { unit = "client", epsilon = 8.0, delta = 0.001 }\n'
METRICS = ("round", "clients/asked", "clients/counted", "clients/lost", "test/f1", "test/loss", "privacy/epsilon")
ROWS = (
    (1, 3, 3, 0, 0.25, 0.9, 1.5),
    (2, 3, 2, 1, "", "", 2.5),
    (3, 3, 3, 0, 0.75, 0.4, 3.125),
    (4, 3, 3, 0, 0.8, 0.3, 3.5),
)
SECRET = "宝宝昨晚发热"
LOG = f"""2026-03-01 10:00:00,001 INFO {SECRET} is a note
2026-03-01 10:00:00,002 INFO sites aachen, bonn: 3 clients; quorum 0.5, 600 s for an answer
2026-03-01 10:00:00,003 INFO 4 rounds; a client gets 1000 bytes and sends 500 a round
2026-03-01 10:00:01,000 INFO train round 1 stage 0: 2 of 2 sites answered, 3000 bytes down, 1500 bytes up, 0.75 s
2026-03-01 10:00:02,000 INFO round 1 of 4: 1.00 s
Traceback of {SECRET}
2026-03-01 10:00:03,000 WARNING site bonn: {SECRET}; round 2 goes on without
2026-03-01 10:00:04,000 INFO round 2 of 4: 3.00 s
"""
_STAGE = {"purpose": "train", "round": 3, "stage": 0, "answered": 2, "asked": 2}
_STAGE |= {"bytes_down": 4000, "bytes_up": 2000, "seconds": 1.25}
_TIMES = {"time": "2026-03-01T10:00:05.000+00:00", "level": "INFO", "event": "stage.finished"}
_BACK = {"time": "2026-03-01T10:00:06.000+00:00", "level": "WARNING", "event": "site.back", "site": "bonn"}
JSON_LINES = "".join(json.dumps(line) + "\n" for line in (_TIMES | _STAGE, _BACK))


def write_rows(folder, number: int) -> None:
    """metrics.csv and timings.csv up to a round."""
    csv_file(folder / "metrics.csv", METRICS, *ROWS[:number])
    csv_file(
        folder / "timings.csv",
        ("round", "seconds/training", "seconds/evaluation"),
        *((1, 1.0, 0.5), (2, 3.0, ""), (3, 2.0, 1.0), (4, 2.0, 1.0))[:number],
    )


def write_run(folder, rounds: int = 3, recipe: str = PRIVATE):
    """The folder of a run across two sites that has finished so many rounds of four."""
    folder.mkdir(exist_ok=True)
    (folder / "recipe.toml").write_text(recipe, "utf-8")
    if not rounds:
        return folder
    write_rows(folder, rounds)
    answers = [(1, 1, "a", "counted"), (2, 1, "a", "counted"), (2, 1, EVIL.replace(",", ""), "no_answer")]
    csv_file(folder / "answers.csv", ("round", "attempt", "client", "outcome"), *answers)
    csv_file(folder / "took_part.csv", ("round", "sites"), (1, "aachen bonn"), (2, "aachen"), (3, "aachen bonn"))
    clients = [{"site": "aachen", "train": 10}, {"site": "aachen", "train": 5}, {"site": "bonn", "train": 7}]
    (folder / "sites.json").write_text(json.dumps({"clients": clients}), "utf-8")
    (folder / "run.log").write_text(LOG + JSON_LINES, "utf-8")
    return folder


def finish(folder) -> None:
    """summary.json, so that the run is finished."""
    values = {"recipe": "live", "algorithm": "fedavgs", "seed": 5, "rounds": 4, "final": {}, "best": {}}
    sizes = {"bytes_down_per_client_and_round": 1000, "bytes_up_per_client_and_round": 500}
    assert {*values, *sizes} == set(SUMMARY)
    (folder / "summary.json").write_text(json.dumps(values | sizes), "utf-8")
