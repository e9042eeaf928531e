"""What several files of this folder share."""

import pytest

from tff_re.runtime import open_runtime


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The in-process runtime."""
    with open_runtime("in-process", log_path=tmp_path_factory.mktemp("here") / "log", threads=2) as opened:
        yield opened
