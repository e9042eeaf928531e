"""scripts/screenshots.py makes the screenshots that the documentation shows."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.browser import finish
from scripts.screenshots import SCREENSHOTS, steps

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"


def script(*arguments, **more):
    command = [sys.executable, str(ROOT / "scripts" / "screenshots.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **more)


def test_every_screenshot_of_a_page_is_made_by_the_script():
    pages = "".join(page.read_text("utf-8") for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    named = set(re.findall(r"pictures/([\w.-]+)\.png", pages))
    screenshots = {name for name in named if not name.startswith("partition-")}  # which the command partition draws
    assert set(script("--list", check=True).stdout.split()) == screenshots
    assert {file.stem for file in PICTURES.glob("*.png")} == named
    for name in screenshots:
        assert (PICTURES / f"{name}.png").stat().st_size < 200_000, name


@pytest.mark.parametrize("name", SCREENSHOTS)
def test_the_steps_are_those_of_the_tutorial(name):
    shot = SCREENSHOTS[name]
    files, commands = steps((ROOT / "docs" / "tutorials" / f"{shot.tutorial}.md").read_text("utf-8"), shot.command)
    verbs = [command[0] for command in commands]
    assert verbs[0] == "train" and verbs[-1] == shot.command and verbs.count(shot.command) == 1
    read = {word for command in commands for word in command if word.endswith((".toml", ".tsv"))}
    assert read <= set(files)
    assert set(files) == (
        {"make_notes.py", "ner.toml", "re.toml", "letters.jsonl", "terms.tsv"} if name == "facts" else set()
    )


def test_mistakes_end_with_one_line(tmp_path):
    unknown = script("no-such")
    assert unknown.returncode == 2 and not unknown.stdout
    assert unknown.stderr == "screenshots: no screenshot is named 'no-such'; names: facts, report\n"
    missing = script(env={"PATH": str(tmp_path)})
    assert missing.returncode == 2 and not missing.stdout
    assert missing.stderr.startswith("screenshots: no Chromium on the PATH; install ")
    assert missing.stderr.count("\n") == 1


def test_no_process_outlives_a_call(tmp_path):
    child = f"sleep 300 & echo $! > {tmp_path / 'pid'}; wait"
    with pytest.raises(subprocess.TimeoutExpired):
        finish(["/bin/sh", "-c", child], timeout=1)
    status, end = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat"), time.monotonic() + 30
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while status.read_text().rsplit(")", 1)[1].split()[0] != "Z":
            assert time.monotonic() < end
            time.sleep(0.01)
