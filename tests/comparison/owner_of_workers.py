"""Has two workers do a run that lasts until it is ended: `python owner_of_workers.py FOLDER RUN`."""

import contextlib
import sys
from pathlib import Path

from tests.comparison.test_workers import planned, workers
from tff_re.comparison import parallel
from tff_re.comparison.planning import Watcher

if __name__ == "__main__":
    parallel._PROGRAM = "from tests.comparison.stub_worker import main; main()"
    with contextlib.closing(workers(2, Watcher())) as started:
        started.ahead([planned(Path(sys.argv[1]) / f"{sys.argv[2]}-{n}") for n in range(2)])
