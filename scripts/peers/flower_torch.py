"""Flower's clients with PyTorch."""

import functools

import torch_models
import work
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()
given_to = functools.cache(work.Work)


@functools.cache
def model_of(problem: str, run: str):
    return torch_models.make(given_to(problem, run).problem)


@functools.cache
def examples_of(problem: str, run: str, client: int):
    given = given_to(problem, run)
    return torch_models.tensors(given.problem, given.clients[client])


@app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content["config"]
    folders = config["problem"], config["run"]
    given, model = given_to(*folders), model_of(*folders)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    features, labels = examples_of(*folders, context.node_config["partition-id"])
    steps, batch = given.rounds[config["server-round"] - 1]
    torch_models.local_training(model, given.problem, features, labels, steps, batch)
    metrics = MetricRecord({"num-examples": steps * batch})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


def to_send(given: work.Work) -> ArrayRecord:
    """The start weights."""
    model = torch_models.make(given.problem)
    torch_models.load(model, given.start)
    return ArrayRecord(model.state_dict())


def received(given: work.Work, arrays: ArrayRecord) -> dict:
    """The weights by our names."""
    model = torch_models.make(given.problem)
    model.load_state_dict(arrays.to_torch_state_dict())
    return torch_models.weights(model, given.start)
