"""DXY: Chinese paediatric consultations with a diagnosis (Xu et al., AAAI 2019).

JSON lines ``{self_repo, dialog: […], goal: {…}, disease_tag, consult_id}``; the task is to tell the disease from the
parent's own report.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field as data_field

from datasets.errors import DataError, named
from datasets.files import PathLike, read_json_lines
from datasets.json_values import field, identifier, require
from datasets.records import LabelledText, TextCorpus

LABELS = ("disease",)


@dataclass(frozen=True)
class Consultation:
    """A consultation: the parent's own report (without blanks around it) and the disease that was found."""

    consult_id: str
    disease: str
    self_report: str = data_field(repr=False)


def read_consultations(path: PathLike) -> tuple[Consultation, ...]:
    """The consultations of a file of DXY, compressed or not, in the file's order.

    A consultation may stand in the file more than once with different annotations (seven do in the release's
    training split); the same record twice is refused.

    Raises:
      DataError: the file is missing, a line is not JSON, a key is missing, of the wrong type or empty, or a record
        stands twice.
    """
    result, seen = [], {}
    for line, value in read_json_lines(path):
        fail = functools.partial(DataError, path=path, line=line)
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
        for number, other in earlier:
            if other == value:
                raise fail(f"is the same record as line {number}", remedy="remove one of them")
        earlier.append((line, value))
        result.append(Consultation(consult_id, disease, report))
    if not result:
        raise DataError("has no consultations", path=path, remedy="give it at least one line")
    return tuple(result)


def self_reports(
    consultations: Sequence[Consultation],
    label_names: Sequence[str] | None = None,
    *,
    name: str = "dxy",
    path: PathLike | None = None,
) -> TextCorpus:
    """One sample a consultation: the self report, labelled with its disease; fields: `disease`.

    The document is the consultation's id; the sample's is ``<consult_id>/<n>``, n = 1 for its first record.

    Args:
      consultations: As read by `read_consultations`.
      label_names: The classes; for a dev split those of the training split. By default the diseases that occur,
        sorted.
      name: The corpus's name.
      path: The file, for messages.

    Raises:
      DataError: a disease that is not in `label_names`.
    """
    names = tuple(label_names) if label_names is not None else tuple(sorted({c.disease for c in consultations}))
    samples, count = [], Counter()
    for consultation in consultations:
        count[consultation.consult_id] += 1
        if consultation.disease not in names:
            raise DataError(
                "its disease is none of the training split's classes",
                path=path,
                record=named("consultation", consultation.consult_id),
                remedy="train on data with this disease, or remove the consultation",
            )
        samples.append(
            LabelledText(
                f"{consultation.consult_id}/{count[consultation.consult_id]}",
                consultation.consult_id,
                consultation.self_report,
                names.index(consultation.disease),
                {"disease": consultation.disease},
            )
        )
    repeated = sum(n > 1 for n in count.values())
    notes = (f"{repeated} consultations stand in the file more than once",) if repeated else ()
    return TextCorpus(name, tuple(samples), names, notes)
