"""What would lower a finding's number, for the run that was audited: nothing is advised that it already has."""

from __future__ import annotations

from dataclasses import dataclass

from computations.privacy.options import PrivacyOptions

SECURE_SUMS = "secure aggregation, so that nobody sees a single client's update"
UNTRAINED = "word vectors that are not trained (pretrained vectors, frozen layers or an adapter)"


@dataclass(frozen=True)
class Advice:
    """Attributes:
    privacy: the run's [privacy]; None without it.
    """

    privacy: PrivacyOptions | None

    @property
    def noise_at_client(self) -> str:
        """Against those who see one client's update."""
        if self._unit in ("example", "group"):
            return f"more noise than the run's (privacy.unit = '{self._unit}' with a smaller privacy.epsilon)"
        return "privacy.unit = 'example' at the client"

    @property
    def noise_on_sum(self) -> str:
        """Against those who see the sum over clients, or the model, and look for one client in it."""
        if self._unit == "client":
            return "more noise than the run's (privacy.unit = 'client' with a smaller privacy.epsilon)"
        return "noise on the sum (privacy.unit = 'client')"

    @property
    def update(self) -> str:
        """Against those who read one client's update."""
        return f"{SECURE_SUMS}, or {self.noise_at_client}"

    @property
    def word_rows(self) -> str:
        """Against those who read which word vectors changed."""
        return f"{UNTRAINED}, or {self.update}"

    @property
    def membership(self) -> str:
        """Against those who ask the model for its training examples."""
        noise = "privacy.unit = 'example' or 'group'"
        if self._unit in ("example", "group"):
            noise = self.noise_at_client
        return f"{noise}; fewer rounds; stronger regularisation"

    @property
    def _unit(self) -> str | None:
        return None if self.privacy is None else self.privacy.unit
