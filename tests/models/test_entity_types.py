"""Types of entities in document_encoder: off by default, and what they change; which threshold a loss sets."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.models.documents_for_tests import ENTITIES, documents, inputs
from tests.models.test_document_encoder import close, made, options, outputs
from tff_re.errors import UserError
from tff_re.models.document_encoder import MODEL
from tff_re.models.entity_types import EntityTypes

TYPES = 3


def typed_inputs(settings):
    """What the model in training is fed with."""
    task_inputs = dataclasses.replace(inputs(), num_types=TYPES)
    model_inputs, run = MODEL.precompute(settings, task_inputs, 0)
    assert run is None, "the examples stay as they are"
    return model_inputs


def with_types(arrays, seed=0):
    types = np.random.default_rng(seed).integers(-1, TYPES, [len(arrays["y"]), ENTITIES])
    return {**arrays, "entity_type": types.astype(np.int32)}


def test_an_entity_stands_beside_its_types_vector():
    layer = EntityTypes(2, 2)
    entities, types = tf.reshape(tf.range(6.0), [1, 2, 3]), tf.constant([[1, -1, 0, 0]])
    layer({"entities": entities, "entity_type": types})
    layer.set_weights([np.array([[5.0, 6.0], [7.0, 8.0]])])
    result = layer({"entities": entities, "entity_type": types}).numpy()
    np.testing.assert_array_equal(result, [[[0, 1, 2, 7, 8], [3, 4, 5, 0, 0]]])
    assert EntityTypes.from_config(layer.get_config()).width == 2


def test_types_are_off_by_default():
    settings = options()
    assert settings.type_embedding == 0
    assert MODEL.precompute(settings, dataclasses.replace(inputs(), num_types=TYPES), 0) is None
    assert "entity_type" not in inputs().specs
    names = [weight.name for weight in made(settings).weights]
    assert not any("types" in name for name in names)
    named = [weight.name for weight in made(options(type_embedding=2), typed_inputs(options(type_embedding=2))).weights]
    assert [name for name in named if "types" not in name] == names


def test_the_typed_model_is_the_plain_one_where_types_have_no_say():
    """With zero vectors the plain model's numbers; with others a pair changes by its entities' types alone."""
    settings = options(type_embedding=2)
    model_inputs = typed_inputs(settings)
    assert model_inputs.specs["entity_type"].shape.as_list() == [None, ENTITIES]
    arrays = with_types(documents(3, seed=4))
    plain, typed = made(options()), made(settings, model_inputs)
    for layer in plain.layers:
        if layer.weights and layer.name != "pairs":
            typed.get_layer(layer.name).set_weights(layer.get_weights())
    weights = [np.array(weight) for weight in typed.get_layer("pairs").get_weights()]
    for mine, its in zip(weights, plain.get_layer("pairs").get_weights(), strict=True):
        mine[: len(its)] = its  # of entities [d + 2, w] and of contexts [d, w]
    typed.get_layer("pairs").set_weights(weights)
    embedding = typed.get_layer("types")
    embedding.set_weights([np.zeros([TYPES, 2])])
    expected = outputs(plain, {name: array for name, array in arrays.items() if name != "entity_type"})
    close(outputs(typed, arrays)["logits"], expected["logits"])

    vectors = np.arange(TYPES * 2.0).reshape(TYPES, 2) + 1
    embedding.set_weights([vectors])
    halves = np.split(expected["features"].astype(float), 2, axis=1)
    before = {side: np.arctanh(half) for side, half in zip("ht", halves, strict=True)}
    got = dict(zip("ht", np.split(outputs(typed, arrays)["features"], 2, 1), strict=True))
    row = 0
    for document in range(3):
        for head, tail in zip(arrays["pair_head"][document], arrays["pair_tail"][document], strict=True):
            if head < 0:
                continue
            for side, entity, kernel in (("h", head, weights[0]), ("t", tail, weights[1])):
                kind = arrays["entity_type"][document, entity]
                more = vectors[kind] @ kernel[-2:] if kind >= 0 else 0.0
                close(got[side][row], np.tanh(before[side][row] + more), 1e-4)
            row += 1
    assert row == len(got["h"])


def test_a_task_without_types_and_the_threshold_of_a_loss():
    with pytest.raises(UserError, match=r"model\.type_embedding needs entities with types"):
        MODEL.precompute(options(type_embedding=2), inputs(), 0)
    thresholds = {
        loss: MODEL.local_parts(options(loss=loss), None)["threshold"] for loss in ("bce", "adaptive_threshold")
    }
    assert thresholds == {"bce": None, "adaptive_threshold": 0.5}


def test_the_threshold_class_decides_by_hand():
    """Scores 1.0, 0.2 and 0.7 beside a threshold class of 0.5: relations 0 and 2 are predicted, from a half on."""
    scores = np.array([0.5, 1.0, 0.2, 0.7])
    probabilities = 1 / (1 + np.exp(-(scores[1:] - scores[0])))
    assert (probabilities >= 0.5).tolist() == [True, False, True] == (scores[1:] > scores[0]).tolist()
    np.testing.assert_allclose(probabilities, [0.62245933, 0.42555748, 0.549834], rtol=1e-6)
