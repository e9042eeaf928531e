"""Distantly supervised data: readers, the aligner of documents with a knowledge base, planted noise, arrays.

`nyt10` and `mirgene` read OpenNRE's JSON lines, `alignment` labels one's own documents by one's own knowledge base
`planted` makes sentences whose truth is known; each gives a `BagCorpus`. A malformed line is
refused with file, line and reason; what a reader did to a file that is whole is said in the corpus's notes.
"""

from datasets.bags.records import NEGATIVE, BagCorpus, BagSentence

__all__ = ["NEGATIVE", "BagCorpus", "BagSentence"]
