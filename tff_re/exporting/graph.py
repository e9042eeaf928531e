"""What the graph of an exported SavedModel could do, found out without loading it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from datasets.errors import DataError
from tff_re.exporting.layout import REMEDY
from tff_re.exporting.operations import CHECKPOINT_OPERATIONS, OPERATIONS

MODEL_FILE, FINGERPRINT_FILE = "saved_model.pb", "fingerprint.pb"
VARIABLES = ("variables/variables.index", "variables/variables.data-00000-of-00001")

_FOREIGN = (
    "pass --trust (trust=True) if you know where it comes from: such a graph can do anything that your user account can"
)

# Of the object graph: what the loader makes of it is a plain object, a variable, a table or a function of the graph.
_KINDS = {"bare_concrete_function", "constant", "function", "resource", "user_object", "variable"}
_OBJECTS = {"", "_generic_user_object", "signature_map", "trackable_dict_wrapper", "trackable_list_wrapper"}
_CLASSES = {"", "tf.StaticHashTable", "tf.TrackableConstant"}
# By others (`api_implements`) TensorFlow exchanges a function for another one.
_CHECKPOINT_ATTRIBUTES = {"_construction_context", "_input_shapes"}


def check_files(folder: Path) -> None:
    """Raises DataError if a file that every SavedModel of ours has is missing or is not a protocol buffer."""
    if not (folder / MODEL_FILE).is_file():
        raise DataError(f"holds no {MODEL_FILE}", path=folder, remedy=REMEDY)
    for name in VARIABLES:
        if not (folder / name).is_file():
            raise DataError(f"holds no {name}", path=folder, remedy=REMEDY)
    if (folder / FINGERPRINT_FILE).exists():
        from tensorflow.core.protobuf.fingerprint_pb2 import FingerprintDef

        _parsed(FingerprintDef(), folder / FINGERPRINT_FILE)


def check_graph(folder: Path) -> None:
    """Raises DataError unless the SavedModel holds nothing but what exports of this project are made of.

    It is parsed, not loaded: loading runs the initialisers that it names. All functions of its library are looked at,
    called or not, and all that the loader would make objects of.
    """
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    model = _parsed(SavedModel(), folder / MODEL_FILE)
    if len(model.meta_graphs) != 1 or not model.meta_graphs[0].HasField("object_graph_def"):
        raise DataError("is not a SavedModel of TensorFlow 2", path=folder / MODEL_FILE, remedy=REMEDY)
    for what in _foreign(model.meta_graphs[0]):
        raise DataError(f"{what}, and no export of this project does", path=folder / MODEL_FILE, remedy=_FOREIGN)


def _parsed(message, path: Path):
    from google.protobuf.message import DecodeError

    problem = None
    try:
        message.ParseFromString(path.read_bytes())
        return message
    except OSError as error:
        problem = f"cannot be read ({error.strerror or type(error).__name__})"
    except (DecodeError, RecursionError):
        problem = "is damaged: it is not a protocol buffer of TensorFlow"
    raise DataError(problem, path=path, remedy=REMEDY)


def _foreign(meta_graph) -> Iterator[str]:
    """In words what the graph has that ours have not."""
    graph, objects = meta_graph.graph_def, meta_graph.object_graph_def
    functions = {function.signature.name: function for function in graph.library.function}
    if len(functions) != len(graph.library.function):
        yield "has two functions with the same name"
    # The loader takes a node for a call where a function has the name of its operation.
    if not functions.keys().isdisjoint(OPERATIONS | CHECKPOINT_OPERATIONS):
        yield "has a function with the name of an operation"
    saver = meta_graph.saver_def
    saver_nodes = {name.split(":")[0] for name in (saver.save_tensor_name, saver.restore_op_name)}
    of_saver = {name for node in graph.node if node.name in saver_nodes for name in _called(node.attr)}
    called = [name for node in graph.node if node.name not in saver_nodes for name in _called(node.attr)]
    called += [name for function in functions.values() for node in function.node_def for name in _called(node.attr)]
    nodes = [*graph.node, *(node for function in functions.values() for node in function.node_def)]
    called += [node.op for node in nodes if node.op in functions]
    called += [name for function in functions.values() for name in _called(function.attr)]
    called += _loaded(objects)
    for name in called:
        if name in of_saver:
            yield "calls the save and restore functions from elsewhere in the graph"
        if name not in functions:
            yield "calls a function that it does not contain"
    held = []
    for name, function in functions.items():
        saves = name in of_saver and set(function.attr) <= _CHECKPOINT_ATTRIBUTES
        held += [n.op for n in function.node_def if not (saves and n.op in CHECKPOINT_OPERATIONS)]
    held += [node.op for node in graph.node]
    yield from (f"contains the operation {_plain(name)}" for name in held if name not in OPERATIONS)
    if meta_graph.asset_file_def:
        yield "reads files (assets)"
    for node in objects.nodes:
        kind = node.WhichOneof("kind")
        if kind not in _KINDS or node.registered_name not in _CLASSES or node.registered_saver:
            yield f"contains an object of an unknown kind ({_plain(node.registered_name or str(kind))})"
        if node.user_object.identifier not in _OBJECTS:
            yield f"contains an object of an unknown kind ({_plain(node.user_object.identifier)})"


def _called(attributes) -> Iterator[str]:
    """Names of the functions among the attributes of a node."""
    for value in attributes.values():
        for function in ([value.func] if value.HasField("func") else []) + list(value.list.func):
            yield function.name
            yield from _called(function.attr)


def _loaded(objects) -> list[str]:
    """Names of the functions that the loader makes objects of.

    The loader knows all functions of the library, listed here or not.
    """
    names = list(objects.concrete_functions)
    for node in objects.nodes:
        names += node.function.concrete_functions
        if node.HasField("bare_concrete_function"):
            names.append(node.bare_concrete_function.concrete_function_name)
    return names


def _plain(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "_.") else "?" for c in name)[:80]
