"""From raw documents to facts: entities are recognised, linked to a terminology, paired, and their relations predicted.

Models come in as objects (`records.EntityRecogniser`, an exported model of relations); `tff_re.api.extract` loads them.
"""
