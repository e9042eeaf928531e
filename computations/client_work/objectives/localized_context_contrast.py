"""FedLCC's localized context contrast (Xiao, Jin and Hao, Section 3.3, Eqs. 11-13)."""

from __future__ import annotations

from computations.client_work.objectives.moon import ModelContrast


class LocalizedContextContrast(ModelContrast):
    """The model's loss plus mu * L_LCC, both means over the batch's pairs.

    L_LCC = -log(e^p / (e^p + e^n)), p = cos(L_k, L) / tau, n = cos(L_k, L_k') / tau (Eq. 12). L_k is the localized
    context of a pair (the model's `context`, Eq. 5) in the step, L that of the global model at the start of the round,
    L_k' that of the client's own model at the end of its last round; the latter two are constants, without dropout. The
    form is MOON's, and so is what a client keeps: the contexts of its own pairs (n * d numbers) instead of its previous
    model. In a client's first round there is no contrast. The released code computes the term and does not add it; this
    is the paper.
    """

    output = "context"

    def __init__(self, mu: float = 0.1, tau: float = 0.5):
        """Args:
          mu: weight of the contrast.
          tau: temperature.

        Raises:
          ValueError: as ModelContrast's.
        """
        super().__init__(mu, tau)
