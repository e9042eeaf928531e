"""A program that starts a worker and never stops it; run by the tests: `worker_owner.py KIND ENDING LOG RECORD`.

KIND is `runtime` (a whole `LocalRuntime`) or `worker` (a `Worker` alone, without TensorFlow, which is quick). ENDING is
how the program ends: `return`, `raise`, `call` (a computation that takes for ever), `sleep`, or `fork` (sleeps, and so
does a forked child of it). The file RECORD gets the process ids as JSON as soon as all is up; RECORD.tidied is written
by a `finally` block.
"""

import json
import os
import signal
import sys
import time


def main():
    kind, ending, log, record = sys.argv[1:]
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and so it would be here
    from tff_re.runtime import install_signal_handlers, open_runtime
    from tff_re.runtime.local.worker import Worker

    install_signal_handlers()
    if kind == "runtime":
        worker = open_runtime("local", log_path=log).__enter__().worker
        endless = build_endless()
    else:
        worker = Worker(log)
        worker.start()
    pids = {"owner": os.getpid(), "worker": worker.pid, "supervisor": worker.supervisor_pid}
    if ending == "fork":
        pids["child"] = os.fork()  # inherits our end of the supervisor's lifeline
        if not pids["child"]:
            time.sleep(60)
            os._exit(0)
    with open(record + ".new", "w") as file:
        json.dump({**pids, "socket": worker.address.removeprefix("unix:")}, file)
    os.rename(record + ".new", record)
    print("up", flush=True)
    try:
        if ending == "raise":
            raise RuntimeError("as ordered")
        if ending == "call":
            endless(10**12)
        if ending in ("sleep", "fork"):
            time.sleep(60)
    finally:
        with open(record + ".tidied", "w") as file:
            file.write("finally was run")


def build_endless():
    import numpy as np
    import tensorflow as tf
    import tensorflow_federated as tff

    @tff.tensorflow.computation(np.int64)
    def endless(n):
        return tf.while_loop(lambda i: i < n, lambda i: i + 1, [tf.constant(0, tf.int64)])[0]

    assert endless(3) == 3
    return endless


if __name__ == "__main__":
    main()
