"""ADE as texts with entities: drugs and adverse effects in sentences of case reports.

``DRUG-AE.rel`` annotates only drugs and effects that are related. The sentences of ``ADE-NEG.txt`` name drugs as well,
and none is annotated: they are read only if they are asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from datasets.catalogue import data_set
from datasets.entities.building import EntityBuilder
from datasets.entities.records import EntityCorpus, EntitySpan
from datasets.errors import DataError, named
from datasets.files import PathLike, sibling_file
from datasets.relations.ade import TYPES, related_pairs, sentences_without_effect


@data_set(
    "ade_entities",
    title="ADE, entities",
    kind="entities",
    task="related drugs and adverse effects in a sentence of a case report",
    labels=("types",),
    files={"train": "ade/DRUG-AE.rel"},
    licence="none stated",
    citation="Gurulingappa et al., Development of a benchmark corpus … adverse effects, J. Biomed. Inform. 45, 2012",
    available_from="the authors' ADE-Corpus-V2; copied in several repositories on GitHub",
)
def read(
    path: PathLike,
    *,
    name: str = "ade_entities",
    split: str = "train",
    entity_types: Sequence[str] | None = None,
    nested: str = "outermost",
    negative_sentences: bool = False,
) -> EntityCorpus:
    """Read the sentences of ``DRUG-AE.rel``, each once with the entities of all its lines.

    The ids are ``<name>-<PMID>/<n>``, the documents the PMIDs. With `negative_sentences` the sentences of
    ``ADE-NEG.txt``, next to the file, are samples without entities; one that ``DRUG-AE.rel`` has, too, is not.

    Raises:
      DataError: as the reader of `ade`, and as `EntityBuilder`.
    """
    builder = EntityBuilder(path, name, known=TYPES, entity_types=entity_types, nested=nested)
    sentences: dict[tuple[str, str], dict[EntitySpan, None]] = {}
    for document, sentence, pairs in related_pairs(path, builder.counts):
        spans = sentences.setdefault((document, sentence), {})
        for pair in pairs:
            spans.update((EntitySpan(*where, kind), None) for where, kind in zip(pair, TYPES, strict=True))
    if negative_sentences and sentences:
        negative = sibling_file(path, "ADE-NEG.txt")
        for document, sentence in sentences_without_effect(negative):
            sentences.setdefault((document, sentence), {})
    numbers: dict[str, int] = {}
    for (document, sentence), spans in sentences.items():
        numbers[document] = numbers.get(document, 0) + 1
        sample_id = f"{name}-{document}/{numbers[document]}"
        fail = functools.partial(DataError, path=path, record=named("sentence", sample_id))
        builder.add(sample_id, document, sentence, spans, fail)
    return builder.build()
