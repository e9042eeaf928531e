"""Texts with marked entities, for entity recognition: records, readers, tags, encoding and scoring.

A reader is one file with `@data_set(…, kind="entities")`; `loading.load_entities` finds it by name.
"""
