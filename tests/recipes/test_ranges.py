"""The ranges of a recipe's keys: what validators say is what is refused and what docs/recipes.md prints."""

from __future__ import annotations

import math

import attrs
import pytest

from tff_re.errors import UserError
from tff_re.recipes.reading import EvaluationOptions, TrainingOptions, choices
from tff_re.settings import _parts, keys, range_of, structure

CLASSES = {(s, name): cls for s in ("task", "model", "algorithm", "partition") for name, cls in choices(s).items()}
CLASSES |= {("training", ""): TrainingOptions, ("evaluation", ""): EvaluationOptions}
REQUIRED = {"num_clients": 10, "alpha": 0.5, "field": "diagnosis"}

# A line for each kind of range, written by hand: the rest of this file reads the validators themselves.
WANTED = """
algorithm fedavg learning_rate | at least 0
algorithm fedavgs learning_rate | at least 0
algorithm fedavg local_epochs | from 1 to 1000000
algorithm fedatt local_steps | from 1 to 1000000
algorithm fedatt max_gradient_norm | above 0
algorithm fedpap mu | at least 0
algorithm fedpap server_step | at least 0
algorithm fedprox server_momentum | at least 0 and below 1
algorithm fedrs alpha | from 0 to 1
algorithm fedlcc tau | above 0
algorithm feded temperature | above 0
algorithm feded num_server_examples | at least 1
algorithm feded server_epochs | from 1 to 1000000
algorithm lazy_mil na_label | at least 0
algorithm lazy_mil batch_size | from 1 to 1000000
algorithm lazy_mil_alias num_triples | at least 1
algorithm scaffold num_clients | at least 1
model document_encoder window | at least 4
model pcnn dropout | at least 0 and below 1
model sentence_encoder frozen_layers | at least 0
partition dirichlet alpha | from 0.001 to 1000000
partition dirichlet unit | one of 'sample', 'document'
partition iid num_clients | at least 1
partition quantity min_size | at least 0
task bag_relations planted_bags | at least 2
task bag_relations noise_rate | from 0 to 1
task document_relations dev_share | at least 0 and below 1
task sentence_relations test_share | above 0 and below 1
task symptom_classification vectors_epochs | at least 1
task synthetic num_classes | at least 2
training - client_fraction | above 0 and at most 1
training - rounds | at least 1
evaluation - every | at least 1
"""


@pytest.mark.parametrize("line", WANTED.strip().splitlines())
def test_ranges_are_these(line):
    place, _, wanted = line.partition(" | ")
    section, name, key = place.replace(" - ", "  ").split(" ")
    (found,) = (one for one in keys(CLASSES[section, name]) if one.name == key)
    assert range_of(found.validator) == wanted


def beyond_and_at(bound: float, sign: str, whole: bool):
    """A number just out of a bound, and one that is at it or, where the bound is excluded, next to it."""
    up = 1 if sign.startswith(">") else -1
    outer, inner = (
        (bound - up, bound + up)
        if whole
        else (math.nextafter(bound, -up * math.inf), math.nextafter(bound, up * math.inf))
    )
    at = bound if whole else float(bound)
    return (outer, at) if sign.endswith("=") else (at, inner)


@pytest.mark.parametrize(("section", "name"), CLASSES)
def test_a_bound_is_taken_and_what_is_beyond_it_is_refused_in_one_line(section, name):
    cls = CLASSES[section, name]
    given = {key: value for key, value in REQUIRED.items() if key in {f.name for f in attrs.fields(cls)}}
    for field in attrs.fields(cls):
        for part in _parts(field.validator):
            if not hasattr(part, "bound"):
                continue
            out, within = beyond_and_at(part.bound, part.compare_op, "int" in str(field.type))
            field.validator(None, field, within)
            with pytest.raises(UserError) as caught:
                structure(cls, {**given, field.name: out}, section=section, source="r.toml")
            message = str(caught.value)
            assert message.startswith(f"r.toml: '{section}.{field.name}' must be ") and "\n" not in message
            assert message.endswith(f", got {out}")


def test_keys_that_set_another_default_keep_place_and_range():
    mean, adam = (keys(CLASSES["algorithm", name]) for name in ("fedavg", "fedavgs"))
    assert [key.name for key in mean] == [key.name for key in adam] and mean[0].name == "learning_rate"
    assert (mean[0].default, adam[0].default) == (0.01, 0.001)


def test_choices_are_held_to_in_python_too():
    with pytest.raises(ValueError, match=r"'weighting' must be in \('examples', 'uniform'\) \(got 'sizes'\)"):
        CLASSES["algorithm", "fedavg"](weighting="sizes")
