"""Small bags and files of bags that the tests write."""

import json

from datasets.bags.records import BagCorpus, BagSentence

REL2ID = {"NA": 0, "born in": 1, "lives in": 2}


NAMES = tuple(REL2ID)


def sentence(number, pair=("h", "t"), relations=("NA",), text="Ann of Bonn", head=(0, 3), tail=(7, 11), label=None):
    if label is None:
        label = NAMES.index(relations[0]) if relations and relations[0] in NAMES else 0
    types = ("person", "place")
    return BagSentence(f"s{number}", f"d{number}", text, head, tail, *types, *pair, tuple(relations), label)


def corpus(*sentences, names=NAMES, name="toy"):
    return BagCorpus(name, tuple(sentences), names)


def entity(name, start, end=None, identifier=None):
    end = start + len(name) if end is None else end
    return {"id": identifier or f"id of {name}", "name": name, "pos": [start, end]}


def line(text="Ann is of Bonn .", relation="born in", head=None, tail=None, **more):
    value = {"text": text, "relation": relation, "h": head or entity("Ann", 0), "t": tail or entity("Bonn", 10), **more}
    return {key: field_value for key, field_value in value.items() if field_value is not None}


def write_bags(folder, *lines, rel2id=REL2ID, name="nyt10", split="train"):
    """The file of lines (objects, or strings as they are) and its rel2id."""
    folder.mkdir(parents=True, exist_ok=True)
    relations = folder / f"{name}_rel2id.json"
    relations.write_text(json.dumps(rel2id))
    texts = [entry if isinstance(entry, str) else json.dumps(entry, ensure_ascii=False) for entry in lines]
    path = folder / f"{name}_{split}.txt"
    path.write_text("".join(text + "\n" for text in texts), "utf-8")
    return path, relations
