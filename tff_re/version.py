"""The version of this project, read by setup.cfg and by `tff-re --version`."""

__version__ = "0.1.0"
