"""DXY: Chinese paediatric consultations with a diagnosis (Xu et al., AAAI 2019).

JSON lines ``{self_repo, dialog: […], goal: {…}, disease_tag, consult_id}``; the task is to tell the disease from the
parent's own report. The release, ``dxy_dialog_data_dialog_v2.txt``, has a line for each of its splits, ``train`` and
``test``: the name, a blank, and the list of these records as Python writes it. Its other file is a pickle.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import field as data_field
from typing import Any

from datasets.catalogue import data_set
from datasets.dialogues.records import LabelledText, TextCorpus
from datasets.errors import DataError, named
from datasets.files import PathLike, decode, read_byte_lines, read_json_lines
from datasets.json_values import field, identifier, require

LABELS = ("disease",)

_AGAIN = "copy or download it again"

_RELEASE = re.compile(rb"(\w{1,20})[ \t]+\[")


@dataclass(frozen=True)
class Consultation:
    """A consultation, with the parent's own report (stripped) and the diagnosed disease."""

    consult_id: str
    disease: str
    self_report: str = data_field(repr=False)


def read_consultations(path: PathLike, *, split: str = "train") -> tuple[Consultation, ...]:
    """Read the consultations of a file of DXY, compressed or not, in the file's order.

    A consultation may occur more than once in the file with different annotations (seven do in the release's
    training split); the same record twice is refused.

    `split` says which of the release's splits; JSON lines hold one.

    Raises:
      DataError: the file is missing, a line is not JSON, the release's text lacks the split or is not a list of
        records, a key is missing, of the wrong type or empty, or a record is a duplicate.
    """
    result, seen = [], {}
    for location, value in _records(path, split):
        fail = functools.partial(DataError, path=path, **location)
        require(value, dict, "it", fail)
        consult_id = identifier(value, "consult_id", fail)
        fail = functools.partial(fail, record=named("consultation", consult_id))
        disease = field(value, "disease_tag", str, fail)
        if not disease.strip():
            raise fail('"disease_tag" is empty', remedy="give it a disease")
        report = field(value, "self_repo", str, fail).strip()
        if not report:
            raise fail('"self_repo" is empty', remedy="remove the consultation or give it a report")
        earlier = seen.setdefault(consult_id, [])
        for other_location, other in earlier:
            if other == value:
                where = other_location.get("record") or f"line {other_location['line']}"
                raise fail(f"is the same record as {where}", remedy="remove one of them")
        earlier.append((location, value))
        result.append(Consultation(consult_id, disease, report))
    if not result:
        raise DataError("has no consultations", path=path, remedy="give it at least one line")
    return tuple(result)


def _records(path: PathLike, split: str) -> Iterator[tuple[dict[str, Any], Any]]:
    """Return the records and their positions, as arguments of a DataError."""
    with contextlib.closing(read_byte_lines(path)) as lines:
        first = next(lines, b"")
    if _RELEASE.match(first) is None:
        yield from (({"line": line}, value) for line, value in read_json_lines(path))
        return
    names = []
    for line, data in enumerate(read_byte_lines(path), 1):
        match = _RELEASE.match(data)
        if match is None:
            raise DataError("is not a split's name and its records", path=path, line=line, remedy=_AGAIN)
        names.append(match[1].decode())
        if names[-1] == split:
            for number, value in enumerate(_literal(data[match.end() - 1 :], path, line), 1):
                yield {"line": line, "record": f"record number {number}"}, value
            return
    raise DataError(f"has no split {split}", path=path, remedy=f"use one of {', '.join(names)}, or another file")


def _literal(data: bytes, path: PathLike, line: int) -> list:
    """Parse a list that Python wrote, without running anything."""
    text = decode(data, path, line=line).strip()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes; they show a piece of the text
            value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        value = None
    if not isinstance(value, list):
        # Raised here, outside of the handler: the error of the parser carries the text.
        raise DataError("its records are not a list as Python writes it", path=path, line=line, remedy=_AGAIN)
    return value


def self_reports(
    consultations: Sequence[Consultation],
    label_names: Sequence[str] | None = None,
    *,
    name: str = "dxy",
    path: PathLike | None = None,
) -> TextCorpus:
    """Return one sample for each consultation, its self report labelled with the disease.

    Fields: `disease`.

    The document is the consultation's id; the sample's is ``<consult_id>/<n>``, n = 1 for its first record. The classes
    are `label_names` (for a dev split those of the training split), by default the diseases that occur, sorted.

    Raises:
      DataError: a disease that is not in `label_names`.
    """
    names = tuple(sorted({c.disease for c in consultations}) if label_names is None else label_names)
    samples, count = [], Counter()
    for consultation in consultations:
        count[consultation.consult_id] += 1
        if consultation.disease not in names:
            raise DataError(
                "its disease is not one of the training split's classes",
                path=path,
                record=named("consultation", consultation.consult_id),
                remedy="train on data with this disease, or remove the consultation",
            )
        consult_id, disease = consultation.consult_id, consultation.disease
        sample_id, fields = f"{consult_id}/{count[consult_id]}", {"disease": disease}
        samples.append(LabelledText(sample_id, consult_id, consultation.self_report, names.index(disease), fields))
    repeated = sum(n > 1 for n in count.values())
    notes = (f"{repeated} consultations occur more than once in the file",) if repeated else ()
    return TextCorpus(name, tuple(samples), names, notes)


@data_set(
    "dxy",
    title="DXY",
    kind="texts",
    language="Chinese",
    task="parents' reports in paediatric consultations: the disease",
    labels=LABELS,
    strips=True,
    files={split: f"dxy/{split}.jsonl" for split in ("train", "dev", "test")},
    licence="none stated",
    citation="Xu et al., End-to-End Knowledge-Routed Relational Dialogue System for Automatic Diagnosis, AAAI 2019",
    available_from="copied in lemuria-wchen/imcs21 on GitHub: dxy_dialog_data_dialog_v2.txt, under the split's name",
)
def read(path: PathLike, *, name: str, label: str, split: str, training: PathLike | None = None) -> TextCorpus:
    """Read the reports of a file (see `self_reports`).

    The classes are those of the file `training` if it is given.
    """
    classes = None if training is None else self_reports(read_consultations(training, split="train")).label_names
    return self_reports(read_consultations(path, split=split), classes, name=name, path=path)
