"""The language on the chosen stack, without the library of aggregators and processes."""

from computations.stack import STACK

if STACK == "tff":
    from computations.federated.on_tff import *  # noqa: F403
else:
    from computations.federated.language import *  # noqa: F403

__all__ = [
    *("CLIENTS", "SERVER", "Computation", "FederatedType", "FunctionType", "SequenceType", "StructType"),
    *("StructWithPythonType", "TensorType", "Type", "federated_aggregate", "federated_broadcast"),
    *("federated_computation", "federated_eval", "federated_map", "federated_max", "federated_min", "federated_sum"),
    *("federated_secure_sum", "federated_secure_sum_bitwidth", "sequence_sum"),
    *("federated_value", "federated_zip", "framework", "structure", "tensorflow", "types"),
    *("array", "flat_block", "infer_cardinalities", "optimized_leaf", "proto_of", "sequence_from_elements"),
    *("tensor_names", "type_to_tf_structure", "unique_names"),
]
"""What each back end gives."""
