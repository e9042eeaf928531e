"""BioBERT's TSV of relation data: GAD, EU-ADR (Lee et al., Bioinformatics 36, 2020).

A line is ``sentence TAB label`` or ``index TAB sentence TAB label``; the mentions are replaced by ``@GENE$`` and
``@DISEASE$``; nothing is quoted. The training files have no header, the test files (and BLURB's) have
``index sentence label``. GAD is by Bravo et al. (BMC Bioinformatics 16, 2015), EU-ADR by van Mulligen et al. (J.
Biomed. Inform. 45, 2012). Other data in this form are read with other options: BLUE's ChemProt (Peng et al., BioNLP
2019) has ``head="CHEMICAL", tail="GENE"`` and the labels ``false`` and ``CPR:3`` ….
"""

from __future__ import annotations

from collections.abc import Mapping

from datasets.catalogue import data_set
from datasets.files import PathLike
from datasets.json_values import Fail
from datasets.relations.reading import CorpusBuilder, columns, lines_to_check, occurrences, one_of
from datasets.relations.records import NO_RELATION, RelationCorpus, Span

HEADERS = (["index", "sentence", "label"], ["sentence", "label"])

FOLDS = 10

RELATIONS = {"0": NO_RELATION, "1": "associated"}


def read(
    path: PathLike,
    *,
    name: str,
    label: str = "relation",
    split: str = "train",
    head: str = "GENE",
    tail: str = "DISEASE",
    relations: Mapping[str, str] = RELATIONS,
) -> RelationCorpus:
    """Read the pairs of a file, compressed or not, with or without a header and an index.

    The mentions' own words are not in the file: the spans are those of the placeholders, which blinding replaces by the
    type (``gene``) and the markers enclose as they are. The form has no document ids: lines of one sentence share the
    document ``<name>-<split>-<number>``. Duplicate lines are kept and noted.

    Args:
      path: The file.
      name: The corpus's name, e.g. ``gad``; in a cross-validation with the fold, e.g. ``gad-1``.
      label: The form's one label choice.
      split: Part of the ids.
      head, tail: The placeholders without ``@`` and ``$``; in lower case they are the types.
      relations: Label in the file to relation, in the order of the labels; ``no_relation`` is the negative.

    Raises:
      DataError: lines that differ in their number of columns, a placeholder that is missing or repeated, an unknown
        label, or a duplicate index.
    """
    builder = CorpusBuilder(path, name, dict.fromkeys(relations.values()))
    documents: dict[str, str] = {}
    indices: set[str] = set()
    known: set[tuple[str, str]] = set()
    width = 0
    for position, (fail, line) in enumerate(lines_to_check(path)):
        row = columns(line, width or (2, 3), fail)
        width = len(row)
        if position == 0 and row in HEADERS:
            continue
        *index, sentence, value = row
        if indices.intersection(index):
            raise fail("duplicate index", remedy="number the lines anew")
        indices.update(index)
        spans = [_placeholder(sentence, kind, fail) for kind in (head, tail)]
        relation = relations[one_of(value, relations, "label", fail, column=width)]
        document = documents.setdefault(sentence, f"{name}-{split}-{len(documents) + 1:05d}")
        builder.counts["duplicate lines are kept"] += (sentence, relation) in known
        known.add((sentence, relation))
        builder.add(builder.next_id(document), document, sentence, *spans, head.lower(), tail.lower(), relation)
    builder.counts["sentences have several labels"] = len(known) - len(documents)
    return builder.build()


def _placeholder(sentence: str, kind: str, fail: Fail) -> Span:
    mark = f"@{kind}$"
    starts = occurrences(mark, sentence)
    if len(starts) != 1:
        raise fail(f"{mark} occurs {len(starts)} times in the sentence", remedy="mark each mention once")
    return starts[0], starts[0] + len(mark)


def _folds(name: str) -> dict[str, str]:
    """Split to file: `train` and `test` are the first fold's, `train-2` and `test-2` the second's, up to ten."""
    files = {split: f"{name}/1/{split}.tsv" for split in ("train", "test")}
    for fold in range(2, FOLDS + 1):
        files |= {f"{split}-{fold}": f"{name}/{fold}/{split}.tsv" for split in ("train", "test")}
    return files


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
        files=_folds(_name),
        licence="as the corpus's own",
        citation=_citation,
        available_from="BioBERT's data sets (dmis-lab/biobert on GitHub); the folders 1 to 10 of the folds",
    )(read)
