"""Makes the screenshots in docs/pictures: python scripts/screenshots.py [NAME …]

Follows a tutorial in a temporary folder up to the command that writes an HTML page, and opens the page in
headless Chromium. Without NAME all are made, which takes some minutes; --list prints the names.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.browser import BROWSER, browse, finish  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
WIDTH = 1000
RUN = "python -m tff_re.run "


@dataclasses.dataclass(frozen=True)
class Screenshot:
    """A page that a tutorial makes, and how much of it is shown.

    Attributes:
      tutorial: the tutorial's name in docs/tutorials.
      command: the command that writes the page, the last that is run.
      page: the page that it writes.
      height: the picture's height in pixels.
    """

    tutorial: str
    command: str
    page: str
    height: int


SCREENSHOTS = {
    "facts": Screenshot("facts-from-text", "extract", "facts.html", 1460),
    "report": Screenshot("first-model", "report", "runs/first/report.html", 1690),
}


class Failed(Exception):
    """A screenshot cannot be made; the message is one line."""


def steps(text: str, last: str) -> tuple[dict[str, str], list[list[str]]]:
    """(files that a tutorial tells to save, arguments of its commands up to the first `last`)."""
    files, commands, end = {}, [], 0
    for block in re.finditer(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        language, body = block.groups()
        name = re.search(r"\bas `([\w.]+)`", text[end : block.start()])
        end = block.end()
        if language and name:
            files[name[1]] = body
        elif not language:
            lines = body.replace("\\\n", " ").splitlines()
            commands += [shlex.split(line.removeprefix(RUN)) for line in lines if line.startswith(RUN)]
    return files, commands[: [command[0] for command in commands].index(last) + 1]


def run(arguments: list[str], folder: Path) -> None:
    """Runs Python in `folder`; raises `Failed` with the last line of its errors."""
    try:
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        finish([sys.executable, *arguments], cwd=folder, env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(folder)})
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
        raise Failed(f"{shlex.join(arguments)}: {reason}") from None


def make(name: str, folder: Path) -> Path:
    """Makes one screenshot and returns its file."""
    shot = SCREENSHOTS[name]
    text = (ROOT / "docs" / "tutorials" / f"{shot.tutorial}.md").read_text("utf-8")
    files, commands = steps(text, shot.command)
    for file, content in files.items():
        (folder / file).write_text(content, "utf-8")
        if file.endswith(".py"):
            run([file], folder)
    for command in commands:
        print(f"{name}: {shlex.join(command)}", file=sys.stderr)
        run(["-m", "tff_re.run", *command], folder)
    picture = folder / f"{name}.png"
    options = (f"--screenshot={picture}", f"--window-size={WIDTH},{shot.height}", "--hide-scrollbars")
    try:
        browse((folder / shot.page).as_uri(), folder, *options, timeout=300)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{BROWSER} failed on {shot.page}: {type(error).__name__}") from None
    if not picture.is_file():
        raise Failed(f"{BROWSER} wrote no picture of {shot.page}")
    return Path(shutil.copy(fewer_colours(picture), PICTURES / picture.name))


def fewer_colours(picture: Path) -> Path:
    """Rewrites a picture with at most 128 colours, which halves its size."""
    from PIL import Image  # which Matplotlib needs, too

    with Image.open(picture) as image:
        smaller = image.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    smaller.save(picture, optimize=True)
    return picture


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0, 2 with one line on standard error, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(description="Makes the screenshots in docs/pictures; needs Chromium.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="screenshots to make (default: all)")
    parser.add_argument("--list", action="store_true", help="print the names and make nothing")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(SCREENSHOTS))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if unknown := [name for name in options.names if name not in SCREENSHOTS]:
            raise Failed(f"no screenshot is named {unknown[0]!r}; names: {', '.join(SCREENSHOTS)}")
        if BROWSER is None:
            raise Failed("no Chromium on the PATH; install the package chromium, or Google Chrome")
        for name in options.names or SCREENSHOTS:
            with tempfile.TemporaryDirectory(prefix="screenshots-", ignore_cleanup_errors=True) as folder:
                print(make(name, Path(folder)).relative_to(ROOT))
    except Failed as error:
        print(f"screenshots: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
