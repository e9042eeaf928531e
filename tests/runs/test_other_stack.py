"""A run folder of the other stack."""

from __future__ import annotations

import json

import pytest

from computations.stack import DISTRIBUTION, DISTRIBUTIONS, STACK
from tests.upper_floors import tiny
from tff_re.errors import UserError
from tff_re.runs.folder import RunFolder


def test_a_run_of_the_other_stack_is_not_resumed(tmp_path):
    folder, recipe = RunFolder(tmp_path / "run"), tiny().to_toml()
    folder.begin(recipe, resume=False)
    folder.begin(recipe, resume=True)
    (other,) = (name for stack, name in DISTRIBUTIONS.items() if stack != STACK)
    versions = json.loads(folder.environment.read_text("utf-8"))
    versions[other] = versions.pop(DISTRIBUTION)
    folder.environment.write_text(json.dumps(versions), "utf-8")
    with pytest.raises(UserError) as refused:
        folder.begin(recipe, resume=True)
    assert str(refused.value) == (
        f"{folder.path}: was started with {other}, but this environment has {DISTRIBUTION}; resume it in the "
        "environment it was started in, or give another --out"
    )
