"""Tasks by name.

What a task declares is in `task.py`.
"""

from computations.registry import FileRegistry

TASKS = FileRegistry(__name__, "TASK")
"""Name -> `Task`, of the files here that declare one (`TASK = …`)."""
