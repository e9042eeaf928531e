"""Words and labels that an update tells: updates made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tff_re.auditing.words import everywhere, presence, revealed_labels, revealed_words

IDS = np.array([[2, 3, 1, 0], [2, 4, 0, 0], [2, 5, 3, 0]])
"""Three examples of four places; 2 stands in all of them."""


def test_what_stands_everywhere_tells_nothing():
    assert np.flatnonzero(everywhere(IDS, 8, known_words=True)).tolist() == [0, 1, 2]
    assert np.flatnonzero(everywhere(IDS, 8, known_words=False)).tolist() == [0, 2]
    assert np.flatnonzero(presence(IDS[:1], 8)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("first", [0, 1])
def test_rows_that_changed_are_words(first):
    """Words 3 and 4; rows 2 (everywhere), 3 and 6 changed: one of two words, one of two rows."""
    change = np.zeros([8 - first, 3])
    change[[2 - first, 3 - first, 6 - first], 1] = 1e-6
    revealed = revealed_words(change, presence(IDS[:2], 8), everywhere(IDS, 8, known_words=True), first)
    assert (revealed.words, revealed.changed, revealed.right) == (2, 2, 1)
    assert revealed.precision == 0.5 and revealed.recall == 0.5


def test_a_trained_matrix_names_its_words_alone():
    change = np.zeros([8, 3])
    change[np.unique(IDS[:2])] = np.random.default_rng(0).normal(size=[5, 3])
    revealed = revealed_words(change, presence(IDS[:2], 8), everywhere(IDS, 8, known_words=True))
    assert revealed.precision == revealed.recall == revealed.ranking == 1.0


def test_noise_on_all_rows_leaves_the_ranking():
    """All rows change: as many are right as a guess finds; the ranking says how much is left."""
    draw = np.random.default_rng(0)
    present = draw.random(2000) < 0.3
    nothing = np.zeros(2000, bool)
    change = draw.normal(size=[2000, 4])
    blind = revealed_words(change, present, nothing)
    assert blind.changed == 2000 and blind.precision == pytest.approx(present.mean()) and blind.recall == 1
    assert abs(blind.ranking - 0.5) < 0.04
    change[present] *= 3
    assert revealed_words(change, present, nothing).ranking > 0.9
    assert np.isnan(revealed_words(change, nothing, nothing).ranking)


def test_the_bias_rises_for_the_most_frequent_label():
    """An update is global minus local: the bias of label 2, of which there are most, rose by 0.4."""
    revealed = revealed_labels(np.array([0.3, 0.1, -0.4]), np.array([1, 3, 9]))
    assert revealed.hit and revealed.correlation == pytest.approx(1.0)
    revealed = revealed_labels(np.array([-0.3, 0.1, 0.4]), np.array([1, 3, 9]))
    assert not revealed.hit and revealed.correlation == pytest.approx(-1.0)
    revealed = revealed_labels(np.array([-0.3, 0.1]), np.array([4, 4]))
    assert revealed.hit and np.isnan(revealed.correlation)
