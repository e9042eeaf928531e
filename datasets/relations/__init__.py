"""Readers of sentence-level relation extraction data, which return a `RelationCorpus`.

`chemprot` (sentence form), `chemprot_release` (BioCreative's files), `pgr`, `ade`, `semeval2010_task8`, `biobert_tsv`
(GAD, EU-ADR), `i2b2_2010`, and `neutral`, a form for your own files. A malformed line is refused with file, line and
reason; what is irregular in the published files themselves is counted in the corpus's notes.
"""

from datasets.relations.records import NO_RELATION, UNKNOWN_TYPE, RelationCorpus, RelationMention

__all__ = ["NO_RELATION", "UNKNOWN_TYPE", "RelationCorpus", "RelationMention"]
