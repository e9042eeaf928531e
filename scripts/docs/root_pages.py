"""Hook of MkDocs: pages at the top of the repository are pages of the site, too, and links to them lead there."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("CONTRIBUTING.md", "CHANGELOG.md")


def on_files(files, config):
    """Adds the pages."""
    for name in NAMES:
        text = (ROOT / name).read_text("utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown, page, **_):
    """Leads links out of docs/ to those pages, and drops links to other files of the repository.

    The search leaves out pages of figures that a program made, and lists lab notes last. Wide tables take the room of
    the table of contents.
    """
    if page.file.src_uri.endswith(("/comparison.md", "claims.md")):
        page.meta["hide"] = ["toc"]
    if page.file.src_uri.endswith("/comparison.md"):
        page.meta["search"] = {"exclude": True}
    elif page.file.src_uri.startswith("lab/") or page.file.src_uri == "CHANGELOG.md":
        page.meta["search"] = {"boost": 0.3}
    home = re.compile(r"\]\((?:\.\./)+(CONTRIBUTING|CHANGELOG)\.md")
    up = "../" * page.file.src_uri.count("/")
    markdown = home.sub(rf"]({up}\1.md", markdown)
    return re.sub(r"\[([^]]*)\]\((?:\.\./)+(?:notebooks|deploy)/README\.md\)", r"\1", markdown)
