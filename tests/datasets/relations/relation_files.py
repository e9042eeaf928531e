"""Small relation extraction files that the tests write."""

import json


def write(path, *lines, end="\n"):
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


def write_objects(path, *values):
    return write(path, *(json.dumps(value, ensure_ascii=False) for value in values))


def shown(corpus):
    """Ids, mentions and relations of a corpus."""
    return [(m.mention_id, m.head_text, m.tail_text, m.relation) for m in corpus.mentions]
