"""The steps of an extraction from two models and the user's choices, checked before anything is read or written."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets.errors import DataError, counted
from datasets.files import sha256_of
from tff_re.extraction.pairs import Named, PairTypes, TypePair, pair_types
from tff_re.extraction.pipeline import Pipeline, Unit
from tff_re.extraction.records import EntityRecogniser
from tff_re.extraction.relations import check_model, relation_model
from tff_re.extraction.terminology import SIMILARITY, Linker, Terminology

UNITS = ("documents", "sentences")

NamedModel = tuple[Any, str, str | None]
"""A model, what messages call it, and the digest of its export."""


def named_model(model: Any, trust: bool) -> NamedModel:
    """A loaded model, or an export loaded from its folder; the digest is None for a model of no export."""
    if not isinstance(model, str | os.PathLike):
        return model, type(model).__name__, None
    from tff_re.exporting.digests import digest_of_export
    from tff_re.exporting.prediction import load_export

    return load_export(model, trust=trust), os.fspath(model), digest_of_export(Path(model))


@dataclass(frozen=True)
class SetUp:
    """What an extraction does, apart from its files.

    Attributes:
      recogniser: Finds entities.
      predictor: The loaded export of relations; None: no relation is predicted.
      pairs: The pairs of types that it classifies; None without it.
      terminology: Links mentions; None: none is linked.
      unit: What the recogniser reads at once.
      settings: What has to be the same when an extraction continues.
      exports: What each fact has about the models.
    """

    recogniser: EntityRecogniser
    predictor: Any | None
    pairs: PairTypes | None
    terminology: Terminology | None
    unit: Unit
    settings: Mapping[str, Any]
    exports: Mapping[str, str | None]

    @classmethod
    def make(
        cls,
        entities: NamedModel,
        relations: NamedModel | None,
        *,
        terminology: str | os.PathLike | None = None,
        similarity: float = SIMILARITY,
        pairs: Sequence[TypePair] = (),
        renamed: Mapping[str, str] | None = None,
        unit: Unit = "documents",
    ) -> SetUp:
        """The checked set-up.

        The arguments are those of `tff_re.api.extract`.

        Raises:
          DataError: A model is of another kind, the two do not fit each other, or the terminology cannot be read.
        """
        recogniser, its_name, its_digest = entities
        if not getattr(recogniser, "entity_types", None):
            raise DataError(
                f"{its_name} does not recognise entities", remedy="give an export of the task entity_recognition"
            )
        if not 0 < similarity <= 1:
            raise DataError("the similarity is not above 0 and at most 1", remedy="use e.g. 0.9, or 1 for none")
        if unit not in UNITS:
            raise DataError("the recogniser reads documents or sentences", remedy=f"use one of {', '.join(UNITS)}")
        predictor, types, exports = None, None, {"entities_export": its_digest}
        if relations is not None:
            predictor, name, digest = relations
            check_model(predictor, name)
            trained_on = (predictor.description.get("details") or {}).get("pair_types")
            named = Named(its_name, tuple(recogniser.entity_types)), Named(name, trained_on)
            types = pair_types(*named, asked=[tuple(pair) for pair in pairs], renamed=renamed)
            exports["relations_export"] = digest
        elif pairs or renamed:
            raise DataError(
                "pairs of types and renamed types are only for relations", remedy="add an export of relations"
            )
        settings = {
            "relations_export": None,
            **exports,
            "terminology": None if terminology is None else sha256_of(terminology),
            "similarity": similarity,
            "pairs": None if types is None else sorted(map(list, types.pairs)),
            "renamed": {} if types is None else dict(types.relation_types),
            "unit": unit,
        }
        linked = None if terminology is None else Terminology.read(Path(terminology), similarity)
        return cls(recogniser, predictor, types, linked, unit, settings, exports)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the facts should know of the models and the terminology."""
        notes = []
        if self.terminology is not None and self.terminology.ambiguous:
            names = counted(self.terminology.ambiguous, "name", " of the terminology with several ids")
            notes.append(f"not used: {names}")
        if not getattr(self.predictor, "threshold", 0.0) <= 1:
            notes.append("no probability reaches the threshold of the export of relations, so it never predicts a fact")
        return tuple(notes)

    def pipeline(self, key: bytes) -> Pipeline:
        """The steps of the pipeline.

        `key` makes the numbers of unlinked mentions.
        """
        model = None if self.predictor is None else relation_model(self.predictor, self.pairs)
        return Pipeline(self.recogniser, model, Linker(self.terminology, key), self.unit)
