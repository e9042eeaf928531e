"""A program that starts a worker and never stops it; run by the tests: `worker_owner.py ENDING LOG RECORD`.

ENDING is how the program ends: `return`, `raise`, `sleep`, or `fork` (sleeps, and so does a forked child of it). The
file RECORD gets the process ids as JSON as soon as all is up; RECORD.tidied is written by a `finally` block.
"""

import json
import os
import signal
import sys
import time


def main():
    ending, log, record = sys.argv[1:]
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and so it would be here
    from tff_re.runtime import install_signal_handlers
    from tff_re.runtime.local.worker import Worker

    install_signal_handlers()
    worker = Worker(log)
    worker.start()
    pids = {"worker": worker.pid, "supervisor": worker.supervisor_pid}
    if ending == "fork":
        pids["child"] = os.fork()  # inherits our end of the supervisor's lifeline
        if not pids["child"]:
            time.sleep(60)
            os._exit(0)
    with open(record + ".new", "w") as file:
        json.dump({**pids, "socket": worker.address.removeprefix("unix:")}, file)
    os.rename(record + ".new", record)
    try:
        if ending == "raise":
            raise RuntimeError("as ordered")
        if ending in ("sleep", "fork"):
            time.sleep(60)
    finally:
        with open(record + ".tidied", "w") as file:
            file.write("finally was run")


if __name__ == "__main__":
    main()
