"""The nine algorithms that FLCMC compares (Hu and Fang 2024, Section 3.3, Tables 5 and 6), one row each.

They are the combinations of an aggregation (mean: FedAvg, McMahan et al. 2017; attention: FedAtt, Ji et al. 2019) with
a local optimizer and with or without the proximal term (FedProx, Li et al. 2020). FedPA and FedPAP are FLCMC's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import field

from computations.algorithms.options import AttentionOptions, MeanOptions
from computations.algorithms.parts import with_attention, with_mean
from computations.algorithms.registry import algorithm
from computations.client_work.objectives import Objective, Proximal
from computations.client_work.optimizers import SGD, ClientOptimizer, LibraryAdam, PAdam, SelfAdam
from computations.federated_algorithm import FederatedAlgorithm
from computations.local_model import LocalModel
from computations.ranges import NOT_NEGATIVE, options_class


@options_class
class ProximalOptions(MeanOptions):
    """Attributes:
    mu: weight of the proximal term; 1 is FLCMC's default (Table 7), 0.03 its tuned value on dialogues.
    """

    mu: float = field(default=1.0, validator=NOT_NEGATIVE)


@options_class
class PerturbedAttentionOptions(AttentionOptions):
    """Attributes:
    mu: weight of the proximal term; 0.03 is the tuned value of Section 5.1.1.
    """

    mu: float = field(default=0.03, validator=NOT_NEGATIVE)


def _with_adam(options: type) -> type:
    """Return the same options with Adam's learning rate."""
    body = {"__annotations__": {"learning_rate": float}, "__module__": __name__, "learning_rate": 0.001}
    return options_class(type(f"Adam{options.__name__}", (options,), body))


LocalPart = tuple[str, Callable[[Any], tuple[ClientOptimizer, Objective | None]]]
"""What it is, and options -> the client optimizer and the objective, None for cross-entropy."""

_SGD: LocalPart = "SGD", lambda options: (SGD(options.learning_rate), None)
_PGD: LocalPart = (
    "PGD: SGD on the loss with the proximal term",
    lambda options: (SGD(options.learning_rate), Proximal(options.mu)),
)
_SELF_ADAM: LocalPart = "Self-Adam", lambda options: (SelfAdam(options.learning_rate), None)
_LIBRARY_ADAM: LocalPart = "the library's Adam", lambda options: (LibraryAdam(options.learning_rate), None)
_PADAM: LocalPart = "PAdam", lambda options: (PAdam(options.learning_rate, mu=options.mu), None)

_AGGREGATIONS: dict[str, Callable[..., FederatedAlgorithm]] = {"mean": with_mean, "attention": with_attention}

# title, aggregation, local training, options, source
_TABLE: tuple[tuple[str, str, LocalPart, type, str], ...] = (
    ("FedAvg", "mean", _SGD, MeanOptions, "McMahan et al. 2017, Algorithm 1; FLCMC, Eq. 6"),
    ("FedProx", "mean", _PGD, ProximalOptions, "Li et al. 2020, Algorithm 2; FLCMC, Table 5"),
    ("FedAtt", "attention", _SGD, AttentionOptions, "Ji et al. 2019; FLCMC, Eqs. 10-14"),
    ("FedPA", "attention", _PGD, PerturbedAttentionOptions, "FLCMC, Section 3.3, Eqs. 10-14"),
    ("FedAvgS", "mean", _SELF_ADAM, _with_adam(MeanOptions), "FLCMC, Table 6; Eqs. 15-20"),
    ("FedAvgT", "mean", _LIBRARY_ADAM, _with_adam(MeanOptions), "FLCMC, Table 6"),
    ("FedProxP", "mean", _PADAM, _with_adam(ProximalOptions), "FLCMC, Table 6; Eqs. 21-27"),
    ("FedAttS", "attention", _SELF_ADAM, _with_adam(AttentionOptions), "FLCMC, Table 6; Eqs. 10-20"),
    ("FedPAP", "attention", _PADAM, _with_adam(PerturbedAttentionOptions), "FLCMC, Section 3.3, Eqs. 10-14, 21-27"),
)


def _register(title: str, aggregation: str, local_training: LocalPart, options: type, source: str) -> None:
    what, parts = local_training

    def build(model: LocalModel, options: Any) -> FederatedAlgorithm:
        return _AGGREGATIONS[aggregation](model, options, *parts(options))

    build.__doc__ = f"{aggregation}, {what}"
    algorithm(title.lower(), title=title, source=source, options=options)(build)


for _row in _TABLE:
    _register(*_row)
