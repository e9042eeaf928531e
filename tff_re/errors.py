"""Errors that a user can correct: one line that names the file or key and the remedy, exit code 2."""


class UserError(Exception):
    """The message is the line that the command line prints."""


def nearest(name: str, valid) -> str:
    """ "did you mean 'x'?" for the nearest valid name, else the list of the valid names."""
    import difflib

    valid = sorted(str(v) for v in valid)
    close = difflib.get_close_matches(str(name), valid, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return "valid: " + ", ".join(valid)
