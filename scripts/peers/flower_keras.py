"""Flower's clients with Keras 3; KERAS_BACKEND names the backend."""

import functools

import keras_models
import work
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()
load_job = functools.cache(work.Work)


@functools.cache
def load_model(problem: str, run: str):
    return keras_models.make(load_job(problem, run).problem)


@app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content["config"]
    folders = config["problem"], config["run"]
    job, model = load_job(*folders), load_model(*folders)
    model.set_weights(message.content["arrays"].to_numpy_ndarrays())
    arrays = job.clients[context.node_config["partition-id"]]
    steps, batch = job.rounds[config["server-round"] - 1]
    features = keras_models.input_arrays(model, arrays, steps * batch)
    model.fit(features, arrays["y"][: steps * batch], batch_size=batch, shuffle=False, verbose=0)
    metrics = MetricRecord({"num-examples": steps * batch})
    content = RecordDict({"arrays": ArrayRecord(model.get_weights()), "metrics": metrics})
    return Message(content=content, reply_to=message)


def initial_arrays(job: work.Work) -> ArrayRecord:
    """The start weights."""
    return ArrayRecord([job.start[name] for name in keras_models.weight_names(keras_models.make(job.problem))])


def weights_from(job: work.Work, arrays: ArrayRecord) -> dict:
    """Name (as in `start`) -> weight."""
    weight_names = keras_models.weight_names(keras_models.make(job.problem))
    return dict(zip(weight_names, arrays.to_numpy_ndarrays(), strict=True))
