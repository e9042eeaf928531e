"""Readers of Chinese medical dialogues; each gives a `TextCorpus`."""
