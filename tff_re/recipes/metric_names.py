"""Names that a run's metric may have, so that a typo in a suite or under [published] is refused before a run.

Which of them a recipe's runs have is known once it is built: `tff_re.runs.evaluation.metric_names`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tff_re.errors import UserError, nearest

SPLITS = ("test/", "train/", "dev/")

_OF_CLASSES = ("accuracy", "loss", "macro_f1", "micro_f1", "matthews")
_OF_PAIRS = ("f1", "precision", "recall", "f1_intra", "f1_inter", "ign_f1", "threshold")
_OF_SPANS = ("f1", "precision", "recall", "macro_f1", "lenient_precision", "lenient_recall", "lenient_f1")
_OF_RANKINGS = ("auc", "auc_2000", "p_at_100", "p_at_200", "p_at_300", "p_at_mean", "max_f1")
_OVER_CLIENTS = tuple(f"{quality}_{which}" for quality in ("accuracy", "f1") for which in ("worst", "median", "best"))
_OF_SELECTION = ("triples", "sentences", "share", "true_share", "precision_alone", "precision_across")
_OF_RULES = (
    *("screened", "clipped", "clipping_norm", "zeroed", "zeroing_norm", "effective_clients", "collected", "too_few"),
    *("trusted", "trust", "server_norm", "server_loss"),
)
_OF_ALGORITHMS = (
    *("local/loss", "local/steps", "clients/counted", "clients/non_finite", "attention/effective_clients"),
    *(f"selection/{name}" for name in _OF_SELECTION),
    *(f"robust/{name}" for name in _OF_RULES),
    *("attack/clients", "attack/success"),
)
_PREFIXES = ("finalizer/", "distributor/")

OF_GAIN = ("gain", "gain_worst", "not_worse")
"""Of fine-tuning at the clients, beside what it reaches."""

_OF_SPLITS = (*_OF_CLASSES, *_OF_PAIRS, *_OF_SPANS, *_OF_RANKINGS, *_OVER_CLIENTS)
_OF_SITES = (*_OF_CLASSES, *_OF_PAIRS, *_OF_SPANS, *_OVER_CLIENTS, *OF_GAIN)
ALL = (
    *(split + name for split in SPLITS for name in _OF_SPLITS),
    *(prefix + name for prefix in ("all/", "personal/", "personal_dev/") for name in _OF_SITES),
    *_OF_ALGORITHMS,
)


def require_known(names: Iterable[str], source: str) -> None:
    """Raises UserError for a name that no run's metric can have, with the nearest that one may."""
    for name in names:
        if name not in ALL and not name.startswith(_PREFIXES):
            raise UserError(f"{source}: there is no metric '{name}'; {nearest(name, ALL)}")
