"""What the clients of an algorithm do in a round, as federated computations with typed interfaces."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from computations import federated as tff
from computations.client_work.client_training import LocalTraining
from computations.client_work.optimizers import ClientOptimizer
from computations.errors import CompositionError
from computations.federated.values import Value
from computations.privacy.example_gradients import ExamplePrivacy


@dataclass(frozen=True)
class ClientWork:
    """What the clients do in a round, as federated computations.

    Attributes:
      initialize: (weights@SERVER -> state@SERVER).
      next: (<state=@SERVER, weights=@CLIENTS, clients=@CLIENTS[, client_state=@CLIENTS][, server=@SERVER]> ->
        <state=@SERVER, update=@CLIENTS, weight=float32@CLIENTS, not_finite=float32@CLIENTS[, client_state=@CLIENTS],
        metrics=@SERVER>), one struct of inputs; `clients` and `server` are <examples=E, seed=int32[2]>. A client of
        weight zero does not count; `not_finite` is 1 where that is because of a value that is not finite. An input
        `server_weights`, if there is one, gets the global weights at the server. Clients that never get the global
        weights have no input `weights`. Metrics are an empty tuple where no statistics of the training leave clients.
      client_state_type: type of what a client keeps between rounds, or None.
      initial_client_state: (a client's examples, the run's seed) -> NumPy value of `client_state_type` for a client
        that was not trained yet.
      recorded_state: entries of the client state that a simulation may record for every client, see `Objective`; in a
        deployment they stay at the client.
      server_type: type of `server`, or None where the work does not need the server's examples.
      side_outputs: what leaves the clients in addition to the update, its weight and the metrics (the class of an
        objective with a side channel, `selection`, `examples`) -> why a private sum of the updates does not cover it.
      example_privacy: what local training protects the client's examples with, or None.
      optimizer, training: of the clients, for a server that trains as they do; None where the work is no such training.
    """

    initialize: tff.Computation
    next: tff.Computation
    client_state_type: tff.Type | None = None
    initial_client_state: Callable[..., object] | None = None
    recorded_state: tuple[str, ...] = ()
    server_type: tff.Type | None = None
    side_outputs: Mapping[str, str] = field(default_factory=dict)
    example_privacy: ExamplePrivacy | None = None
    optimizer: ClientOptimizer | None = None
    training: LocalTraining | None = None

    def __post_init__(self) -> None:
        needed = {"state", "update", "weight", "not_finite", "metrics"}
        needed |= set() if self.client_state_type is None else {"client_state"}
        if missing := sorted(needed - set(self.outputs)):
            raise CompositionError(f"client work: `next` has no output {', '.join(map(repr, missing))}")

    def wrapped(self, change: Callable, inputs: Mapping[str, tff.Type] | None = None, **fields: Any) -> ClientWork:
        """Return the work with something before and after its `next`.

        Outputs stay unless `change` replaces them.

        Args:
          change: (inputs, run) -> {name: new output}, in the context of a federated computation. `run(name=value, ...)`
            calls the work's own `next`, once, with these inputs in place of those of the same name.
          inputs: types of the fields that the new `next` takes; the work's own if not given.
          **fields: other fields of the new work.

        Raises:
          CompositionError: the new work lacks an output that its fields promise.
        """
        takes = collections.OrderedDict(self.inputs if inputs is None else inputs)

        @tff.federated_computation(tff.types.to_type(takes))
        def next_round(inputs: Value) -> Value:
            outputs: collections.OrderedDict[str, Value] = collections.OrderedDict()

            def run(**values: Value) -> Value:
                output = self.next(**{name: values[name] if name in values else inputs[name] for name in self.inputs})
                outputs.update((name, output[name]) for name in self.outputs)
                return output

            changed = change(inputs, run)
            return collections.OrderedDict(outputs, **changed)

        return dataclasses.replace(self, next=next_round, **fields)

    @property
    def inputs(self) -> collections.OrderedDict[str, tff.Type]:
        """Return the types of the fields of the struct that `next` takes."""
        return collections.OrderedDict(tff.structure.to_elements(self.next.type_signature.parameter))

    @property
    def outputs(self) -> list[str]:
        """Return the names of the fields of the struct that `next` returns."""
        return tff.structure.name_list(self.next.type_signature.result)

    @property
    def has_metrics(self) -> bool:
        """Return whether statistics of the training leave the clients."""
        return bool(tff.structure.flatten(self.next.type_signature.result.metrics.member))

    @property
    def clients_type(self) -> tff.Type:
        """Return the member type of the field `clients`."""
        return self.inputs["clients"].member

    @property
    def update_type(self) -> tff.Type:
        """Return the member type of a client's update."""
        return self.next.type_signature.result.update.member
