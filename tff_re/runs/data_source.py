"""What is said of a run's data: the catalogue's words of the catalogue's files, the recipe's own of others."""

from __future__ import annotations

from datasets.catalogue import DATA_SETS
from tff_re.recipes.options import DataStatement
from tff_re.runs.experiment import Experiment

NOT_STATED = "not stated"

_FILES = ("path", "dev_path", "test_path")
"""Keys of [task] that name files to read in place of the catalogue's."""


def data_source(experiment: Experiment) -> dict[str, str]:
    """What the card, the summary and the report say of where the data come from, in words by heading.

    The catalogue knows title, licence and paper of its own files only. Of files that the recipe names, of sites' files
    and of a form that has no files in the catalogue, [data] says what they are, or nothing does ("not stated").
    A recipe with [data] is of own files, wherever they lie.
    """
    recipe = experiment.recipe
    stated, dataset = recipe.data, recipe.task.get("dataset")
    about = DATA_SETS.get(dataset)  # None: the task makes its examples up
    if about is None and stated is None:
        return {"data set": recipe.task.name}
    if _of_catalogue(experiment):
        return {
            "data set": f"{about.title}: {about.task}",
            "language": about.language,
            "licence of the data": about.licence,
            "source": about.citation,
        }
    stated = stated or DataStatement()
    return {
        "data set": stated.title or NOT_STATED,
        "licence of the data": stated.licence or NOT_STATED,
        "contact": stated.contact or NOT_STATED,
        **({} if about is None else {"read in the form of": dataset}),
    }


def has_public_texts(experiment: Experiment) -> bool:
    """Whether anybody may have the examples: the catalogue's own files, without restrictions, or made-up ones."""
    about = DATA_SETS.get(experiment.recipe.task.get("dataset"))
    if about is None:
        return experiment.recipe.data is None and not experiment.prepared.sites
    return _of_catalogue(experiment) and not about.restricted


def _of_catalogue(experiment: Experiment) -> bool:
    """Whether the examples are from the catalogue's own files of the recipe's data set."""
    recipe, at_sites = experiment.recipe, bool(experiment.prepared.sites)
    about, named = DATA_SETS.get(recipe.task.get("dataset")), any(recipe.task.get(key) is not None for key in _FILES)
    return about is not None and bool(about.files) and recipe.data is None and not named and not at_sites
