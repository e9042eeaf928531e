"""FedED (Sui et al. 2020, "FedED: Federated Learning via Ensemble Distillation for Medical Relation Extraction",
EMNLP, Section 3.3).

The server holds a small labelled set D_v. Clients start from its model, train, and send their predictions on D_v
alone; the server trains on D_v towards the labels and the mean of the predictions.
"""

from __future__ import annotations

from typing import Literal

from attrs import field
from attrs.validators import optional

from computations.aggregators import PredictionsFactory
from computations.aggregators.weighed_means import WeighedMeanFactory
from computations.algorithms.options import (
    LocalOptions,
    ServerPassOptions,
    TrainsAtServer,
    server_rate,
    server_training,
)
from computations.algorithms.parts import adam_or_sgd, nothing_sent, require_one_label
from computations.algorithms.registry import algorithm
from computations.client_work import Predictions, build_local_training
from computations.client_work.objectives import CrossEntropy, Distillation
from computations.client_work.optimizers import SGD, ClientOptimizer, SelfAdam
from computations.errors import CompositionError
from computations.federated_algorithm import FederatedAlgorithm, compose
from computations.local_model import LocalModel
from computations.ranges import COUNT, NOT_NEGATIVE, POSITIVE, STEPS, options_class
from computations.server_updates import distillation, gradient_step, training_pass


@options_class
class EnsembleDistillationOptions(LocalOptions):
    """Attributes:
    optimizer: of the clients and the server: Adam with fresh moments in every round, or plain SGD.
    learning_rate: of the client optimizer; the default suits Adam, 2.5e-5 a pretrained transformer (Section 4.2).
    weighting: how clients count in the ensemble: all alike (Eq. 5), by their number of examples, or by the likelihood
      of D_v's labels under their predictions; for the latter they get the labels too.
    agreement_temperature: with `agreement`, a client counts exp(-cross-entropy / agreement_temperature).
    uploads: what a client gives away of a prediction: the logits in 32 or 16 bits, or the most likely class alone.
    ensemble: the `mean` of the logits (Eq. 5 as its text says); their `median` over clients against bad ones, for which
      the server collects them and clients count alike; the mean of the clients' `probabilities`, whose logarithms are
      tempered; or `printed`: Eqs. 4 and 5 as printed, where the mean of the probabilities itself stands for the logits.
    temperature: tau of the teacher (Eq. 4); the paper does not give it.
    temper_student: whether the student's logits are divided by it too, which Eq. 6 does not do.
    distillation_weight: of the divergence from the teacher beside the cross-entropy (Eq. 6: 1).
    server_epochs: passes over D_v in a round (Algorithm 1: 1).
    server_batch_size: examples in a batch of the server's; batch_size if not set.
    server_learning_rate: of the server; learning_rate if not set.
    num_server_examples: how many examples the server holds; a run counts them if it is not set.
    num_server_rows: how many rows of the model's outputs they make (tokens of texts); a run counts them if it is not
      set.
    """

    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 0.001
    weighting: Literal["uniform", "examples", "agreement"] = "uniform"
    agreement_temperature: float = field(default=1.0, validator=POSITIVE)
    uploads: Literal["float32", "float16", "label"] = "float32"
    ensemble: Literal["mean", "median", "probabilities", "printed"] = "mean"
    temperature: float = field(default=1.0, validator=POSITIVE)
    temper_student: bool = False
    distillation_weight: float = field(default=1.0, validator=NOT_NEGATIVE)
    server_epochs: int = field(default=1, validator=STEPS)
    server_batch_size: int | None = field(default=None, validator=optional(STEPS))
    server_learning_rate: float | None = field(default=None, validator=optional(NOT_NEGATIVE))
    num_server_examples: int | None = field(default=None, validator=optional(COUNT))
    num_server_rows: int | None = field(default=None, validator=optional(COUNT))

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.ensemble in ("probabilities", "printed") and self.uploads == "label":
            raise ValueError(f"ensemble = {self.ensemble!r} needs uploads = 'float32' or 'float16'")


@algorithm(
    "feded",
    title="FedED",
    source="Sui et al. 2020, Section 3.3, Eqs. 3-6, Algorithm 1",
    options=EnsembleDistillationOptions,
)
def feded(
    model: LocalModel, options: EnsembleDistillationOptions, client_model: LocalModel | None = None
) -> FederatedAlgorithm:
    """mean of the clients' predictions on the server's examples, which the server distils

    With a `client_model` that differs from the server's, clients keep a model of their own from round to round, and the
    server sends them its examples alone.
    """
    require_one_label(model, "feded")
    if options.num_server_examples is None:
        raise CompositionError("feded: num_server_examples is not set; set it to the number of the server's examples")
    if options.ensemble == "median" and options.weighting != "uniform":
        raise CompositionError(
            f"feded: ensemble = 'median' gives all clients the same weight, but weighting is {options.weighting!r}; "
            "set it to 'uniform'"
        )
    of_probabilities = options.ensemble in ("probabilities", "printed")
    work = build_local_training(
        client_model or model,
        objective=CrossEntropy(),
        optimizer=adam_or_sgd(options),
        training=options.local_training("examples" if options.weighting == "examples" else "uniform"),
        client_update=Predictions(
            options.num_server_examples,
            options.uploads,
            options.weighting,
            options.agreement_temperature,
            of_probabilities,
            options.num_server_rows,
            model.row_labels,
        ),
        own_models=client_model is not None,
    )
    return compose(
        model,
        client_work=work,
        aggregator=PredictionsFactory(model.num_classes, combine="median" if options.ensemble == "median" else "mean"),
        finalizer=distillation(
            model,
            work.server_type,
            objective=Distillation(options.temperature, options.distillation_weight, options.temper_student),
            optimizer=_at_server(options),
            training=server_training(options),
            logarithms=options.ensemble == "probabilities",
            num_rows=options.num_server_rows,
        ),
        distributor=None if client_model is None else nothing_sent(model.weights_type),
    )


@algorithm(
    "fedavg_server_pass",
    title="FedAvg and a pass over the server's examples",
    source="a control of FedED: Sui et al. 2020, Algorithm 1, with the mean of the weights in place of the ensemble",
    options=ServerPassOptions,
)
def fedavg_server_pass(model: LocalModel, options: ServerPassOptions) -> FederatedAlgorithm:
    """mean; then the server trains on its own labelled examples as FedED's does, with cross-entropy alone"""
    require_one_label(model, "fedavg_server_pass")
    if options.num_server_examples is None:
        raise CompositionError(
            "fedavg_server_pass: num_server_examples is not set; set it to the number of the server's examples"
        )
    work = build_local_training(
        model,
        objective=CrossEntropy(),
        optimizer=adam_or_sgd(options),
        training=options.local_training(options.weighting),
    )
    finalizer = training_pass(
        model,
        Predictions(options.num_server_examples).server_type(model),
        step=gradient_step(model, step_size=options.server_step, momentum=options.server_momentum),
        optimizer=_at_server(options),
        training=server_training(options),
    )
    return compose(model, client_work=work, aggregator=WeighedMeanFactory(), finalizer=finalizer)


def _at_server(options: TrainsAtServer) -> ClientOptimizer:
    return (SelfAdam if options.optimizer == "adam" else SGD)(server_rate(options))
