"""Small documents, built by hand."""

from datasets.documents.pairs import PairRule, document_corpus
from datasets.documents.records import Document, EntityMention, Fact

CDR = PairRule((("Chemical", "Disease"),), ("CID",))
CHR = PairRule((("ChemMet", "ChemMet"),), ("React",))
KINDS = {"C": "Chemical", "D": "Disease", "M": "ChemMet"}


def document(document_id, title, abstract, mentions, facts=(), relation="CID"):
    """A document; `mentions` are (words, occurrence from 0, identifiers separated by blanks).

    The first letter of a mention's identifiers gives its type.
    """
    text = f"{title} {abstract}"
    entity_mentions = []
    for words, occurrence, ids in mentions:
        start = -1
        for _ in range(occurrence + 1):
            start = text.index(words, start + 1)
        kind = KINDS[ids[0]] if ids else "Chemical"
        entity_mentions.append(EntityMention(start, start + len(words), kind, tuple(ids.split())))
    entity_mentions.sort(key=lambda mention: (mention.start, mention.end))
    return Document(
        document_id, text, len(title), tuple(entity_mentions), tuple(Fact(h, relation, t) for h, t in facts)
    )


def worked(document_id="7", **options):
    """Two sentences, C1 with two mentions, a composite mention of D1 and D2, one of D2 inside of it, one unlinked."""
    return document(
        document_id,
        "ab causes bad ce.",
        "Then ab ends.",
        [("ab", 0, "C1"), ("bad ce", 0, "D1 D2"), ("ce", 0, "D2"), ("ab", 1, "C1"), ("ends", 0, "")],
        facts=[("C1", "D2")],
        **options,
    )


def corpus(*documents, rule=CDR, name="toy", **options):
    return document_corpus(documents or (worked(),), rule, name=name, **options)
