"""What a model is: one file of this folder, with a subclass of `Model` and `MODEL = ` an instance of it.

The file's name is the model's in recipes. `lstm.py` is a short one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf

Arrays = Mapping[str, np.ndarray]


class Model:
    """A Keras model that recipes choose by name.

    Attributes:
      Options: a frozen attrs class; its fields are the keys of [model], its docstring explains them.
      takes: the classes of `tff_re.models.inputs` that it can be built for.
    """

    Options: type
    takes: tuple[type, ...] = ()

    def build(self, options: Any, inputs: Any, num_classes: int) -> tf.keras.Model:
        """The model in training: the arrays of `inputs.specs` -> `logits` [B, num_classes] and `features` [B, n], what
        the last layer sees. That layer is called `classifier`.

        Raises:
          UserError: the options do not fit the inputs.
        """
        raise NotImplementedError

    def build_plain(self, options: Any, inputs: Any, num_classes: int) -> tf.keras.Model:
        """The same function with the same weights in the form that is saved and exported.

        By default it is `build`'s, and whoever loads it needs this project's code. Override it where stock Keras layers
        can express the model.
        """
        return self.build(options, inputs, num_classes)

    def reads_vectors(self, options: Any) -> bool:
        """Whether the model reads the task's word vectors.

        If not, a recipe that gives word vectors is refused.
        """
        return False

    def local_parts(self, options: Any, inputs: Any) -> dict[str, Any]:
        """Further fields of the model's `LocalModel`: its classifier, losses, statistics, rows."""
        return {"classifier": "classifier"}

    def initialise(self, options: Any, inputs: Any) -> Callable[[tf.keras.Model], None] | None:
        """What brings a new model to its initial weights beyond its own initialisers, or None."""
        return None

    # Models of which a part is not trained: it runs once (frozen layers), or lies in files (an adapter's encoder)

    def precompute(self, options: Any, inputs: Any, seed: int) -> tuple[Any, Callable[[Arrays], Arrays] | None] | None:
        """What stays the same in training, or None if all is trained.

        It is (the inputs of what is trained, what turns examples into these). The second is None if the examples stay
        as they are.

        Args:
          seed: of the run, which draws the weights that no file has.
        """
        return None

    def finished(self, options: Any, inputs: Any, num_classes: int, weights: Any) -> tf.keras.Model:
        """The whole model of the trained weights, in float32 throughout, which takes what the task gives."""
        raise NotImplementedError

    def whole_form(self, options: Any, inputs: Any, trained: tf.keras.Model, merged: bool = False) -> tf.keras.Model:
        """The whole model of what was trained, which computes as in training and takes what the task gives.

        Args:
          inputs: of what was trained.
          trained: with its weights.
          merged: whether an adapter is added to the kernels instead of staying separate.
        """
        raise NotImplementedError

    def adapted(self, options: Any, inputs: Any, trained: tf.keras.Model) -> tf.keras.Model:
        """What was trained with fixed weights in files, with these in variables and the same inputs."""
        raise NotImplementedError
