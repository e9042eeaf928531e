import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir():
    folder = os.environ.get("TFF_RE_DATA")
    if not folder:
        pytest.skip("TFF_RE_DATA does not name a data folder")
    return Path(folder)
