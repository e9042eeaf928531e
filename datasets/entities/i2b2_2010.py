"""2010 i2b2/VA as texts with entities: problems, treatments and tests in the lines of clinical records."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from datasets.catalogue import data_set
from datasets.entities.building import EntityBuilder
from datasets.entities.records import EntityCorpus, EntitySpan
from datasets.errors import DataError, named
from datasets.files import PathLike
from datasets.relations.i2b2_2010 import TYPES, concept_span, lines_and_words, read_concepts, record_texts


@data_set(
    "i2b2_2010_entities",
    title="2010 i2b2/VA, entities",
    kind="entities",
    task="problems, treatments and tests in a line of a clinical record",
    labels=("types",),
    files={split: f"i2b2_2010/{split}" for split in ("train", "test")},
    restricted=True,
    licence="by agreement with n2c2; no redistribution",
    citation="Uzuner et al., 2010 i2b2/VA challenge on concepts, assertions, and relations, JAMIA 18, 2011",
    available_from="n2c2 at Harvard Medical School; a split is a folder with txt and concept, or the release's own",
)
def read(
    path: PathLike,
    *,
    name: str = "i2b2_2010_entities",
    split: str = "train",
    entity_types: Sequence[str] | None = None,
    nested: str = "outermost",
) -> EntityCorpus:
    """Read the lines of a split's records with the types ``problem``, ``treatment`` and ``test``.

    Empty lines are no samples; concepts that go over the end of a line are left out and noted. The ids are
    ``<name>-<split>-<record>/<line>``, the documents are the records. The folders are those of the reader of relations;
    ``rel`` is not looked for.

    Raises:
      DataError: as the reader of `i2b2_2010` says of texts and concepts, and as `EntityBuilder`.
    """
    builder = EntityBuilder(path, name, known=TYPES, entity_types=entity_types, nested=nested)
    seen = set()
    for file, folder in record_texts(Path(path)):
        record = file.stem
        if record in seen:
            raise DataError("duplicate record", path=file, record=named("record", record), remedy="remove one of them")
        seen.add(record)
        lines, words = lines_and_words(file)
        spans: dict[int, list[EntitySpan]] = {}
        for position, kind in read_concepts(folder, record, lines, words, builder.counts).items():
            spans.setdefault(position[0], []).append(EntitySpan(*concept_span(position, words), kind))
        for number, line in enumerate(lines, 1):
            if line.strip():
                fail = functools.partial(DataError, path=file, line=number)
                builder.add(f"{name}-{split}-{record}/{number}", record, line, spans.get(number, ()), fail)
    return builder.build()
