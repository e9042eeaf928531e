"""The federated language, the only package that imports TensorFlow Federated or federated-language.

Everything else writes `from computations import federated as tff` and finds the names of TensorFlow Federated 0.87
that this project uses, whichever stack is installed (`computations/stack.py`):

  `tff`       TensorFlow Federated, in Python 3.11.
  `language`  federated-language, Google's continuation of the language without an executor or TensorFlow; the
              TensorFlow layer (`language/`) and what TFF has on top of the language (`library/`) are ours.

`runtime/local` and the interoperability with `tff.learning` exist only on TFF and import it themselves.
"""

from computations.federated import core
from computations.federated.core import *  # noqa: F403
from computations.stack import STACK

if STACK == "tff":
    from tensorflow_federated import aggregators, learning, program, templates
else:
    from computations.federated.library import aggregators, learning, program, templates

__all__ = [*core.__all__, "STACK", "aggregators", "learning", "program", "templates"]
