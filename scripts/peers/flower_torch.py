"""Flower's clients with PyTorch."""

import functools

import torch_models
import work
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()
load_job = functools.cache(work.Work)


@functools.cache
def load_model(problem: str, run: str):
    return torch_models.make(load_job(problem, run).problem)


@functools.cache
def load_examples(problem: str, run: str, client: int):
    job = load_job(problem, run)
    return torch_models.tensors(job.problem, job.clients[client])


@app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content["config"]
    folders = config["problem"], config["run"]
    job, model = load_job(*folders), load_model(*folders)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    features, labels = load_examples(*folders, context.node_config["partition-id"])
    steps, batch = job.rounds[config["server-round"] - 1]
    torch_models.local_training(model, job.problem, features, labels, steps, batch)
    metrics = MetricRecord({"num-examples": steps * batch})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


def initial_arrays(job: work.Work) -> ArrayRecord:
    """The start weights."""
    model = torch_models.make(job.problem)
    torch_models.load(model, job.start)
    return ArrayRecord(model.state_dict())


def weights_from(job: work.Work, arrays: ArrayRecord) -> dict:
    """Name (as in `start`) -> weight."""
    model = torch_models.make(job.problem)
    model.load_state_dict(arrays.to_torch_state_dict())
    return torch_models.weights(model, job.start)
