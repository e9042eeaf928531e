"""An algorithm whose aggregation is replaced by one with differential privacy of clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from computations import federated as tff
from computations.aggregators import AttentionFactory, Noise, PrivateAttentionFactory, PrivateMeanFactory
from computations.aggregators.mean import LeanMeanFactory
from computations.aggregators.shared_noise import SharedNoiseMeanFactory
from computations.aggregators.shared_noise_attention import SharedNoiseAttentionFactory
from computations.client_work import ClientWork
from computations.errors import CompositionError
from computations.federated.values import Value
from computations.federated_algorithm import FederatedAlgorithm, recompose
from computations.privacy.options import PrivacyOptions
from computations.privacy.shares import NoiseShares


def privatised(
    algorithm: FederatedAlgorithm,
    privacy: PrivacyOptions,
    *,
    expected_clients: float,
    noise_multiplier: float,
    shares: SharedNoise | None = None,
) -> FederatedAlgorithm:
    """Return the algorithm with differential privacy of clients (`unit = "client"`) in place of its own aggregator.

    The mean becomes `PrivateMeanFactory`, whatever its weighting: all clients count alike. Attention becomes
    `PrivateAttentionFactory` with the same granularity, one aggregation. The caller puts the seed of the run's noise
    into the state before every round (`with_noise_seed`).

    The training's own statistics (local/loss, local/steps, clients/counted, clients/non_finite) are sums over clients
    in the clear: one client's loss is known from the rest. The metrics of the client work are therefore left out, as an
    empty tuple, but for `privacy.training_metrics`, which a simulation may set.

    Args:
      algorithm: with the mean or attention, and nothing that leaves the clients beside their updates.
      privacy: bound, quantile, mechanism and normaliser are read here; the budget is not.
      expected_clients: the fixed denominator: K, or q N with Poisson sampling.
      noise_multiplier: z, as `Accounting.noise_multiplier`.
      shares: how noise is added in shares; None: the server adds it.

    Raises:
      CompositionError: for another unit, and for what is not covered, which it names with what would be needed.
    """
    if privacy.unit != "client":
        raise CompositionError(f"privacy.unit is {privacy.unit!r}, whose noise is drawn in the clients' local training")
    work = algorithm.client_work
    for reason in work.side_outputs.values():
        raise CompositionError(f'privacy.unit = "client" does not cover this algorithm: {reason}')
    noise = _noise(privacy, expected_clients, noise_multiplier)
    if not privacy.training_metrics:
        work = _without_metrics(work)
    if shares is None:
        aggregator = _private(algorithm.parts.aggregator, noise, privacy)
    else:
        aggregator = _shared(algorithm, privacy, shares, expected_clients)
    private = recompose(algorithm, client_work=work, aggregator=aggregator)
    require_only_updates(private, privacy)
    return private


@attrs.frozen
class SharedNoise:
    """How noise is added in shares.

    Attributes:
      shares: the grid and the noise.
      at_sites: whether sites add it; else the server of a simulation does.
      modulus_bits: `aggregation.secure_modulus_bits`.
    """

    shares: NoiseShares
    at_sites: bool
    modulus_bits: int | None


def require_only_updates(algorithm: FederatedAlgorithm, privacy: PrivacyOptions) -> None:
    """Raise an error if anything but updates and weights leaves a private algorithm's clients, for any unit.

    Raises:
      CompositionError: its client work sends values beside the updates, or statistics of the training without
        `privacy.training_metrics`.
    """
    work = algorithm.client_work
    unprotected = [
        *work.side_outputs,
        *(["statistics of the training"] if work.has_metrics and not privacy.training_metrics else []),
    ]
    if unprotected:
        raise CompositionError(
            f"privacy.unit = {privacy.unit!r} covers only the clients' updates, and {', '.join(unprotected)} would "
            "be sent without noise"
        )


def _noise(privacy: PrivacyOptions, expected_clients: float, noise_multiplier: float) -> Noise:
    tree = privacy.mechanism == "tree"
    if tree and privacy.clip_quantile is not None:
        raise CompositionError(
            'privacy.mechanism = "tree" needs the same bound in all rounds; leave out privacy.clip_quantile'
        )
    if tree and privacy.noise_seed == "system":
        raise CompositionError(
            'privacy.mechanism = "tree" subtracts noise of earlier rounds, but a resumed run would not have the '
            'seed of that noise; set privacy.noise_seed to "run" or "file:PATH"'
        )
    return Noise(
        clip=privacy.clip,
        noise_multiplier=noise_multiplier,
        expected_clients=expected_clients,
        quantile=privacy.clip_quantile,
        tree=tree,
    )


def _private(
    aggregator: tff.aggregators.WeightedAggregationFactory, noise: Noise, privacy: PrivacyOptions
) -> tff.aggregators.WeightedAggregationFactory:
    if isinstance(aggregator, AttentionFactory):
        if noise.tree:
            raise CompositionError(
                'privacy.mechanism = "tree" adds up the sums of all rounds, but attention divides the sum of each '
                'round by that round\'s normaliser; use "gaussian", or an algorithm with a mean'
            )
        return PrivateAttentionFactory(noise, aggregator.granularity, privacy.normaliser)
    if privacy.normaliser is not None:
        raise CompositionError("privacy.normaliser is only for attention, but this algorithm uses a mean; leave it out")
    if isinstance(aggregator, LeanMeanFactory):
        return PrivateMeanFactory(noise)
    if reason := getattr(aggregator, "not_private", None):
        raise CompositionError(f'privacy.unit = "client" does not cover this algorithm: {reason}')
    name = type(aggregator).__name__
    raise CompositionError(
        'privacy.unit = "client" works with the mean and with attention, but this algorithm aggregates with '
        f"{name}, whose sensitivity to one client is not known; leave out [aggregation] or [privacy]"
    )


def _shared(
    algorithm: FederatedAlgorithm, privacy: PrivacyOptions, noise: SharedNoise, expected_clients: float
) -> tff.aggregators.WeightedAggregationFactory:
    """Return the mean or attention with noise in shares.

    Raises CompositionError, which names what goes without shares only.
    """
    aggregator = algorithm.parts.aggregator
    attends = isinstance(aggregator, AttentionFactory)
    for key, is_set in (
        ("clip_quantile", privacy.clip_quantile is not None),
        ('mechanism = "tree"', privacy.mechanism == "tree"),
    ):
        if is_set:
            raise CompositionError(
                f"privacy.{key} is for noise that the server adds, and with privacy.least_sites the sites add it to a "
                "sum with one bound for all rounds; leave one of the two out"
            )
    if privacy.normaliser is not None and not attends:
        raise CompositionError("privacy.normaliser is only for attention, but this algorithm uses a mean; leave it out")
    if not isinstance(aggregator, LeanMeanFactory | AttentionFactory):
        reason = getattr(aggregator, "not_private", None)
        name = type(aggregator).__name__
        raise CompositionError(
            "noise in shares (privacy.least_sites) is for the mean and for attention, "
            + (reason or f"and this algorithm aggregates with {name}; take an algorithm with a mean, such as fedavgs")
        )
    if not tff.types.contains_only(algorithm.client_work.update_type, _is_float32):
        raise CompositionError(
            f"noise in shares needs updates of float32 numbers, got {algorithm.client_work.update_type}; set "
            "algorithm.uploads = 'float32'"
        )
    ways: dict[str, Any] = {"at_sites": noise.at_sites, "modulus_bits": noise.modulus_bits}
    if attends:
        return SharedNoiseAttentionFactory(
            noise.shares, expected_clients, aggregator.granularity, privacy.normaliser, **ways
        )
    return SharedNoiseMeanFactory(noise.shares, expected_clients, **ways)


def _is_float32(type_spec: tff.Type) -> bool:
    return not isinstance(type_spec, tff.TensorType) or type_spec.dtype == np.float32


def _without_metrics(work: ClientWork) -> ClientWork:
    """Return the same work without metrics."""

    def change(_: Value, run: Callable[..., Value]) -> dict[str, Value]:
        run()
        return {"metrics": tff.federated_value((), tff.SERVER)}

    return work.wrapped(change)
