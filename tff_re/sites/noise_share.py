"""A site's share of the noise on its sums of a training round (see `computations.privacy.shares`).

It is added to the integers of the sums, before they are stored and masked: nothing that leaves the site, and no file of
it, has the sums without it. It is drawn from a secret of the site and run, from the whole request and from the sums, so
that the same sums have the same noise, also after a restart, and no two different ones share any.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from computations.aggregators.shared_noise import SharedNoiseFactory
from computations.errors import CompositionError
from computations.privacy.discrete_gaussian import discrete_gaussian
from tff_re.runs.experiment import Experiment
from tff_re.sites.masked_layout import layouts_of
from tff_re.sites.masks import Layout, derive_noise_key, random_words
from tff_re.sites.program import Program, SiteStage
from tff_re.sites.requests import Request


def require_noised(program: Program) -> None:
    """Raise CompositionError unless all that a training round sums is integers of one stage, the first.

    Other numbers would leave without noise, and a later stage could be asked for more than once.
    """
    summing = [stage for stage in program.stages if stage.sums]
    layouts = [layout for stage in summing for layout in layouts_of(stage)]
    if summing != program.stages[:1] or not all(layout.bits for layout in layouts):
        raise CompositionError(
            "noise in shares (privacy.least_sites) covers one sum of integers in a round, and this algorithm sends "
            "other numbers, too"
        )


def with_noise_share(
    experiment: Experiment, stage: SiteStage, request: Request, secret: bytes, sums: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return the sums with the site's share of the noise.

    Args:
      experiment: of the run.
      stage: of the sums.
      request: what was asked for.
      secret: of the site and run.
      sums: the arrays of the stage.
    """
    aggregator: SharedNoiseFactory = experiment.algorithm.parts.aggregator
    variance = aggregator.share_variance(experiment.algorithm.client_work.update_type)
    content = hashlib.sha256()
    for array in sums:
        content.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    words = random_words(derive_noise_key(secret, request.digest, content.hexdigest()))
    return [_noised(array, layout, variance, words) for array, layout in zip(sums, layouts_of(stage), strict=True)]


def _noised(array: np.ndarray, layout: Layout, variance: int, words) -> np.ndarray:
    noise = discrete_gaussian(array.size, variance, words).reshape(array.shape)
    return ((array.astype(np.int64) + noise) % (1 << layout.modulus_bits)).astype(array.dtype)
