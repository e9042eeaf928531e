"""The table of aggregation rules, with what each rule is, takes and refuses.

A rule is one file of this folder that calls `rule`; `__init__.py` has an example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from computations import federated as tff
from computations.client_work import ClientWork
from computations.local_model import LocalModel
from computations.registry import Registry

Build = TypeVar("Build", bound=Callable[..., tff.aggregators.WeightedAggregationFactory])

NOBODY_SEES = "with secure sums nobody sees a single update"
"""`Rule.not_secure` of a rule that looks at single updates."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Rule:
    """A way to combine the clients' updates that replaces the algorithm's own.

    `options` in the signatures below is the whole table [aggregation]. All rules stand behind screening, zeroing and
    clipping, and none goes with privacy of clients, whose noisy sum is an aggregator itself.

    Attributes:
      name: as recipes write it.
      title: what notes call it, e.g. "the geometric median (RFA)".
      build: (options) -> the aggregator; its docstring is the rule's description in docs/recipes.md.
      options: an `options_class` whose fields are the keys that the rule adds to [aggregation]; None: no keys.
      notes: further sentences for every output of a run.
      collects: whether the server holds the updates of all clients of a round. Such a rule has no sum of codes, and the
        updates have to fit into its memory.
      server_examples: whether it needs labelled examples at the server.
      not_secure: why it does not go with secure sums; None: it does, if its aggregator has `with_sums`.
      excludes: class of an algorithm's aggregator -> why the rule does not go with it, with a remedy.
      largest_factor: (options) -> by how much it multiplies a client's weight at most.
      require_round: (options, expected clients of a round); raises CompositionError where it cannot work on so few.
      change_work: (client work, model) -> the client work that the rule needs.
    """

    name: str
    title: str
    build: Callable[[Any], tff.aggregators.WeightedAggregationFactory]
    options: type | None = None
    notes: tuple[str, ...] = ()
    collects: bool = False
    server_examples: bool = False
    not_secure: str | None = None
    excludes: Mapping[type, str] = field(default_factory=dict)
    largest_factor: Callable[[Any], float] = lambda options: 1.0
    require_round: Callable[[Any, float], None] = lambda options, expected: None
    change_work: Callable[[ClientWork, LocalModel], ClientWork] = lambda work, model: work


RULES = Registry("aggregation rule", "computations.aggregation_rules")


def rule(name: str, **attributes: Any) -> Callable[[Build], Build]:
    """Register the decorated (options) -> aggregator under `name`, with further attributes of `Rule`.

    Raises:
      ValueError: another file has registered the name.
    """

    def register(build: Build) -> Build:
        RULES.add(name, Rule(name=name, build=build, **attributes), build.__module__)
        return build

    return register
