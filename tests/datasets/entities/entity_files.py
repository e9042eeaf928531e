"""Small files of texts with entities, and what a corpus holds in a form that is easy to compare."""

import gzip
import json

from datasets.entities.records import EntitySample, EntitySpan, label_of


def write(path, text):
    """The file with this text, compressed where its name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return path


def json_lines(*records):
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def entities_of(corpus):
    """Sample id -> the written form and the type of its entities."""
    return {s.sample_id: [(s.text[e.start : e.end], e.type) for e in s.spans] for s in corpus.samples}


def text_with(sample_id, text, *spans, types=("a", "b"), document=None, more=None):
    """A sample of spans as (start, end, type)."""
    spans = tuple(EntitySpan(*span) for span in spans)
    return EntitySample(sample_id, document or sample_id, text, spans, label_of(spans, types), more or {})
