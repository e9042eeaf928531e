"""A further task is one file: from a recipe to a trained, exported and predicting model."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from attrs.validators import ge

from datasets.dialogues.records import LabelledText, TextCorpus
from datasets.encoded_clients import encode_partition, training_texts
from datasets.partition import label_counts
from datasets.text.encoding import CharacterEncoding
from tests.upper_floors import command, tiny, write_recipe
from tff_re import api, load_export
from tff_re.errors import UserError
from tff_re.models.inputs import TokenInput
from tff_re.tasks import TASKS
from tff_re.tasks.base import Prepared, partition_of
from tff_re.tasks.task import Task

MOODS = {"unwell": "痛病烧", "well": "好棒乐"}


@attrs.frozen(kw_only=True)
class Options:
    """Attributes:
    texts: how many texts are made up.
    """

    texts: int = attrs.field(default=40, validator=ge(8))


class Moods(Task):
    """Whether a made-up text of characters says that somebody is well."""

    Options = Options

    def prepare(self, options, partitioner, seed, data_paths):
        rng, names = np.random.default_rng(seed), list(MOODS)
        samples = tuple(
            LabelledText(f"t{n}", f"d{n // 4}", "我今天" + "".join(rng.choice(list(MOODS[names[n % 2]]), 3)), n % 2)
            for n in range(options.texts)
        )
        corpus = TextCorpus("moods", samples, tuple(names))
        partition = partition_of((corpus,), partitioner, seed, data_paths, test_share=0.25)
        encoding = CharacterEncoding.build(training_texts(partition, corpus), max_length=6)
        return Prepared(
            examples=encode_partition((corpus,), partition, encoding),
            inputs=TokenInput(len(encoding.vocabulary), 6),
            measures=self.measures(),
            counts=label_counts(partition, corpus),
            partition=partition,
            encoding=encoding,
            corpora=(corpus,),
            notes=(f"{options.texts} made-up texts",),
        )


TASK = Moods()


@pytest.fixture
def moods():
    TASKS.add("moods", TASK)
    yield
    TASKS.remove("moods")


SECTIONS = {
    "task": {"name": "moods"},
    "partition": {"name": "iid", "num_clients": 2},
    "model": {"name": "logistic_regression", "features": "word_presence"},
    "algorithm": {"name": "fedavgs", "learning_rate": 0.3, "local_epochs": 5},
}


def test_a_further_task_goes_all_the_way(moods, tmp_path, capsys):
    run, recipe = tmp_path / "run", write_recipe(tmp_path / "moods.toml", **SECTIONS)
    result = api.train(recipe, run, runtime="in-process")
    assert result.test.metrics["accuracy"] == 1.0 and (run / "summary.json").exists()
    assert command(capsys, "partition", recipe).code == 0
    predictor = load_export(api.export(run, runtime="in-process"))
    assert [prediction.label for prediction in predictor.predict(["他又痛又烧", "好乐"])] == ["unwell", "well"]


def test_its_keys_are_checked(moods, tmp_path):
    with pytest.raises(UserError, match=r"unknown key 'task\.text'; .*texts"):
        tiny("task={name='moods', text=9}")
    recipe = write_recipe(tmp_path / "moods.toml", **{**SECTIONS, "model": {"name": "sentence_encoder"}})
    with pytest.raises(UserError, match="the model 'sentence_encoder' does not take the inputs of this task"):
        api.train(recipe, tmp_path / "run", runtime="in-process")


def test_it_cannot_be_trained_across_sites_unless_it_says_so(moods, tmp_path):
    from computations.registry import Choice
    from tff_re.sites.prepared import require_task

    with pytest.raises(UserError, match="the task 'moods' cannot be trained across sites; these can: bag_relations,"):
        require_task(Choice("moods", Options()))


def test_a_task_that_is_not_registered_is_refused():
    with pytest.raises(UserError, match="there is no task 'moods'"):
        tiny("task={name='moods'}")
