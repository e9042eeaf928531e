"""All adversaries. A new class of tricks is listed here."""

from __future__ import annotations

from tests.sites.adversaries import coordinator, masks, site, wire, words

OF_COORDINATORS = (coordinator.AboutStages, coordinator.AboutTheSetUp, masks.AboutMasks, words.AboutWords)
OF_SITES = (site.AboutSums, site.AboutTheSetUp, site.AboutFacts, site.AboutMaskedSums)
OF_BYTES = (wire.AnyQuestion, wire.AnyAnswer)
