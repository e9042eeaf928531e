"""Readers of Chinese medical dialogues; each gives a `TextCorpus`.

A new data set is a file here with `@data_set` (docs/data.md has an example).
"""
