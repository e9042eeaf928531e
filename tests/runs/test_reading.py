"""Reading the files of a run's folder needs no TensorFlow."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tff_re.runs.reading import csv_rows


def test_it_imports_no_tensorflow():
    code = "import sys, tff_re.runs.reading; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_rows_of_a_text():
    assert csv_rows('a,b\r\n1,"x\r\ny"\r\n') == [["a", "b"], ["1", "x\r\ny"]]
    with pytest.raises(ValueError):
        csv_rows('a,"b\n')
