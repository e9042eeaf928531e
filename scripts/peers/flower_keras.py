"""Flower's clients with Keras 3; KERAS_BACKEND says on what."""

import functools

import keras_models
import work
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()
given_to = functools.cache(work.Work)


@functools.cache
def model_of(problem: str, run: str):
    return keras_models.make(given_to(problem, run).problem)


@app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content["config"]
    folders = config["problem"], config["run"]
    given, model = given_to(*folders), model_of(*folders)
    model.set_weights(message.content["arrays"].to_numpy_ndarrays())
    arrays = given.clients[context.node_config["partition-id"]]
    steps, batch = given.rounds[config["server-round"] - 1]
    features = keras_models.features_of(model, arrays, steps * batch)
    model.fit(features, arrays["y"][: steps * batch], batch_size=batch, shuffle=False, verbose=0)
    metrics = MetricRecord({"num-examples": steps * batch})
    content = RecordDict({"arrays": ArrayRecord(model.get_weights()), "metrics": metrics})
    return Message(content=content, reply_to=message)


def to_send(given: work.Work) -> ArrayRecord:
    """The start weights."""
    return ArrayRecord([given.start[name] for name in keras_models.names(keras_models.make(given.problem))])


def received(given: work.Work, arrays: ArrayRecord) -> dict:
    """The weights by our names."""
    names = keras_models.names(keras_models.make(given.problem))
    return dict(zip(names, arrays.to_numpy_ndarrays(), strict=True))
