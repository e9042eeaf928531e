"""The start without messages, and the end without any."""

import subprocess
import sys

SCRIPT = """
import sys, types
from tff_re.quiet import be_quiet

framework = types.SimpleNamespace(SyncContext=object, set_default_context=lambda context: print("dropped"))
sys.modules["tensorflow_federated"] = types.SimpleNamespace(framework=framework)
for _ in range(3):
    be_quiet()
"""


def test_the_end_looks_for_the_default_context_once():
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert ended.stdout == "dropped\n" and not ended.stderr
