"""PGR: human phenotype–gene relations in sentences of abstracts (Sousa, Lamurias and Couto, NAACL 2019).

TSV with a header; offsets are characters of the sentence, the end exclusive; nothing is quoted. The training file has
eleven columns. The test file has a twelfth one, in which curators say whether the line is correct (C), incorrect (I)
or uncertain (U), and writes ``TRUE`` and ``FALSE`` in a part of its lines.
"""

from __future__ import annotations

from datasets.catalogue import data_set
from datasets.errors import DataError
from datasets.files import PathLike
from datasets.relations.reading import CorpusBuilder, columns, lines_to_check, one_of, span
from datasets.relations.records import NO_RELATION, RelationCorpus

_POSITIONS = tuple(f"{what}_{end}_POSITION" for what in ("GENE", "PHENOTYPE") for end in ("START", "END"))

HEADER = ("FILE_ID", "SENTENCE", "GENE", "PHENOTYPE", "GENE_ID", "PHENOTYPE_ID", *_POSITIONS, "RELATION")

CONFIRMATION = "CONFIRMATION"
"""How the twelfth column's name begins; the letters and their meaning follow it."""

CONFIRMATIONS = ("C", "I", "U")

RELATIONS = (NO_RELATION, "true")

_LABEL_OF = {"False": 0, "True": 1, "FALSE": 0, "TRUE": 1}

MISPLACED_SHARE = 0.01
"""A file with a larger share of mentions that are not at their offsets is refused: its offsets count something else."""


@data_set(
    "pgr",
    title="PGR",
    kind="relations",
    task="genes and human phenotypes in a sentence: related or not; of the test file all pairs, or those confirmed",
    labels=("relation", "confirmed"),
    files={split: f"pgr/{split}.tsv" for split in ("train", "test")},
    licence="Apache-2.0",
    citation="Sousa et al., A Silver Standard Corpus of Human Phenotype-Gene Relations, NAACL 2019",
    available_from="lasigeBioTM/PGR on GitHub",
)
def read(path: PathLike, *, name: str = "pgr", label: str = "relation", split: str = "train") -> RelationCorpus:
    """Read the pairs of a file of PGR, compressed or not.

    The head is the gene, the tail the phenotype, the document `FILE_ID`.

    A mention is compared with the sentence at its offsets. The published training file has two lines (of 4,083) whose
    gene does not stand in the sentence at all: such lines are left out and noted, unless they are more than one in a
    hundred. Duplicate lines (40 in that file) are kept, as the published counts are, and noted; hold out whole
    documents and they do not leak. With the label choice ``confirmed`` only the lines of a file with the curators'
    column that they call correct (C) are kept; a training file without that column is kept whole, and the notes say so.

    Raises:
      DataError: another header, a file other than for training that lacks the column which ``confirmed`` needs, a line
        with another number of columns, offsets that are no numbers or lie beyond the sentence, a relation that is
        neither True nor False (so spelled, or in capitals), an unknown confirmation, the same pair as True and False,
        or too many mentions that are not at their offsets.
    """
    confirmed, builder, misplaced = label == "confirmed", CorpusBuilder(path, name, RELATIONS), []
    seen: dict[tuple, int] = {}
    lines = lines_to_check(path)
    header_fail, first = next(lines, (None, ""))
    header = first.split("\t")
    more = [column.partition(" ")[0] for column in header[len(HEADER) :]]
    if tuple(header[: len(HEADER)]) != HEADER or more not in ([], [CONFIRMATION]):
        remedy = "give the eleven or twelve columns their names"
        raise DataError("is not the header of PGR", path=path, line=1, remedy=remedy)
    if confirmed and not more and split != "train":
        raise header_fail(
            'has no column CONFIRMATION, which the label choice "confirmed" needs',
            remedy='give PGR\'s test file, or use the label choice "relation"',
        )
    unconfirmed = 0
    for fail, line in lines:
        row = columns(line, len(header), fail)
        document, sentence = row[0], row[1]
        label = _LABEL_OF[one_of(row[10], _LABEL_OF, "RELATION", fail, column=11)]
        correct = not more or one_of(row[11], CONFIRMATIONS, "CONFIRMATION", fail, column=12) == "C"
        if not document.strip():
            raise fail("has no FILE_ID", remedy="name the document")
        head = span(row[6], row[7], "gene", len(sentence), fail)
        tail = span(row[8], row[9], "phenotype", len(sentence), fail)
        wrong = [what for what, at, surface in (("gene", head, row[2]), ("phenotype", tail, row[3]))
                 if sentence[slice(*at)] != surface]  # fmt: skip
        if wrong:
            misplaced.append(fail(f"the {wrong[0]} is not at its offsets", remedy="repair the offsets"))
            continue
        if seen.setdefault((document, sentence, head, tail), label) != label:
            raise fail("the same pair is given as True and as False", remedy="remove one of them")
        mention_id = builder.next_id(f"{name}-{split}-{document}")
        if correct or not confirmed:
            builder.add(mention_id, document, sentence, head, tail, "gene", "phenotype", RELATIONS[label])
        else:
            unconfirmed += 1
    placed = len(builder.mentions) + unconfirmed
    if len(misplaced) > MISPLACED_SHARE * (placed + len(misplaced)):
        raise misplaced[0]
    where = ", ".join(str(error.line) for error in misplaced)
    builder.counts.update(
        {
            f"lines left out, a mention is not at its offsets (lines {where})": len(misplaced),
            "duplicate lines are kept": placed - len(seen),
            "lines left out, the curators do not call them correct": unconfirmed,
        }
    )
    return builder.build(*(["no column CONFIRMATION: all lines are kept"] if confirmed and not more else []))
