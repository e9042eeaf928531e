"""The TensorFlow operations that exports of this project are made of.

Without ``trust``, `load_export` runs no graph that holds another one. Every operation here computes tensors from
tensors, keeps them in the process's memory, or calls functions of the same graph: none reads or writes a file, opens a
connection, starts a process or calls Python. The list is exactly what the forms of all models and kinds of input, and
encoders of the usual architectures, contain: `tests/exporting/test_export_trust.py` builds them and says which
operation is missing or in none of them. `export` checks what it wrote by the same list.
"""

from __future__ import annotations

_GROUPS = {
    "arithmetic": """
Abs AddN AddV2 ArgMax BatchMatMulV2 BiasAdd Bincount BitwiseAnd BlockLSTMV2 Cast Ceil Conv2D Cos Cumsum
DenseBincount DepthwiseConv2dNative DivNoNan Einsum Erf Erfc Exp FloorDiv FloorMod Log MatMul Max Maximum Mean Min
Minimum Mul Neg Pow Prod RealDiv Relu Rsqrt Sigmoid Sign Sin Softmax Softplus Sqrt SquaredDifference Sub Sum Tanh TopKV2
UnsortedSegmentMax UnsortedSegmentSum
""",
    "comparisons": """
All Any Equal Greater GreaterEqual Less LessEqual LogicalAnd LogicalNot LogicalOr NotEqual SelectV2 Where
""",
    "shapes": """
BroadcastTo ConcatV2 Const EnsureShape ExpandDims Fill GatherNd GatherV2 Identity IdentityN InvertPermutation
MatrixDiagV3 OneHot OnesLike Pack Pad PadV2 Placeholder RaggedGather RaggedTensorToTensor Range Reshape ReverseSequence
ReverseV2 ScatterNd Shape Size Slice Split Squeeze StopGradient StridedSlice Tile Transpose Unpack ZerosLike
""",
    "strings": """
FastWordpieceTokenizeWithOffsets StringSplitV2 StringStrip UnicodeDecode UnicodeEncode
""",
    "control flow": """
Assert If NoOp PartitionedCall StatefulPartitionedCall StatelessWhile While
""",
    "variables and tables": """
HashTableV2 LookupTableFindV2 LookupTableImportV2 ReadVariableOp ResourceGather VarHandleOp
""",
    "lists": """
EmptyTensorList TensorListConcatV2 TensorListElementShape TensorListFromTensor TensorListGetItem TensorListLength
TensorListPopBack TensorListPushBack TensorListReserve TensorListSetItem TensorListStack
""",
    # Keras keeps the gradient of its LSTM beside the forward function; nobody calls it.
    "gradients": """
BiasAddGrad BroadcastGradientArgs ConcatOffset CudnnRNNBackpropV3 CudnnRNNV3 OptionalFromValue OptionalGetValue
OptionalNone SigmoidGrad StridedSliceGrad TanhGrad
""",
}

OPERATIONS = frozenset(name for group in _GROUPS.values() for name in group.split())
"""What a graph may hold."""

_CHECKPOINTS = """
AssignVariableOp DisableCopyOnRead MergeV2Checkpoints RestoreV2 SaveV2 Select ShardedFilename StaticRegexFullMatch
StringJoin
"""

CHECKPOINT_OPERATIONS = frozenset(_CHECKPOINTS.split())
"""What else the two functions hold that save and restore the variables. TensorFlow writes them into every SavedModel;
`load_export` calls neither."""
