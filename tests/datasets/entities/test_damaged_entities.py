"""Own texts with entities that are damaged at random places: read, or refused in one line that names the file."""

import pytest
from entity_files import json_lines, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datasets.entities.neutral import read
from datasets.errors import DataError

FILES = {
    "a.jsonl": json_lines(
        {"id": "1", "text": "😀 Aspirin", "entities": [[2, 9, "drug"]], "ward": 3},
        {"id": "2", "document": "d", "text": "ulcer", "entities": [{"start": 0, "end": 5, "type": "disease"}]},
    ),
    "a.conll": "-DOCSTART- O\n\n# id = 7\nAspirin\tB-drug\nacid\tI-drug\n\nulcer\tS-disease\n",
    "a.pubtator": "1|t|Aspirin\n1|a|and ulcer\n1\t0\t7\tAspirin\tdrug\tD1\n1\t12\t17\tulcer\tdisease\n1\tCID\tD1\tD2\n",
    "a.ann": "T1\tdrug 2 9\tAspirin\nR1\tof Arg1:T1 Arg2:T2\nT2\tdisease 10 15;16 20\tulcer is\n",
}
TEXT = "😀 Aspirin ulcer\nis"
PIECES = (b"", b'"', b"1", b"{}", b"\t", b"|", b"\n", b"-", b"# ", b" = ", b";", b" ", b"\xff", "\u2028𝄞".encode())


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(tmp_path, name, data):
    write(tmp_path / "a.txt", TEXT)
    path = write(tmp_path / name, FILES[name])
    damaged = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(damaged)))
        damaged[at : data.draw(st.integers(at, min(len(damaged), at + 12)))] = data.draw(st.sampled_from(PIECES))
    path.write_bytes(damaged)
    options = {
        "nested": data.draw(st.sampled_from(["refuse", "outermost"])),
        "unit": data.draw(st.sampled_from(["document", "sentence"])),
        "labelled": data.draw(st.booleans()),
    }
    try:
        corpus = read(path, entity_types=["drug", "disease"], other_types="leave_out", **options)
        assert corpus.samples and (options["labelled"] or not any(sample.spans for sample in corpus.samples))
    except DataError as error:
        message = str(error)
        assert "\n" not in message and str(path) in message and error.remedy, message
