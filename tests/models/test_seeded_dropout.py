import numpy as np
import pytest
import tensorflow as tf

from computations.randomness import SeededDropout, next_seed, step_seed

ONES = tf.ones([50, 40])


def masks(seed, count=1, rate=0.5):
    """What so many layers, one after the other, make of ones in a training step with this seed."""
    layers = [SeededDropout(rate) for _ in range(count)]
    with step_seed(tf.constant(seed, tf.int32)):
        return [layer(ONES, training=True).numpy() for layer in layers]


def test_the_same_seed_gives_the_same_mask():
    tf.random.set_seed(1)
    (first,) = masks([3, 4])
    tf.random.set_seed(2)
    (again,) = masks([3, 4])
    np.testing.assert_array_equal(first, again)
    for other in ([3, 5], [4, 4]):
        assert 0.4 < ((first == 0) != (masks(other)[0] == 0)).mean() < 0.6


def test_each_layer_of_a_step_has_a_mask_of_its_own():
    first, second = masks([3, 4], count=2)
    assert 0.4 < ((first == 0) != (second == 0)).mean() < 0.6
    np.testing.assert_array_equal(first, masks([3, 4])[0])


def test_what_is_kept_is_scaled():
    (mask,) = masks([3, 4], rate=0.25)
    np.testing.assert_allclose(np.unique(mask), [0, 1 / 0.75], rtol=1e-6)
    assert abs((mask == 0).mean() - 0.25) < 0.05


@pytest.mark.parametrize("training", [False, None])
def test_it_is_off_in_inference(training):
    with step_seed(tf.constant([3, 4], tf.int32)):
        np.testing.assert_array_equal(SeededDropout(0.5)(ONES, training=training), ONES)
    np.testing.assert_array_equal(SeededDropout(0.5)(ONES, training=training), ONES)


def test_rate_zero_drops_nothing_and_takes_no_seed():
    with step_seed(tf.constant([3, 4], tf.int32)):
        np.testing.assert_array_equal(SeededDropout(0.0)(ONES, training=True), ONES)
        after = SeededDropout(0.5)(ONES, training=True).numpy()
    np.testing.assert_array_equal(after, masks([3, 4])[0])


def test_it_works_without_a_step_seed():
    assert next_seed() is None
    layer = SeededDropout(0.5)
    first, second = (layer(ONES, training=True).numpy() for _ in range(2))
    assert abs((first == 0).mean() - 0.5) < 0.05
    assert (first != second).any()


def test_the_seed_ends_with_the_step_even_after_an_error():
    with pytest.raises(RuntimeError), step_seed(tf.constant([3, 4], tf.int32)):
        assert next_seed() is not None
        raise RuntimeError
    assert next_seed() is None


def test_one_trace_serves_all_steps():
    layer = SeededDropout(0.5)

    @tf.function
    def step(seed):
        with step_seed(seed):
            return layer(ONES, training=True)

    graph = [step(tf.constant([3, s], tf.int32)).numpy() for s in range(3)]
    assert step.experimental_get_tracing_count() == 1
    for s, mask in enumerate(graph):
        np.testing.assert_array_equal(mask, masks([3, s])[0])
    assert (graph[0] != graph[1]).any() and (graph[1] != graph[2]).any()


def test_it_can_be_saved_and_loaded(tmp_path):
    source = tf.keras.Input([4])
    model = tf.keras.Model(source, SeededDropout(0.3, name="dropout")(source))
    model.save(tmp_path / "model.keras")
    assert tf.keras.models.load_model(tmp_path / "model.keras").get_layer("dropout").rate == 0.3


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_impossible_rates_are_refused(rate):
    with pytest.raises(ValueError, match="dropout rate"):
        SeededDropout(rate)
