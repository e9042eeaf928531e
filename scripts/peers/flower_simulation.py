"""FedAvg in Flower's simulation (on Ray), as Flower's tutorials write it; no client evaluates.

The third argument names the module of the clients. A client's model and examples are made once in each process of Ray,
not in every round as in the tutorials.
"""

import importlib
import os
import sys

os.environ.update(FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import work
from flwr.app import ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

folders = dict(zip(("problem", "run"), map(os.path.abspath, sys.argv[1:3]), strict=True))
job = work.from_command_line()
clients = importlib.import_module(sys.argv[3])
server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    count = len(job.clients)  # with fewer the round would start with the first clients to connect
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=count, min_available_nodes=count)
    result = strategy.start(
        grid=grid,
        initial_arrays=clients.initial_arrays(job),
        train_config=ConfigRecord(folders),
        num_rounds=len(job.rounds),
        evaluate_fn=lambda server_round, arrays: job.stamp(),  # called before the first round and after each
    )
    job.finish(clients.weights_from(job, result.arrays))


# One client per core was the fastest setting that the cores allow.
run_simulation(
    server_app,
    clients.app,
    num_supernodes=len(job.clients),
    backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
)
