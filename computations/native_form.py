"""The form of a computation that runtimes run, compiled once for all callers."""

from __future__ import annotations

import functools
import hashlib
import threading
from collections import OrderedDict

import tensorflow as tf

from computations import federated as tff
from computations.federated import framework as fw


@functools.lru_cache(maxsize=64)
def native_form(computation: tff.Computation) -> tff.Computation:
    """Return the form that the execution context runs and `round_traffic` reads.

    A transformer's takes half a minute to compile.

    On TFF's stack it is what `tff.backends.native.desugar_and_transform_to_native` makes. That optimizes each
    occurrence of a TensorFlow computation, and most occur several times in an algorithm and again in the next; here
    each is optimized once.
    """
    block, _ = fw.transform_postorder(tff.flat_block(computation), _prepared)
    return fw.ConcreteComputation(computation_proto=tff.proto_of(block), context_stack=fw.get_context_stack())


@functools.lru_cache(maxsize=64)
def native_block(computation: tff.Computation) -> fw.ComputationBuildingBlock:
    """Return the tree of a computation's native form."""
    return native_form(computation).to_building_block()


_MAX_LEAVES = 1024  # leaves that are kept
_cache: OrderedDict[bytes, fw.CompiledComputation] = OrderedDict()
_lock = threading.Lock()


def _prepared(block: fw.ComputationBuildingBlock) -> tuple[fw.ComputationBuildingBlock, bool]:
    """Return a TensorFlow computation with its graph optimized."""
    if not isinstance(block, fw.CompiledComputation):
        return block, False
    key = hashlib.sha256(tff.proto_of(block).SerializeToString(deterministic=True)).digest()
    with _lock:
        if key in _cache:
            _cache.move_to_end(key)
            return _cache[key], True
    leaf = tff.optimized_leaf(block, _grappler())
    with _lock:
        _cache[key] = leaf
        if len(_cache) > _MAX_LEAVES:
            _cache.popitem(last=False)
    return leaf, True


@functools.cache
def _grappler() -> tf.compat.v1.ConfigProto:
    """Return Grappler's settings, which are TFF's: the passes named here, aggressively."""
    config = tf.compat.v1.ConfigProto()
    rewrite = config.graph_options.rewrite_options
    rewrite.memory_optimization = rewrite.constant_folding = rewrite.arithmetic_optimization = rewrite.AGGRESSIVE
    rewrite.loop_optimization = rewrite.function_optimization = rewrite.AGGRESSIVE
    return config
