"""Exports from elsewhere run nothing that ours do not, and files that were changed are named."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess

import pytest
import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.python.framework import op_def_registry

from tests.exporting import test_export_relations as relations
from tests.exports_for_tests import KINDS, arguments, export_of
from tests.upper_floors import command, refusal
from tff_re import models
from tff_re.exporting import export_model as exporting
from tff_re.exporting.digests import DIGESTS_FILE, write_digests
from tff_re.exporting.export_model import ExportError, export_model
from tff_re.exporting.graph import check_graph
from tff_re.exporting.kinds import kind_of
from tff_re.exporting.operations import CHECKPOINT_OPERATIONS, OPERATIONS
from tff_re.exporting.prediction import FORMS, load_export
from tff_re.exporting.predictors import PredictionError
from tff_re.models.inputs import BagInput, RelationInput, pieces_of
from tff_re.models.pretrained import PieceEncoder

pytestmark = pytest.mark.xdist_group("exports")

FEW = ("words", "characters", "vectors", "bags", "entities of characters", *relations.FAST)
CORES = (
    *("lstm of words", "lstm of relations", "lstm of bags", "bags of frozen layers", "text pieces", "documents"),
    "entities of pieces",
)
OTHERS = tuple(kind for kind in KINDS if kind not in FEW)


def saved(folder):
    model = SavedModel()
    model.ParseFromString((folder / "saved_model.pb").read_bytes())
    return model


def operations(graph):
    """Names of all operations of a graph and of its functions, but those that save and restore variables."""
    functions = [f for f in graph.library.function if "__traced_" not in f.signature.name]
    return {node.op for nodes in (graph.node, *(f.node_def for f in functions)) for node in nodes}


def copy_export(kind, to):
    return shutil.copytree(export_of(kind), to)


def seal(folder):
    """New digests, as anybody can write them."""
    (folder / DIGESTS_FILE).unlink()
    write_digests(folder)


def change_json(path, change):
    value = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(change(value) or value, ensure_ascii=False), "utf-8")


# What exports of this project hold


@pytest.mark.parametrize("kind", [*FEW, *(pytest.param(kind, marks=pytest.mark.slow) for kind in OTHERS)])
def test_what_every_form_holds_is_listed(kind):
    """Those of the other kinds are tested by all that load an export."""
    for folder in (export_of(kind) / name for name in FORMS if (export_of(kind) / name).is_dir()):
        held = operations(saved(folder).meta_graphs[0].graph_def)
        assert len(held) > 5 and sorted(held - OPERATIONS) == [], "to be listed if they are harmless"
        check_graph(folder)


@functools.cache
def model_and_input(kind):
    """(the model, the class of its inputs, whether they are bags') of a kind of export."""
    export_arguments = arguments(kind)
    bags = isinstance(export_arguments["inputs"], BagInput)
    return (
        export_arguments["model_name"],
        type(pieces_of(export_arguments["inputs"].sentences if bags else export_arguments["inputs"])),
        bags,
    )


def test_every_model_on_every_kind_of_input_is_among_the_exports_of_these_tests():
    wanted = {(name, takes, False) for name in models.MODELS for takes in models.MODELS[name].takes}
    wanted |= {(name, takes, True) for name, takes, _ in wanted if takes is RelationInput}
    assert {model_and_input(kind) for kind in (*FEW, *CORES)} == wanted


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if "bags" in kind else kind for kind in CORES]
)
def test_what_the_core_of_every_other_model_holds_is_listed(kind):
    """What stands around the core is that of the exports above."""
    export_arguments = arguments(kind)
    form_of, names = (
        kind_of(export_arguments["inputs"]).form,
        ("model_name", "model_options", "inputs", "label_names", "weights"),
    )
    name, options, inputs, labels, weights = (export_arguments[key] for key in names)
    built = exporting._models(form_of, name, options, inputs, len(labels), weights)
    exported = form_of(*built, inputs, export_arguments["encoding"], ())
    graph = tf.function(exported.core, autograph=False).get_concrete_function(dict(exported.core_specs)).graph
    held = operations(graph.as_graph_def())
    assert len(held) > 5 and sorted(held - OPERATIONS) == [], "to be listed if they are harmless"


_SIZES = {
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_size": 16,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}
_RELATIVE = {**_SIZES, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
ENCODERS = {
    **{
        f"bert, {act}": {**_SIZES, "hidden_act": act} for act in ("gelu", "gelu_10", "gelu_new", "mish", "relu", "silu")
    },
    **dict.fromkeys(("convbert", "electra", "mpnet", "rembert", "roberta", "roformer", "xlm-roberta"), _SIZES),
    "albert": {**_SIZES, "embedding_size": 8},
    "deberta-v2": {**_RELATIVE, "conv_kernel_size": 3, "position_buckets": 8},
    "mobilebert": {**_SIZES, "embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16},
    "xlnet": {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32},
}


@pytest.mark.slow
def test_what_encoders_hold_is_listed_and_nothing_more_is():
    seen = set()
    for name, sizes in ENCODERS.items():
        config = {"model_type": name.split(",")[0], "vocab_size": 40, **sizes}
        encoder = PieceEncoder(config, 40, None, 0, dtype="float32")
        spec = {name: tf.TensorSpec([None, 24], tf.int32) for name in ("input_ids", "attention_mask")}
        graph = tf.function(lambda x: encoder(x, training=False), autograph=False).get_concrete_function(spec).graph  # noqa: B023
        held = operations(graph.as_graph_def())
        assert sorted(held - OPERATIONS) == [], name
        seen |= held
    for kind in KINDS:
        for folder in (export_of(kind) / name for name in FORMS if (export_of(kind) / name).is_dir()):
            seen |= operations(saved(folder).meta_graphs[0].graph_def)
    of_one_stack = {"Erfc"}  # in the gelu of TensorFlow 2.21
    assert sorted(OPERATIONS - seen - of_one_stack) == [], "listed, but in no export"


STATEFUL = {
    # They keep a value in memory: variables, tables, random states of an LSTM's dropout.
    *("CudnnRNNBackpropV3", "CudnnRNNV3", "HashTableV2", "LookupTableFindV2", "LookupTableImportV2"),
    *("ReadVariableOp", "ResourceGather", "VarHandleOp"),
    # They call functions of the graph, or stop it.
    *("Assert", "If", "StatefulPartitionedCall", "While"),
}
OUTSIDE = re.compile(
    r"File|Read(?!Variable)|Write|Save|Restore|Checkpoint|Dataset|Iterator|PyFunc|Print|Log(?!ical|$)|Summary|Record|Shard|"
    r"Send|Recv|Rpc|Remote|Worker|Server|Session|Collective|Queue|Stage|Barrier|Asset|Plugin|Custom|Tpu|Xla|Nccl|"
    r"Decode(?!$)|Sql|Bigtable|BigQuery|Gcs|Debug|Dump|Temporary|Delete|Execute"
)
ARGUMENTS = re.compile(r"file|path|prefix|address|hostname|port|url|token|program|script|command|pattern", re.I)


def test_no_listed_operation_reaches_outside_of_the_process():
    """TensorFlow marks what has an effect as stateful, so that it is not optimised away; what only reads is told by its
    name or its arguments."""
    pytest.importorskip("tensorflow_text")
    for name in sorted(OPERATIONS):
        definition = op_def_registry.get(name)
        assert definition is not None, f"TensorFlow has no {name}"
        assert definition.is_stateful == (name in STATEFUL), name
        assert name == "UnicodeDecode" or not OUTSIDE.search(name), name
        arguments = [argument.name for argument in (*definition.input_arg, *definition.attr)]
        assert not [argument for argument in arguments if ARGUMENTS.search(argument)], name
    assert not CHECKPOINT_OPERATIONS & OPERATIONS
    others = "WriteFile ReadFile PyFunc EagerPyFunc PrintV2 SaveV2 RestoreV2 MatchingFiles RpcCall TextLineDataset"
    for name in (*others.split(), "InitializeTableFromTextFileV2"):
        assert name not in OPERATIONS and OUTSIDE.search(name)


# Exports from elsewhere


def foreign(tmp_path, effect, prepare=lambda module: None):
    """An export of vectors whose graph has an effect beside its answer, and whose digests fit."""
    folder = copy_export("vectors", tmp_path / "export")
    shutil.rmtree(folder / "saved_model")
    module = tf.Module()
    module.weight = tf.Variable(tf.ones([2, 3]))
    prepare(module)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def serve(x):
        effect(x)
        return {"probabilities": tf.nn.softmax(x @ module.weight)}

    tf.saved_model.save(module, str(folder / "saved_model"), signatures={"serving_default": serve})
    seal(folder)
    return folder


def in_a_nested_function(path):
    @tf.function
    def inner():
        tf.io.write_file(path, "written")

    def effect(x):
        tf.cond(tf.size(x) >= 0, lambda: (inner(), 1)[1], lambda: 0)

    return effect


class WritesWhenLoaded(tf.Module):
    """A resource whose initialiser, which loading runs, writes a file."""

    def __init__(self, path):
        super().__init__()
        from tensorflow.python.trackable.resource import TrackableResource

        class Resource(TrackableResource):
            def _create_resource(self):
                return tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64)

            def _initialize(self):
                tf.io.write_file(path, "written")
                return tf.constant(1)

        self.resource = Resource()
        self.resource.resource_handle  # noqa: B018  (made when it is first asked for)


def test_an_operation_that_writes_a_file_is_refused_before_it_runs(tmp_path, capsys):
    target = tmp_path / "target"
    folder = foreign(tmp_path, in_a_nested_function(str(target)))
    with pytest.raises(PredictionError, match=r"saved_model\.pb: contains the operation WriteFile.*--trust") as caught:
        load_export(folder)
    assert "\n" not in str(caught.value) and caught.value.__context__ is None
    refusal(command(capsys, "predict", folder, "a"), "contains the operation WriteFile")
    (tmp_path / "file.tsv").write_text("a")
    arguments = ("evaluate", folder, "--file", tmp_path / "file.tsv", "--dataset", "pgr")
    refusal(command(capsys, *arguments), "contains the operation WriteFile")
    assert not target.exists()

    # It is no empty danger, and --trust is the way to it.
    assert len(load_export(folder, trust=True).predict_vectors([[0, 1]])) == 1
    assert target.read_text() == "written"
    refusal(command(capsys, "predict", folder, "a", "--trust"), "the model takes feature vectors")
    refusal(command(capsys, *arguments, "--trust"), "the model takes feature vectors")


def test_an_initialiser_that_writes_a_file_is_not_run_by_loading(tmp_path):
    target = tmp_path / "target"

    def prepare(module):
        module.resource = WritesWhenLoaded(str(target))

    folder = foreign(tmp_path, lambda x: None, prepare)
    target.unlink(missing_ok=True)  # making it wrote it
    with pytest.raises(PredictionError, match="contains the operation WriteFile"):
        load_export(folder)
    assert not target.exists()
    load_export(folder, trust=True)
    assert target.exists()


def checkpoint_function(meta, name="restore"):
    (function,) = [f for f in meta.graph_def.library.function if f"__traced_{name}" in f.signature.name]
    return function


def wrapper(meta):
    return next(f for f in meta.graph_def.library.function if "signature_wrapper" in f.signature.name)


def call_from_an_object(meta):
    node = next(n for n in meta.object_graph_def.nodes if n.HasField("bare_concrete_function"))
    node.bare_concrete_function.concrete_function_name = checkpoint_function(meta).signature.name


def call_from_a_function(meta):
    (call,) = [node for node in wrapper(meta).node_def if node.op == "StatefulPartitionedCall"]
    call.attr["f"].func.name = checkpoint_function(meta, "save").signature.name


def call_by_an_implementation(meta):
    for function in meta.graph_def.library.function:
        function.attr["api_implements"].s = b"one"


def hide_in_an_attribute(meta):
    function = wrapper(meta)
    function.attr["f"].func.name = function.signature.name
    function.attr["f"].func.attr["g"].list.func.add().name = checkpoint_function(meta).signature.name


def a_function_named_relu(meta):
    """The loader takes a node for a call of the function whose name its operation is."""
    save = checkpoint_function(meta, "save").signature
    for node in meta.graph_def.node:
        if "f" in node.attr and node.attr["f"].func.name == save.name:
            node.attr["f"].func.name = "Relu"
    save.name = "Relu"
    wrapper(meta).node_def.add(name="w", op="Relu")


def call_by_the_operation(meta):
    wrapper(meta).node_def.add(name="w", op=checkpoint_function(meta, "save").signature.name)


CHANGES = {
    "has a function with the name of an operation": a_function_named_relu,
    "calls the save and restore functions from": call_by_the_operation,
    "calls the save and restore functions": call_from_an_object,
    "save and restore functions from elsewhere in the graph": call_from_a_function,
    "restore functions from elsewhere in the graph": hide_in_an_attribute,
    "contains the operation": call_by_an_implementation,
    "contains the operation WriteFile": lambda meta: meta.graph_def.node.add(name="w", op="WriteFile"),
    "calls a function that it does not contain": lambda meta: meta.graph_def.node.add(
        name="w", op="StatefulPartitionedCall", attr={"f": AttrValue(func={"name": "WriteFile"})}
    ),
    "has two functions with the same name": lambda meta: meta.graph_def.library.function.append(
        meta.graph_def.library.function[0]
    ),
    r"reads files \(assets\)": lambda meta: meta.asset_file_def.add(filename="../../labels.json"),
    r"an unknown kind \(asset\)": lambda meta: meta.object_graph_def.nodes.add().asset.SetInParent(),
    r"an unknown kind \(captured_tensor\)": lambda meta: (
        meta.object_graph_def.nodes.add().captured_tensor.SetInParent()
    ),
    r"an unknown kind \(tf.Other\?\)": lambda meta: setattr(
        meta.object_graph_def.nodes[0], "registered_name", "tf.Other\n"
    ),
    r"an unknown kind \(optimizer\)": lambda meta: setattr(
        meta.object_graph_def.nodes[0].user_object, "identifier", "optimizer"
    ),
}


@pytest.mark.parametrize("message", CHANGES)
def test_ways_around_the_list(tmp_path, message):
    folder = copy_export("vectors", tmp_path / "export")
    model = saved(folder / "saved_model")
    CHANGES[message](model.meta_graphs[0])
    (folder / "saved_model" / "saved_model.pb").write_bytes(model.SerializeToString())
    seal(folder)
    with pytest.raises(PredictionError, match=message + ".*and no export of this project does; pass --trust") as caught:
        load_export(folder)
    assert "\n" not in str(caught.value)


def test_a_saved_model_of_tensorflow_1_is_none_of_ours(tmp_path):
    folder = copy_export("vectors", tmp_path / "export")
    for change in (lambda m: m.meta_graphs.append(m.meta_graphs[0]), lambda m: m.ClearField("meta_graphs")):
        model = saved(export_of("vectors") / "saved_model")
        change(model)
        (folder / "saved_model" / "saved_model.pb").write_bytes(model.SerializeToString())
        seal(folder)
        with pytest.raises(PredictionError, match=r"saved_model\.pb: is not a SavedModel of TensorFlow 2"):
            load_export(folder)


def test_an_operation_that_is_not_listed_is_not_exported_without_trust(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tff_re.exporting.graph.OPERATIONS", OPERATIONS - {"Softmax"})
    with pytest.raises(
        ExportError, match=r"^predict and evaluate would refuse saved_model: .*Softmax.*; pass --trust"
    ) as caught:
        export_model(tmp_path / "e", **arguments("vectors"), formats="saved_model")
    assert "\n" not in str(caught.value) and "/" not in str(caught.value) and list(tmp_path.iterdir()) == []
    folder = export_model(tmp_path / "e", **arguments("vectors"), formats="saved_model", trust=True)
    note = "note: saved_model contains the operation Softmax, and no export of this project does; predict and evaluate"
    assert capsys.readouterr().err.startswith(note)
    with pytest.raises(PredictionError, match="Softmax"):
        load_export(folder)


# Digests


def test_digests_are_what_sha256sum_checks():
    folder = export_of("words")
    listed = {line.split("  ")[1] for line in (folder / DIGESTS_FILE).read_text("utf-8").splitlines()}
    written = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    assert listed == written - {DIGESTS_FILE} and {"export.json", "README.md", "saved_model/saved_model.pb"} <= listed
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", DIGESTS_FILE], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.count(": OK") == len(listed), done.stderr


def reverse(folder):
    change_json(folder / "labels.json", lambda labels: labels[::-1])


TEXT = "发热"
DAMAGES = {
    "labels.json: was changed after the export": reverse,
    "export.json: was changed after the export": lambda f: change_json(
        f / "export.json", lambda v: v.update(model="m")
    ),
    "encoding.json: was changed after the export": lambda f: change_json(
        f / "encoding.json", lambda v: v["vocabulary"].reverse()
    ),
    "variables.index: is missing": lambda f: (f / "saved_model" / "variables" / "variables.index").unlink(),
    "saved_model.pb: was changed after the export": lambda f: (f / "saved_model" / "saved_model.pb").write_bytes(
        b"\x00junk"
    ),
    "fingerprint.pb: was changed after the export": lambda f: (f / "saved_model" / "fingerprint.pb").write_bytes(
        b"\x00"
    ),
    "saved_model/assets/words.txt: was not part of the export": lambda f: (
        f / "saved_model" / "assets" / "words.txt"
    ).touch(),
    "saved_model/more: was not part of the export": lambda f: (f / "saved_model" / "more").symlink_to(f),
    "SHA256SUMS: is missing": lambda f: (f / DIGESTS_FILE).unlink(),
    "SHA256SUMS: line 1: is not a digest": lambda f: (f / DIGESTS_FILE).write_text("junk\n"),
    "SHA256SUMS: line 2: is not a digest": lambda f: (f / DIGESTS_FILE).write_text(f"{'0' * 64}  a\n" * 2),
    "SHA256SUMS: line 1: byte 0: is not UTF-8": lambda f: (f / DIGESTS_FILE).write_bytes(b"\xff"),
    "export.json: was not part of the export: it is not listed in SHA256SUMS": lambda f: (f / DIGESTS_FILE).write_bytes(
        b""
    ),
}


@pytest.mark.parametrize("message", DAMAGES)
def test_a_changed_export_is_refused_with_the_files_name(tmp_path, capsys, message):
    folder = copy_export("words", tmp_path / "export")
    DAMAGES[message](folder)
    refusal(command(capsys, "predict", folder, TEXT), message, "; ")


def test_a_file_that_is_not_read_may_change(tmp_path):
    folder = copy_export("words", tmp_path / "export")
    (folder / "README.md").write_text("my own words")
    (folder / "predictions.csv").touch()
    shutil.rmtree(folder / "saved_model_float16")
    assert load_export(folder).predict([TEXT])
    with pytest.raises(PredictionError, match=r"saved_model_float16/.* is missing, but SHA256SUMS lists it"):
        load_export(folder, "saved_model_float16")


def test_changed_labels_are_read_with_trust_alone(tmp_path, capsys):
    folder, untouched = copy_export("words", tmp_path / "export"), load_export(export_of("words")).predict([TEXT])[0]
    reverse(folder)
    refusal(command(capsys, "predict", folder, TEXT), "labels.json: was changed after the export", "--trust")
    changed = load_export(folder, trust=True).predict([TEXT])[0]
    assert list(changed.probabilities) == list(untouched.probabilities)[::-1]
    assert list(changed.probabilities.values()) == list(untouched.probabilities.values())
    typed = command(capsys, "predict", folder, TEXT, "--trust", "--json")
    assert typed.code == 0 and json.loads(typed.out)["label"] == changed.label


def test_an_export_without_digests_is_refused_and_said_with_trust(tmp_path, capsys):
    folder = copy_export("words", tmp_path / "export")
    (folder / DIGESTS_FILE).unlink()
    refusal(command(capsys, "predict", folder, TEXT), "SHA256SUMS: is missing", "--trust")
    typed = command(capsys, "predict", folder, TEXT, "--json", "--trust")
    assert typed.code == 0 and json.loads(typed.out)["label"] == TEXT
    assert typed.err == f"note: {folder}: has no SHA256SUMS, so changed files cannot be detected\n"
    # A version without digests, which anybody can write into the file, opens no way around them.
    change_json(folder / "export.json", lambda value: value.update(format_version=1))
    refusal(command(capsys, "predict", folder, TEXT), "has another version of the format")


def test_a_damaged_graph_is_refused_with_trust_too(tmp_path, capsys):
    for message, damage in {
        "saved_model: holds no variables/variables.index": DAMAGES["variables.index: is missing"],
        "saved_model.pb: is damaged": DAMAGES["saved_model.pb: was changed after the export"],
        "fingerprint.pb: is damaged": DAMAGES["fingerprint.pb: was changed after the export"],
    }.items():
        folder = copy_export("words", tmp_path / "export")
        damage(folder)
        seal(folder)
        refusal(command(capsys, "predict", folder, TEXT), message)
        shutil.rmtree(folder)
