"""Document-level relations: readers, candidate pairs, encoding, scoring.

`pubtator` (CDR, CHR, GDA) reads `Document` records; a malformed line is refused with file, line and reason, and what is
irregular in the published files themselves is counted in notes.
"""
