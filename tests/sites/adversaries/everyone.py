"""All adversaries. A new class of tricks is listed here."""

from __future__ import annotations

from tests.sites.adversaries import comparisons, coordinator, masked_surveys, masks, site, surveys, wire, words

OF_COORDINATORS = (
    *(coordinator.AboutStages, coordinator.AboutTheSetUp, masks.AboutMasks, words.AboutWords),
    *(surveys.AboutSurveys, masked_surveys.AboutMaskedSurveys, comparisons.AboutComparisons),
)
OF_SITES = (
    *(site.AboutSums, site.AboutTheSetUp, site.AboutFacts, site.AboutMaskedSums),
    *(surveys.AboutSurveyAnswers, masked_surveys.AboutMaskedSurveyAnswers, comparisons.AboutOwnModels),
)
OF_BYTES = (wire.AnyQuestion, wire.AnyAnswer)
