"""What `allow.survey` of site.toml may say."""

from __future__ import annotations

import attrs
from attrs.validators import ge, gt, optional

LEAST_COUNT = 5


@attrs.frozen(kw_only=True)
class SurveyOptions:
    """What a survey may tell of the site's data.

    Attributes:
      least_count: counts of texts and clients from 1 to one below it are hidden.
      epsilon: counts have noise in place of a least count; the ε that all surveys on one file of training data may
        spend together.
      surveys: with a least count, how many different surveys of one file of training data are answered: the
        difference of two may show a smaller count.
      vocabulary: with a least count, whether keyed digests of words may leave, which show how many of them two sites
        share.
      distance: whether the page may show how far the site's labels are from those of all sites.
    """

    least_count: int | None = attrs.field(default=None, validator=optional(ge(2)))
    epsilon: float | None = attrs.field(default=None, validator=optional(gt(0)))
    surveys: int = attrs.field(default=1, validator=ge(1))
    vocabulary: bool = True
    distance: bool = False

    def __attrs_post_init__(self):
        if (self.least_count is None) == (self.epsilon is None):
            raise ValueError("set least_count or epsilon, and not both: counts without noise would void the ε")
