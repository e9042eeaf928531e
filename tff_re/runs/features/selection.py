"""How often a model selects sentences that state their relation, where that is known (made-up bags)."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from computations.client_work.selection import build_selection
from tff_re.recipes.reading import Recipe
from tff_re.runs.evaluation import arranged
from tff_re.runs.features.base import Feature


class Selection(Feature):
    """No table asks for it: it measures wherever the data tell which sentences are true."""

    table = "task"
    _build = None

    @classmethod
    def is_in(cls, recipe: Recipe) -> bool:
        """See `Feature`."""
        return True

    def prepare(self, setting):
        """See `Feature`."""
        prepared, model = setting.prepared, setting.model
        if prepared.truth is not None:
            build = functools.cache(lambda: build_selection(model, prepared.num_triples))
            self._build = setting.computations.setdefault((build_selection, self.recipe.model, setting.sizes), build)

    def start(self, training):
        """See `Feature`."""
        if self._build is not None:
            self._examples = arranged(training.experiment, "train")[1][:]
            self._truth = [known for known in training.experiment.prepared.truth if len(known)]

    def evaluate(self, training, weights: Any) -> dict[str, float]:
        """The shares of true rows among related pairs (`true_share`) and among selected ones.

        `precision_alone` is of the rows that each platform selects by itself, as in ONE; `precision_across` is of those
        that all platforms select together, as in Lazy MIL.
        """
        if self._build is None:
            return {}
        select = self._build()
        selected = {
            "true_share": [np.ones(len(known), bool) for known in self._truth],
            "precision_alone": [select(weights, [examples])[0] for examples in self._examples],
            "precision_across": select(weights, self._examples),
        }
        shares = {}
        for name, rows in selected.items():
            of_pairs = np.concatenate([known[chosen] for known, chosen in zip(self._truth, rows, strict=True)])
            shares[f"selection/{name}"] = float((of_pairs == 1).sum() / max((of_pairs >= 0).sum(), 1))
        return shares
