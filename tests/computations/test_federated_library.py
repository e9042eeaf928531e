"""Our library on top of the language against TensorFlow Federated's own: the same types, states and numbers."""

import asyncio
import collections

import numpy as np
import pytest
import tensorflow as tf
import tree

from computations import federated as tff
from computations.federated.library import aggregators, learning, optimizers, program

if tff.STACK != "tff":
    pytest.skip("compares with TensorFlow Federated, which this stack does not have", allow_module_level=True)

VALUE = tff.types.to_type(collections.OrderedDict(a=(np.float32, [3]), b=[(np.float32, [2, 2])]))
WEIGHT = tff.types.to_type(np.float32)
SCALES = (1.0, -3.0, 0.25)
VALUES = [
    collections.OrderedDict(a=np.float32([k, 2 * k, 0.1]), b=[np.full([2, 2], k / 3, np.float32)]) for k in SCALES
]
WEIGHTS = [np.float32(w) for w in (2.0, 0.5, 7.0)]


def quantile(library, **scaled):
    return library.PrivateQuantileEstimationProcess.no_noise(1.0, 0.5, 0.3, **scaled)


WEIGHTED = {
    "mean": lambda lib: lib.MeanFactory(),
    "mean, no division by zero": lambda lib: lib.MeanFactory(no_nan_division=True),
    "mean of sums": lambda lib: lib.MeanFactory(lib.SumFactory(), lib.SumFactory()),
    "clipped mean": lambda lib: lib.clipping_factory(1.5, lib.MeanFactory()),
    "mean clipped at a quantile": lambda lib: lib.clipping_factory(quantile(lib), lib.MeanFactory()),
    "zeroed and clipped": lambda lib: lib.zeroing_factory(
        quantile(lib, multiplier=2.0, increment=1.0), lib.clipping_factory(2.0, lib.MeanFactory())
    ),
}
UNWEIGHTED = {
    "sum": lambda lib: lib.SumFactory(),
    "clipped sum": lambda lib: lib.clipping_factory(1.5, lib.SumFactory()),
    "zeroed sum": lambda lib: lib.zeroing_factory(1.5, lib.SumFactory()),
}


def type_without_containers(process):
    return str(process.initialize.type_signature), str(process.next.type_signature)


def assert_equal(ours, theirs):
    ours, theirs = tree.flatten(ours), tree.flatten(theirs)
    assert len(ours) == len(theirs) > 0
    for our_leaf, their_leaf in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(our_leaf, their_leaf, strict=True)


def parts_of(output):
    return [output.state, output.result, output.measurements]


@pytest.mark.parametrize("name", [*WEIGHTED, *UNWEIGHTED])
def test_an_aggregator_has_tff_s_types_and_numbers(name):
    make, rest = (WEIGHTED[name], [WEIGHTS]) if name in WEIGHTED else (UNWEIGHTED[name], [])
    types = [VALUE, WEIGHT][: 1 + len(rest)]
    ours, theirs = make(aggregators).create(*types), make(tff.aggregators).create(*types)
    assert type_without_containers(ours) == type_without_containers(theirs)
    assert ours.is_weighted == theirs.is_weighted == bool(rest)
    our_state, their_state = ours.initialize(), theirs.initialize()
    for _ in range(3):
        our_output, their_output = ours.next(our_state, VALUES, *rest), theirs.next(their_state, VALUES, *rest)
        assert_equal(parts_of(our_output), parts_of(their_output))
        our_state, their_state = our_output.state, their_output.state


@pytest.mark.parametrize("library", [aggregators, tff.aggregators])
def test_a_mean_of_integers_is_refused(library):
    with pytest.raises(TypeError, match="floating"):
        library.MeanFactory().create(tff.types.to_type(np.int32), WEIGHT)


OPTIMIZERS = {
    "sgd": ("build_sgdm", (0.1,)),
    "sgdm": ("build_sgdm", (0.1, 0.9)),
    "adam": ("build_adam", (0.1,)),
    "adam, all set": ("build_adam", (0.1, 0.8, 0.95, 1e-3)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_steps_as_tff_s(name):
    function, arguments = OPTIMIZERS[name]
    ours, theirs = (getattr(module, function)(*arguments) for module in (optimizers, tff.learning.optimizers))
    weights = our_weights = their_weights = [tf.constant([1.0, -2.0]), tf.constant([[0.5]])]
    specs = [tf.TensorSpec(w.shape, w.dtype) for w in weights]
    our_state, their_state = ours.initialize(specs), theirs.initialize(specs)
    for k in range(1, 4):
        gradients = [tf.constant([0.3, -0.1 * k]), None if k == 2 else tf.constant([[1.0]])]
        our_state, our_weights = ours.next(our_state, our_weights, gradients)
        their_state, their_weights = theirs.next(their_state, their_weights, gradients)
        assert list(our_state) == list(their_state)
        assert_equal([our_weights, list(our_state.values())], [their_weights, list(their_state.values())])
    assert_equal(list(ours.get_hparams(our_state).values()), list(theirs.get_hparams(their_state).values()))


@pytest.mark.parametrize("library", [optimizers, tff.learning.optimizers])
def test_gradients_of_other_shapes_are_refused(library):
    optimizer = library.build_sgdm(0.1)
    with pytest.raises(ValueError, match="weights"):
        optimizer.next(optimizer.initialize([]), [tf.zeros([2])], [tf.zeros([3])])


def finalizer(models, templates, build, optimizer):
    tensors = [(np.float32, [2]), (np.float32, [])]
    weights_type = tff.StructWithPythonType(
        [("trainable", tff.types.to_type(tensors)), ("non_trainable", tff.types.to_type([(np.float32, [1])]))],
        models.ModelWeights,
    )
    return templates.build_apply_optimizer_finalizer(optimizer, weights_type, build)


@pytest.mark.parametrize("broken", [False, True])
def test_a_finalizer_steps_and_rejects_as_tff_s(broken):
    update = [np.float32([1.0, np.nan if broken else 2.0]), np.float32(0.5)]
    outputs = []
    for module, rates in ((learning, optimizers), (tff.learning, tff.learning.optimizers)):
        templates = module.templates
        process = finalizer(module.models, templates, templates.reject_non_finite_update, rates.build_sgdm(0.1, 0.9))
        weights = module.models.ModelWeights([np.float32([1.0, 1.0]), np.float32(3.0)], [np.float32([7.0])])
        state, signature = process.initialize(), str(process.next.type_signature)
        for _ in range(2):
            output = process.next(state, weights, update)
            state, weights = output.state, output.result
        outputs.append((signature, parts_of(output)))
    (our_type, ours), (their_type, theirs) = outputs
    assert our_type == their_type
    assert_equal(ours, theirs)
    assert int(ours[2]["update_non_finite"]) == broken


def test_a_broadcast_has_tff_s_type():
    ours, theirs = (m.templates.build_broadcast_process(VALUE) for m in (learning, tff.learning))
    assert type_without_containers(ours) == type_without_containers(theirs)


NOTHING = tff.federated_computation(lambda: tff.federated_value((), tff.SERVER))


@pytest.mark.parametrize("library", ["ours", "theirs"])
def test_a_process_whose_result_is_elsewhere_is_refused(library):
    from computations.federated.library import templates

    module = templates if library == "ours" else tff.templates

    @tff.federated_computation(NOTHING.type_signature.result, tff.FederatedType(np.float32, tff.CLIENTS))
    def at_clients(state, value):
        return module.MeasuredProcessOutput(state, value, tff.federated_value((), tff.SERVER))

    with pytest.raises(TypeError):
        module.AggregationProcess(NOTHING, at_clients)


# Managers.


def run(coroutine):
    return asyncio.new_event_loop().run_until_complete(coroutine)


STATE = collections.OrderedDict(small=np.uint8([0, 7, 0]), large=[None, np.float32([1.5, -2.0])])


@pytest.mark.parametrize("library", [program, tff.program])
def test_states_come_back_and_old_ones_go(library, tmp_path):
    manager = library.FileProgramStateManager(str(tmp_path), prefix="round_", keep_total=2, keep_first=False)
    assert run(manager.get_versions()) is None
    for version in (1, 2, 10):
        run(manager.save(STATE, version))
    assert run(manager.get_versions()) == [2, 10]
    state, version = run(manager.load_latest(STATE))
    assert version == 10 and state["large"][0] is None
    assert_equal([state["small"], state["large"][1]], [STATE["small"], STATE["large"][1]])
    with pytest.raises(Exception, match="10"):
        run(manager.save(STATE, 10))
    with pytest.raises(Exception, match="3"):
        run(manager.load(3, STATE))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round_10", "round_2"]


def test_rows_are_those_of_tff_s_csv_file(tmp_path):
    texts = []
    for name, library in (("ours", program), ("theirs", tff.program)):
        path = tmp_path / name / "metrics.csv"
        mode = library.CSVSaveMode.WRITE
        for rows in ([(1, {"loss": 0.1}), (2, {"loss": 1 / 3, "more": np.float32(0.1)})], [(2, {"loss": 2.0, "n": 3})]):
            manager = library.CSVFileReleaseManager(str(path), save_mode=mode, key_fieldname="round")
            for key, row in rows:
                run(manager.release(row, key))
        texts.append(path.read_bytes())
    assert texts[0] == texts[1]
