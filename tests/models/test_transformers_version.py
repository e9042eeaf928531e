"""The newest version of `transformers` whose TensorFlow classes load, and others."""

from __future__ import annotations

import configparser
import logging
import os
import pathlib
import re
import subprocess
import sys
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from transformers import CONFIG_MAPPING
from transformers.utils import logging as transformers_logging

from tff_re.errors import UserError
from tff_re.models.pretrained import PLAIN, main_layer
from tff_re.models.transformers_version import NEWEST, OLDEST, TF_MODEL_MAPPING, require_supported

ROOT = pathlib.Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-language.lock")


def test_the_newest_version_with_tensorflow_classes_is_in_both_locks():
    assert NEWEST == "4.57.6"
    for lock in LOCKS:
        assert re.findall("^transformers==([^ ]+)", (ROOT / lock).read_text("utf-8"), re.MULTILINE) == [NEWEST]


def test_the_installed_version_is_supported_and_its_classes_load():
    require_supported(metadata.version("transformers"))
    for model_type in PLAIN:
        assert TF_MODEL_MAPPING[CONFIG_MAPPING[model_type]].__name__.startswith("TF")


def test_setup_cfg_allows_what_is_supported():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    wanted = [Requirement(line) for line in setup["options"]["install_requires"].split("\n") if line]
    (specifier,) = (requirement.specifier for requirement in wanted if requirement.name == "transformers")
    oldest, newest = Version(OLDEST), Version(NEWEST)
    assert str(specifier) == f"<{newest.major}.{newest.minor + 1},>={oldest}"


def test_its_advice_to_leave_tensorflow_is_not_shown():
    """4.57 gives it once in a process, as a model is made."""
    logger, records = logging.getLogger("transformers"), []
    handler = logging.Handler()
    handler.emit = records.append
    logger.addHandler(handler)
    transformers_logging.warning_once.cache_clear()
    try:
        main_layer(CONFIG_MAPPING["bert"](hidden_size=16, num_attention_heads=2, num_hidden_layers=1))
        assert not records
        logging.getLogger("transformers.x").warning("heard")
    finally:
        logger.removeHandler(handler)
    assert len(records) == 1


@pytest.mark.parametrize("version", [OLDEST, "4.53.3", "4.56.0.dev0", NEWEST])
def test_a_supported_version(version):
    require_supported(version)


@pytest.mark.parametrize("version", ["3.5.1", "4.52.4", "4.58.0", "5.0.0rc1", "5.24.0"])
def test_another_version_is_refused(version):
    with pytest.raises(UserError) as caught:
        require_supported(version)
    message = str(caught.value)
    assert message.startswith(f"transformers {version} is installed, but encoders need 4.53 to 4.57.6, the last v")
    assert message.endswith("(make setup), or run: pip install transformers==4.57.6") and "\n" not in message


@pytest.mark.parametrize(
    "command", [pytest.param("export x", marks=pytest.mark.slow), "train fedcmc-chemprot-short --out x"]
)
def test_commands_say_so_in_one_line(command, tmp_path):
    """The version is asked before any of it is imported: its imports may fail by themselves."""
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers" / "__init__.py").write_text("raise ImportError('of version 5')")
    (tmp_path / "transformers-5.24.0.dist-info").mkdir()
    lines = "Metadata-Version: 2.1\nName: transformers\nVersion: 5.24.0\n"
    (tmp_path / "transformers-5.24.0.dist-info" / "METADATA").write_text(lines)
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from tff_re import run; "
    words = [sys.executable, "-c", f"{program}sys.exit(run.main({command.split()}))"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=tmp_path, env=environment)
    assert ran.returncode == 2 and len(ran.stderr.splitlines()) == 1, ran.stderr
    assert "transformers 5.24.0 is installed, but encoders need 4.53 to 4.57.6" in ran.stderr
