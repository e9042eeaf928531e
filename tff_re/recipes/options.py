"""The tables [choice], [baseline] and [personalise] of a recipe."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs.validators import and_, ge, gt, lt, optional

DEV_SHARE, DEFAULT_METRIC = 0.1, "loss"
"""Of [choice] where clients have the dev examples."""


@attrs.frozen(kw_only=True)
class ChoiceOptions:
    """Attributes:
    dev_share: share of each client's training examples that it keeps out of training, to choose the round on; not set:
      a tenth. Where the server holds a dev split, that chooses, and this is refused.
    dev_unit: keep out whole documents (dialogues, patients' reports; single examples at a client that has one document
      alone), or single examples.
    metric: of the dev examples; of losses the lowest, of others the highest; not set: `loss`, or the task's own where
      the server holds the dev split.
    patience: rounds without a better value after which training ends; not set: it goes on to the last round.
    """

    dev_share: float | None = attrs.field(default=None, validator=optional(and_(gt(0), lt(1))))
    dev_unit: Literal["document", "sample"] = "document"
    metric: str | None = None
    patience: int | None = attrs.field(default=None, validator=optional(ge(1)))
