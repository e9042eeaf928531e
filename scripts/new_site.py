"""Writes the texts of the suite entities-new-site: python scripts/new_site.py DATA FOLDER

Nine hospitals hold the sentences of CDR's training abstracts, and a new site 100 of NCBI disease's training
sentences, all with diseases only (FOLDER/train.jsonl; FOLDER/new.jsonl has the new site's). NCBI disease's dev
sentences are the new site's test texts (FOLDER/test.jsonl).
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from datasets.entities.loading import load_entities  # noqa: E402
from datasets.entities.records import EntitySample  # noqa: E402
from datasets.entities.writing import to_json_lines  # noqa: E402
from datasets.files import write_atomically  # noqa: E402

HOSPITALS = 9
SENTENCES = 100
TYPES = ("Disease",)


def at(site: str, samples: Iterable[EntitySample]) -> list[EntitySample]:
    """The samples, with the field `site`."""
    return [dataclasses.replace(sample, more={**sample.more, "site": site}) for sample in samples]


def main(data: Path, folder: Path) -> None:
    """Writes both files; raises `DataError` where a corpus is not in `data`."""
    rng = np.random.default_rng(0)
    cdr = load_entities("cdr_entities", data, entity_types=TYPES, unit="sentence").samples
    documents = sorted({sample.document_id for sample in cdr})
    hospital = dict(zip(documents, rng.permutation(len(documents)) % HOSPITALS, strict=True))
    train = []
    for number in range(HOSPITALS):
        train += at(f"cdr-{number}", (sample for sample in cdr if hospital[sample.document_id] == number))
    ncbi = load_entities("ncbi_disease", data).samples
    new = at("new", (ncbi[i] for i in sorted(rng.choice(len(ncbi), SENTENCES, replace=False))))
    test = at("new", load_entities("ncbi_disease", data, split="dev").samples)
    folder.mkdir(parents=True, exist_ok=True)
    for name, samples in {"train": [*train, *new], "new": new, "test": test}.items():
        write_atomically(folder / f"{name}.jsonl", to_json_lines(samples).encode())
    print(f"{folder}: {len(train)} sentences at {HOSPITALS} hospitals, {len(new)} at the new site, {len(test)} to test")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
