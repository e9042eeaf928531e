# ruff: noqa: F401  (the names are in core.py)
"""The language on federated-language, with TensorFlow and an executor added, which it lacks.

conversions.py  types of TensorFlow's values and specs, and values of types.
tensorflow.py   computations from Python functions that build a TensorFlow graph.
flat.py         a computation as a list of calls, which the runtimes read.
"""

from federated_language import (
    CLIENTS,
    SERVER,
    Computation,
    FederatedType,
    FunctionType,
    SequenceType,
    StructType,
    StructWithPythonType,
    TensorType,
    Type,
    federated_aggregate,
    federated_broadcast,
    federated_computation,
    federated_eval,
    federated_map,
    federated_max,
    federated_min,
    federated_secure_sum,
    federated_secure_sum_bitwidth,
    federated_sum,
    federated_value,
    federated_zip,
    framework,
    sequence_sum,
)
from federated_language.common_libs import structure
from federated_language.compiler import array

from computations.federated.language import tensorflow, types
from computations.federated.language.conversions import (
    infer_cardinalities,
    sequence_from_elements,
    tensor_names,
    type_to_tf_structure,
)
from computations.federated.language.flat import flat_block, optimized_leaf, proto_of, unique_names
