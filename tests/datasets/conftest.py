import os
from pathlib import Path

import pytest
from hypothesis import settings

# The machine's speed is no property of the code.
settings.register_profile("no_deadline", deadline=None)
settings.load_profile("no_deadline")


@pytest.fixture(scope="session")
def data_dir():
    folder = os.environ.get("TFF_RE_DATA")
    if not folder:
        pytest.skip("TFF_RE_DATA does not name a data folder")
    return Path(folder)
