"""Exports: a trained model as files that take raw text, and predictions and scores from such files."""
