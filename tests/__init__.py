"""The tests. A package, so that pytest puts the project's root on the path and not this folder with its `datasets/`."""
