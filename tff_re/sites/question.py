"""What all questions of a coordinator and all answers of a site have."""

from __future__ import annotations

from typing import ClassVar

import attrs

from tff_re.sites.fields import REASON, RUN_ID, SITE


@attrs.frozen(kw_only=True, eq=False)
class Question:
    """What a coordinator asks. `kind` names it, `answer` is the class of its answer."""

    kind: ClassVar[str]
    answer: ClassVar[type]
    run: str = attrs.field(validator=RUN_ID)


@attrs.frozen(kw_only=True, eq=False)
class Answer:
    """What a site answers, with its name as `site`."""

    site: str = attrs.field(validator=SITE)


@attrs.frozen(kw_only=True, eq=False)
class No(Answer):
    """A site's refusal to answer, with the reason as a line of text in one of its fields.

    Attributes:
      refused: it does not do what it is asked.
      failed: its part failed; the same question may be answered later.
      lost: what an earlier question left is not there any more.
    """

    refused: str | None = attrs.field(default=None, validator=REASON)
    failed: str | None = attrs.field(default=None, validator=REASON)
    lost: str | None = attrs.field(default=None, validator=REASON)

    def __attrs_post_init__(self):
        if sum(text is not None for text in (self.refused, self.failed, self.lost)) != 1:
            raise ValueError("must have one reason")

    @property
    def reason(self) -> str:
        """Return the reason that is set."""
        return next(text for text in (self.refused, self.failed, self.lost) if text is not None)
