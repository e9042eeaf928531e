"""scripts/new_site.py writes the texts of the suite entities-new-site."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.real_data
def test_sites_and_texts(data_dir, tmp_path):
    command = [sys.executable, ROOT / "scripts/new_site.py", data_dir, tmp_path / "new-site"]
    assert "100 at the new site" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    texts = {
        name: [json.loads(line) for line in (tmp_path / f"new-site/{name}.jsonl").read_text("utf-8").splitlines()]
        for name in ("train", "new", "test")
    }
    sites = Counter(text["site"] for text in texts["train"])
    assert sites["new"] == 100 and set(sites) == {"new", *(f"cdr-{n}" for n in range(9))} and min(sites.values()) == 100
    assert [text for text in texts["train"] if text["site"] == "new"] == texts["new"] and len(texts["test"]) == 923
    types = {entity[2] for group in texts.values() for text in group for entity in text["entities"]}
    assert types == {"Disease"}
