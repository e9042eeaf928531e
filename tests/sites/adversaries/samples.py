"""A message of every kind and its answer, for tricks about any message. A new kind needs a line here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.sites.sites_for_tests import key_of
from tff_re.sites import protocol
from tff_re.sites.comparison_messages import Alone, AloneAnswer, Compare, CompareAnswer
from tff_re.sites.keys import public_text
from tff_re.sites.survey_messages import (
    CountTable,
    MaskedDistance,
    MaskedDistanceAnswer,
    MaskedSurvey,
    MaskedSurveyAnswer,
    Survey,
    SurveyAnswer,
    TableForm,
)

RUN = "7" * 32
SITE = "bonn"


@dataclass(frozen=True)
class Sample:
    """A question and its answer, as honest parties write them."""

    question: protocol.Question
    answer: protocol.Answer


def _rows(count: int, width: int) -> np.ndarray:
    return np.arange(count * width, dtype=np.uint8).reshape(count, width)


_STAGE = {
    **{"run": RUN, "round": 1, "purpose": "train", "program": "0" * 64, "stage": 0, "split": "train"},
    **{"clients": (SITE,), "versions": (), "arrays": (np.zeros(3, np.float32),)},
}
_MASKED = {"attempt": 1, "sites": ("aachen", SITE)}
_HELLO = {
    **{"site": SITE, "version": "1.0", "recipe": "0" * 64, "clients": ((SITE, 6, 2, None),), "label": "type"},
    **{"label_names": ("a", "b"), "positive_labels": ("b",), "vocabulary": "keyed"},
    **{"relations": ("r",), "document_form": (1, 2, 3, 4, 1), "share": (1, 2), "evaluation": "sums"},
    "comparison": "direction",
}
_WORDS = {
    **{
        "site": SITE,
        "check": "0" * 64,
        "key": public_text(key_of(SITE)),
        "others": {"celle": public_text(key_of("celle"))},
    },
    **{"digests": _rows(2, 16), "counts": np.array([3, 2]), "holders": np.array([2, 2]), "signatures": _rows(2, 64)},
}
_REVEAL = {
    **{"run": RUN, "signers": ("aachen",), "digests": _rows(1, 16), "rows": np.zeros(1, np.int32)},
    **{"by": np.zeros(1, np.int32), "signatures": _rows(1, 64)},
}
_AGREE = {"run": RUN, "agreement": "{}", "programs": {"train": "0" * 64}, "numbers": np.zeros(2, np.int32)}
_COMPARED = {"disclosed": "interval", "verdict": "gain", "numbers": np.array([0.5, 0.75, 0.25, 0.125, 0.375])}
_SURVEY = {"recipe": "name = 'x'", "least_count": 5, "epsilon": None, "labels": ("a", "b")}
_COUNTED = {
    **{"recipe": "0" * 64, "least_count": 5, "epsilon": None, "one_client": False, "max_length": 30},
    **{"check": "0" * 64, "digests": _rows(2, 16)},
}
_TABLES = (CountTable("texts", ("train", "test"), ("texts",), ((9,), (None,))),)
_FORMS = (TableForm("texts", ("train", "test"), ("texts",)),)

SAMPLES: dict[str, Sample] = {
    "hello": Sample(protocol.Hello(run=RUN, recipe="name = 'x'"), protocol.HelloAnswer(**_HELLO)),
    "words": Sample(protocol.Words(run=RUN), protocol.WordsAnswer(**_WORDS)),
    "reveal": Sample(protocol.Reveal(**_REVEAL), protocol.RevealAnswer(site=SITE, words=("烧",))),
    "facts": Sample(protocol.Facts(run=RUN), protocol.FactsAnswer(site=SITE, check="0" * 64, digests=_rows(3, 16))),
    "agree": Sample(protocol.Agree(**_AGREE), protocol.AgreeAnswer(site=SITE, agreed=True)),
    "stage": Sample(protocol.Stage(**_STAGE), protocol.StageAnswer(site=SITE, arrays=(np.zeros(3, np.float32),))),
    "masked": Sample(
        protocol.Masked(**_STAGE, **_MASKED), protocol.MaskedAnswer(site=SITE, arrays=(np.zeros(3, np.uint64),))
    ),
    "roster": Sample(protocol.Roster(run=RUN, **_MASKED), protocol.RosterAnswer(site=SITE, signature=_rows(1, 64)[0])),
    "open": Sample(
        protocol.Open(run=RUN, **_MASKED, signatures=_rows(2, 64)),
        protocol.OpenAnswer(site=SITE, own_key=_rows(1, 32)[0], shared_keys=_rows(1, 32)),
    ),
    "alone": Sample(Alone(run=RUN), AloneAnswer(site=SITE, rounds=2, finished=True)),
    "compare": Sample(
        Compare(run=RUN, what="alone", arrays=(np.zeros(3, np.float32),)), CompareAnswer(site=SITE, **_COMPARED)
    ),
    "finish": Sample(protocol.Finish(run=RUN), protocol.FinishAnswer(site=SITE)),
    "ping": Sample(protocol.Ping(run=RUN), protocol.PingAnswer(site=SITE)),
    "survey": Sample(
        Survey(run=RUN, **_SURVEY), SurveyAnswer(site=SITE, **_COUNTED, tables=_TABLES, show_distance=True)
    ),
    "masked_survey": Sample(
        MaskedSurvey(run=RUN, **_SURVEY, **_MASKED),
        MaskedSurveyAnswer(site=SITE, **_COUNTED, tables=_FORMS, arrays=(np.zeros([2, 2], np.uint64),)),
    ),
    "masked_distance": Sample(
        MaskedDistance(run=RUN, **_MASKED, labels=("a", "b"), texts=9, counts=np.array([5, 4])),
        MaskedDistanceAnswer(site=SITE, arrays=(np.zeros(2, np.uint64),)),
    ),
}
