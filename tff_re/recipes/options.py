"""The tables [choice], [baseline], [personalise], [track] and [data] of a recipe, which only runs read."""

from __future__ import annotations

import unicodedata
from typing import Literal

import attrs
from attrs.validators import and_, ge, gt, le, optional

from computations.ranges import FLOAT32_MAX

DEV_SHARE, DEFAULT_METRIC = 0.1, "loss"
"""Of [choice] where clients have the dev examples."""


@attrs.frozen(kw_only=True)
class ChoiceOptions:
    """Attributes:
    dev_share: share of each client's training examples that it keeps out of training, to choose the round on; not set:
      a tenth. Where the server holds a dev split, that chooses, and this is refused.
    dev_unit: keep out whole documents (dialogues, patients' reports; single examples at a client that has one document
      alone), or single examples.
    metric: of the dev examples; of losses the lowest, of others the highest; not set: `loss`, or the task's own where
      the server holds the dev split.
    patience: rounds without a better value after which training ends; not set: it goes on to the last round.
    """

    dev_share: float | None = attrs.field(default=None, validator=optional(and_(gt(0), le(0.5))))
    dev_unit: Literal["document", "sample"] = "document"
    metric: str | None = None
    patience: int | None = attrs.field(default=None, validator=optional(ge(1)))


@attrs.frozen(kw_only=True)
class BaselineOptions:
    """A baseline to compare with federated rows: the algorithm's local training without an aggregation.

    The partition, seed, rounds and epochs are the same.

    Attributes:
      kind: `local`: each client trains its own model in every round; across sites each site does, in addition to the
        federated run; `pooled`: one client has all training examples.
    """

    kind: Literal["local", "pooled"]


@attrs.frozen(kw_only=True)
class PersonaliseOptions:
    """Attributes:
    epochs: passes of each client over its own training examples, from the run's final model; 0: no fine-tuning.
    learning_rate: of that; not set: the algorithm's.
    optimizer: of that, with fresh moments.
    layers: `all` weights that the run trains, the `head` (the classifier) alone, or the `adapter` without the head.
    local_head: every client keeps a head of its own from the first round on and never sends it (FedPer).
    """

    epochs: int = attrs.field(default=1, validator=ge(0))
    learning_rate: float | None = attrs.field(default=None, validator=optional(and_(gt(0), le(FLOAT32_MAX))))
    optimizer: Literal["adam", "sgd"] = "adam"
    layers: Literal["all", "head", "adapter"] = "all"
    local_head: bool = False

    def __attrs_post_init__(self):
        if not self.epochs and not self.local_head:
            raise ValueError("epochs must be at least 1 if local_head is false")
        for key in ("learning_rate", "optimizer", "layers"):
            if not self.epochs and getattr(self, key) != getattr(attrs.fields(type(self)), key).default:
                raise ValueError(f"{key} needs epochs of at least 1, the passes of fine-tuning")


def _one_line(instance, attribute, value: str) -> None:
    """Refuses a text that is blank or holds a control character."""
    if not value.strip() or any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in value):
        raise ValueError(f"{attribute.name} must be one line of text that is not blank")


@attrs.frozen(kw_only=True)
class DataStatement:
    """What the model card and the summary say of your own data. It changes nothing that is computed, and sites that
    allow a recipe allow it with any of these.

    Attributes:
      title: what the data are.
      licence: who may use them, and for what.
      contact: whom to ask about them.
    """

    title: str | None = attrs.field(default=None, validator=optional(_one_line))
    licence: str | None = attrs.field(default=None, validator=optional(_one_line))
    contact: str | None = attrs.field(default=None, validator=optional(_one_line))


def _distinct(instance, attribute, value: tuple[str, ...]) -> None:
    """Refuses a list that is empty or has a name twice."""
    if not value or len(set(value)) < len(value):
        raise ValueError(f"{attribute.name} must have at least one name and no duplicates")


def _project_name(instance, attribute, value: str) -> None:
    """Refuses what Weights & Biases does not take as the name of a project."""
    _one_line(instance, attribute, value)
    if len(value) > 128 or set(value) & set("/\\#?%:"):
        raise ValueError(f"{attribute.name} must have at most 128 characters, and none of / \\ # ? % :")


@attrs.frozen(kw_only=True)
class TrackOptions:
    """The metrics of each round, in addition to the run's own files. It changes nothing that is computed, and sites do
    not get this table.

    Attributes:
      sinks: `json`: one line of JSON for each round, in rounds.jsonl of the run's folder; `mlflow`, `wandb`: MLflow or
        Weights & Biases, which get numbers only. The environment variable TFF_RE_TRACK, e.g. `json,mlflow`, adds to
        them.
      project: the MLflow experiment or the project of Weights & Biases; not set: MLFLOW_EXPERIMENT_NAME or
        WANDB_PROJECT, else tff-re.
    """

    sinks: tuple[Literal["json", "mlflow", "wandb"], ...] = attrs.field(validator=_distinct)
    project: str | None = attrs.field(default=None, validator=optional(_project_name))


def notes(baseline: BaselineOptions | None, personalise: PersonaliseOptions | None) -> tuple[str, ...]:
    """What every output of a run says of these tables."""
    lines = []
    if baseline is not None:
        lines.append(
            {
                "local": "every client trains its own model in every round; nothing is sent",
                "pooled": "one client has all training examples; nothing is federated",
            }[baseline.kind]
        )
    if personalise is not None and personalise.local_head:
        lines.append("every client keeps its own head, which is never sent")
    if personalise is not None and personalise.epochs:
        layers = {"all": "all trained weights", "head": "the head", "adapter": "the adapter"}[personalise.layers]
        lines.append(f"personal: after {personalise.epochs} epochs of fine-tuning {layers} at each client")
    return tuple(lines)
