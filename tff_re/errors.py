"""Errors that a user can correct: one line that names the file or key and the remedy, exit code 2."""

from datasets.errors import nearest

__all__ = ["Diverged", "UserError", "nearest"]


class UserError(Exception):
    """The message is the line that the command line prints."""


class Diverged(UserError):
    """No client of a round had a finite update."""
