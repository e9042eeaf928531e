"""Small relation extraction files that the tests write."""

import json

import pytest
from datasets_for_tests import message

from datasets.errors import DataError


def write(path, *lines, end="\n"):
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


def write_objects(path, *values):
    return write(path, *(json.dumps(value, ensure_ascii=False) for value in values))


def refused(read, *arguments, **options):
    """The message of the error that the reader raises."""
    with pytest.raises(DataError) as caught:
        read(*arguments, **options)
    return message(caught.value)


def shown(corpus):
    """Ids, mentions and relations of a corpus."""
    return [(m.mention_id, m.head_text, m.tail_text, m.relation) for m in corpus.mentions]
