"""BioBERT's TSV of relation data: GAD, EU-ADR (Lee et al., Bioinformatics 36, 2020).

A line is ``sentence TAB label`` or ``index TAB sentence TAB label``; the mentions are replaced by ``@GENE$`` and
``@DISEASE$``; nothing is quoted. The training files have no header, the test files (and BLURB's) have
``index sentence label``. GAD is by Bravo et al. (BMC Bioinformatics 16, 2015), EU-ADR by van Mulligen et al. (J.
Biomed. Inform. 45, 2012). Other data in this form are read with other options: BLUE's ChemProt (Peng et al., BioNLP
2019) has ``head="CHEMICAL", tail="GENE"`` and the labels ``false`` and ``CPR:3`` ….
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping

from datasets.catalogue import data_set
from datasets.errors import DataError
from datasets.files import PathLike
from datasets.json_values import Fail
from datasets.relations.reading import columns, notes_of, occurrences, one_of, read_lines, require_some
from datasets.relations.records import NO_RELATION, RelationCorpus, RelationMention, Span

HEADERS = (("index", "sentence", "label"), ("sentence", "label"))

RELATIONS = {"0": NO_RELATION, "1": "associated"}


def read_pairs(
    path: PathLike,
    *,
    name: str,
    split: str = "train",
    head: str = "GENE",
    tail: str = "DISEASE",
    relations: Mapping[str, str] = RELATIONS,
) -> RelationCorpus:
    """The pairs of a file, compressed or not, with or without a header and an index.

    The mentions' own words are not in the file: the spans are those of the placeholders, which blinding replaces by the
    type (``gene``) and the markers enclose as they are. The form has no document ids: lines of one sentence share the
    document ``<name>-<split>-<number>``. Duplicate lines are kept and noted.

    Args:
      path: The file.
      name: The corpus's name, e.g. ``gad``; in a cross-validation with the fold, e.g. ``gad-1``.
      split: Part of the ids.
      head: The head's placeholder without ``@`` and ``$``; in lower case it is the type.
      tail: The tail's placeholder.
      relations: Label in the file to relation, in the order of the labels; ``no_relation`` is the negative.

    Raises:
      DataError: lines that differ in their number of columns, a placeholder that is missing or repeated, an unknown
        label, or a duplicate index.
    """
    width = 0
    documents: dict[str, str] = {}
    per_document: Counter = Counter()
    indices: set[str] = set()
    known: set[tuple[str, str]] = set()
    names = tuple(dict.fromkeys(relations.values()))
    mentions, repeats = [], 0
    for line, text in read_lines(path):
        fail = functools.partial(DataError, path=path, line=line)
        row = columns(text, width or (2, 3), fail)
        width = len(row)
        if line == 1 and tuple(row) in HEADERS:
            continue
        if width == 3:
            if row[0] in indices:
                raise fail("duplicate index", remedy="number the lines anew")
            indices.add(row[0])
        sentence, value = row[-2], row[-1]
        spans = [_placeholder(sentence, kind, fail) for kind in (head, tail)]
        relation = relations[one_of(value, relations, "label", fail, column=width)]
        document = documents.setdefault(sentence, f"{name}-{split}-{len(documents) + 1:05d}")
        per_document[document] += 1
        repeats += (sentence, relation) in known
        known.add((sentence, relation))
        mention_id = f"{document}/{per_document[document]}"
        types = (head.lower(), tail.lower())
        mentions.append(
            RelationMention(mention_id, document, sentence, *spans, *types, relation, names.index(relation))
        )
    require_some(mentions, path)
    contradictions = len(known) - len(documents)
    notes = notes_of(
        {
            "duplicate lines are kept": repeats,
            "sentences have several labels": contradictions,
        }
    )
    return RelationCorpus(name, tuple(mentions), names, NO_RELATION if NO_RELATION in names else None, notes)


def _placeholder(sentence: str, kind: str, fail: Fail) -> Span:
    mark = f"@{kind}$"
    found = occurrences(mark, sentence)
    if len(found) != 1:
        raise fail(f"{mark} occurs {len(found)} times in the sentence", remedy="mark each mention once")
    return found[0], found[0] + len(mark)


def read(path: PathLike, *, name: str, label: str, split: str) -> RelationCorpus:
    """The gene-disease pairs of a file, see `read_pairs`."""
    return read_pairs(path, name=name, split=split)


for _name, _title, _citation in (
    ("gad", "GAD", "Bravo et al., Extraction of relations between genes and diseases, BMC Bioinf. 16, 2015"),
    ("euadr", "EU-ADR", "van Mulligen et al., The EU-ADR corpus, J. Biomed. Inform. 45, 2012"),
):
    data_set(
        _name,
        title=_title,
        kind="relations",
        task="genes and diseases in a sentence: associated or not (BioBERT's form, mentions as placeholders)",
        labels=("relation",),
        files={split: f"{_name}/1/{split}.tsv" for split in ("train", "test")},
        licence="as the corpus's own",
        citation=_citation,
        available_from="BioBERT's data sets (dmis-lab/biobert on GitHub); the folder of one of the ten folds",
    )(read)
