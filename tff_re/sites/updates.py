"""The updates of a site's own clients, kept on its disk for `audit`, if `keep_updates` of its file asks for it.

    state/runs/RUN/updates/ROUND       the sums of updates that left, or were masked, in a round

They are what the coordinator gets where sums are not masked, so that the site sees what they tell of its data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tff_re.sites.messages import Malformed, pack, unpack
from tff_re.sites.program import SiteStage, leaves
from tff_re.sites.store import RunStore

_FOLDER = "updates"

_SUMS = ("sums", "attended", "values")
"""Names of the entries of a sum that are sums of updates, as `sums.py` has them."""


def update_of(stage: SiteStage, arrays: Sequence[np.ndarray], weights_type: Any) -> list[np.ndarray] | None:
    """Return the sum of the clients' updates in a site's answer, one array for each trainable weight.

    None if the answer has none, as in FedED and in the first stage of attention.
    """
    names = [name for aggregation in stage.sums for name, _ in leaves(aggregation.type)]
    update = [array for name, array in zip(names, arrays, strict=True) if name in _SUMS]
    shapes = [tuple(tensor.shape) for tensor in weights_type.trainable]
    return update if [array.shape for array in update] == shapes else None


def keep_update(
    store: RunStore,
    round_num: int,
    clients: Sequence[str],
    update: Sequence[np.ndarray],
    rounds: int,
) -> None:
    """Write a round's update, and remove those of rounds before the newest ones."""
    store.write(f"{_FOLDER}/{round_num}", pack({"clients": list(clients)}, update))
    for path in (store.folder / _FOLDER).glob("[0-9]*"):
        if int(path.name) <= round_num - rounds:
            path.unlink(missing_ok=True)


def kept_updates(store: RunStore) -> dict[int, tuple[list[str], list[np.ndarray]]]:
    """Return the clients and the update of each round that was kept, by round.

    A file that is damaged is left out.
    """
    updates = {}
    for number in sorted(int(path.name) for path in (store.folder / _FOLDER).glob("[0-9]*")):
        with contextlib.suppress(Malformed):
            table, arrays = unpack(store.read(f"{_FOLDER}/{number}") or b"")
            updates[number] = table["clients"], arrays
    return updates
