"""Errors that a user can correct: one line that names the file or key and the remedy, exit code 2."""

from datasets.errors import nearest

__all__ = ["UserError", "nearest"]


class UserError(Exception):
    """The message is the line that the command line prints."""
