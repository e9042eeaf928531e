"""All features of a run in their order."""

from __future__ import annotations

from tff_re.recipes.reading import Recipe
from tff_re.runs.features.aggregation import Aggregation
from tff_re.runs.features.attack import Attack
from tff_re.runs.features.base import Feature
from tff_re.runs.features.baseline import Baseline
from tff_re.runs.features.choice import RoundChoice
from tff_re.runs.features.failures import Failures
from tff_re.runs.features.own_models import LocalHead
from tff_re.runs.features.personalise import Personalise
from tff_re.runs.features.privacy import Privacy
from tff_re.runs.features.selection import Selection
from tff_re.runs.features.server_optimizer import ServerOptimizer
from tff_re.runs.features.track import Track

# An algorithm is changed from the clients to the server: a client keeps its head, an attacker changes the update that
# is left, privacy clips what any client sends and replaces the sum, [aggregation] works on the sum that is then there
# (and refuses to replace a private one), and the server's step comes last. Of the data, groups are numbered before dev
# examples are kept out, and these before all clients' examples are pooled. Of the reasons to stop the last one is told:
# patience before the budget. The columns of clients.csv are in this order. A round is tracked after all
# others have added their metrics.
FEATURES: tuple[type[Feature], ...] = (
    Personalise,
    LocalHead,
    Failures,
    Attack,
    Privacy,
    Aggregation,
    ServerOptimizer,
    RoundChoice,
    Baseline,
    Selection,
    Track,
)


def features_of(recipe: Recipe) -> tuple[Feature, ...]:
    """The features that a recipe asks for, one instance each."""
    return tuple(feature(recipe) for feature in FEATURES if feature.is_in(recipe))
