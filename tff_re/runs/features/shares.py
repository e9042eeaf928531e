"""Secure sums of a recipe, and the noise that [privacy] adds to them in shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from computations.algorithms.arranged import SharedNoise
from computations.privacy.accounting import Accounting
from computations.privacy.shares import NoiseShares
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.features.failures import asked_at_once

if TYPE_CHECKING:
    from tff_re.runs.building import Setting


def sums_are_secure(recipe: Recipe) -> bool:
    """Whether sums are made as secure ones, which protects nothing in a simulation."""
    return recipe.aggregation is not None and recipe.aggregation.secure != "none"


def sums_are_masked(recipe: Recipe) -> bool:
    """Whether sites mask their sums."""
    return recipe.aggregation is not None and recipe.aggregation.secure == "masks"


def noise_is_shared(recipe: Recipe) -> bool:
    """Whether the noise of [privacy] is added in shares to secure sums."""
    return recipe.privacy_unit == "client" and recipe.privacy.least_sites is not None


def least_sites(recipe: Recipe) -> int:
    """The fewest sites that a total is over, as far as the recipe says it: 0 without noise in shares."""
    return recipe.privacy.least_sites if noise_is_shared(recipe) else 0


def require_shares(recipe: Recipe) -> None:
    """Raises UserError unless the noise of clients and secure sums go together."""
    secure, shared, source = sums_are_secure(recipe), noise_is_shared(recipe), recipe.source
    if secure and not shared:
        raise UserError(
            f"{source}: aggregation.secure needs privacy.least_sites with privacy.unit = 'client': the server sees no "
            "sum that it could add noise to, and each site adds its share; set it to the fewest sites of a round, or "
            "leave aggregation.secure out"
        )
    if shared and not secure:
        raise UserError(
            f"{source}: privacy.least_sites needs aggregation.secure = 'masks', or 'simulated' in one place: a share "
            "of the noise hides nothing where each site's sum is seen; leave it out"
        )
    if shared and recipe.aggregation.secure_quantile is not None:
        raise UserError(
            f"{source}: aggregation.secure_quantile does not go with privacy.least_sites, whose noise is drawn for one "
            "bound; leave secure_quantile out"
        )
    if shared and recipe.aggregation.secure_norm is not None:
        raise UserError(
            f"{source}: aggregation.secure_norm does not go with privacy.least_sites: privacy.clip is the constant of "
            "attention; leave secure_norm out"
        )


def most_in_sum(recipe: Recipe, setting: Setting) -> int:
    """The largest number of clients that a secure sum is over."""
    clients = setting.max_per_round
    if sums_are_masked(recipe):  # of a site all clients count, so that more may count than a round needs
        clients = min(setting.clients, asked_at_once(recipe.training, clients))
    return clients


def shared_noise(recipe: Recipe, setting: Setting, accounting: Accounting) -> SharedNoise | None:
    """How the noise of [privacy] is added in shares, or None if the server adds it or clients do."""
    if not noise_is_shared(recipe):
        return None
    privacy, sums = recipe.privacy, recipe.aggregation
    shares = NoiseShares(
        clip=privacy.clip,
        noise_multiplier=accounting.noise_multiplier,
        bits=sums.secure_bits,
        bound=sums.secure_bound,
        clients=most_in_sum(recipe, setting),
        least_sites=privacy.least_sites,
        colluding_sites=privacy.colluding_sites,
    )
    return SharedNoise(shares, at_sites=sums_are_masked(recipe), modulus_bits=sums.secure_modulus_bits)
