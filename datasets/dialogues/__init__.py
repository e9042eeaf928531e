"""Readers of Chinese medical dialogues, which return a `TextCorpus`.

A new data set is a file here with `@data_set` (docs/data.md has an example).
"""
