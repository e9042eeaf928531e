"""An adapter is merged into its encoder where a model is exported, and written alone where that is asked for."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.exports_for_tests import WITH_LORA, arguments, export_of
from tff_re import models


@pytest.mark.slow  # that merging gives the same function is tested with the adapters
@pytest.mark.parametrize("kind", WITH_LORA)
def test_every_kind_is_merged(kind):
    """Its forms are compared with the unmerged model as they are written; here one looks into them."""
    folder, export_arguments = export_of(kind), arguments(kind)
    forms = json.loads((folder / "export.json").read_text("utf-8"))["forms"]
    assert forms["saved_model"]["difference"] <= 1e-5
    saved = tf.saved_model.load(str(folder / "saved_model"))
    names = [getattr(variable, "name", "") for variable in saved.resources]
    assert names and not [name for name in names if "lora" in name or "new_rows" in name]
    module, inputs = (
        models.MODELS[export_arguments["model_name"]],
        getattr(export_arguments["inputs"], "sentences", export_arguments["inputs"]),
    )
    trained = module.build(export_arguments["model_options"], inputs, len(export_arguments["label_names"]))
    for variable, value in zip(trained.trainable_variables, export_arguments["weights"].trainable, strict=True):
        variable.assign(value)
    whole = module.whole_form(export_arguments["model_options"], inputs, trained)
    products = {
        part.name: part.product().numpy()
        for part in whole._flatten_layers()
        if hasattr(part, "product") and "query" in part.name
    }
    assert products and all(np.abs(product).max() > 1e-2 for product in products.values()), "the adapter does something"
