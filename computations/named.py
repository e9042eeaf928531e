"""Sums and maxima whose accumulators have a name, which tells a party that adds partial sums what they may be."""

from __future__ import annotations

import collections

from computations import federated as tff


def named_sum(name: str, value):
    """Like `tff.federated_sum`, with the type <name=T> between clients and server."""
    return tff.federated_sum(tff.federated_zip(collections.OrderedDict([(name, value)])))[name]


def named_max(name: str, value):
    """Like `tff.federated_max`, with the type <name=T> between clients and server."""
    return tff.federated_max(tff.federated_zip(collections.OrderedDict([(name, value)])))[name]


def named_min(name: str, value):
    """Like `tff.federated_min`, with the type <name=T> between clients and server."""
    return tff.federated_min(tff.federated_zip(collections.OrderedDict([(name, value)])))[name]
