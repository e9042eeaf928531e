"""Trains word vectors on IMCS-V2's training sentences: python scripts/word_vectors.py DATA FILE [WIDTH]

FILE is written as word2vec text (`task.vectors_path`, or VECTORS of scripts/reproduce). The 98,529 sentences are those
of IMCS-V2_train.sentences.jsonl, or of IMCS-V2_train.json where that is not there, cut into words by jieba with the
symptom vocabulary. They stand for Chinese-Word2vec-Medicine, the vectors of FLCMC.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from datasets.catalogue import files_there  # noqa: E402
from datasets.dialogues.loading import load_corpus, symptom_vocabulary  # noqa: E402
from datasets.entities.loading import load_entities  # noqa: E402
from datasets.text.segmentation import Segmenter  # noqa: E402
from datasets.text.word_vectors import train_word_vectors  # noqa: E402

WIDTH, EPOCHS = 100, 10


def sentences(data: Path) -> list[str]:
    """The training sentences. Raises `DataError` where neither file is in `data`."""
    if all(files_there("imcs_v2_sentences", data).values()):
        return [sample.text for sample in load_entities("imcs_v2_sentences", data).samples]
    return [sample.text for sample in load_corpus("imcs_v2", data).samples]


def main(data: Path, file: Path, width: int = WIDTH) -> None:
    """Trains and writes the vectors."""
    texts = sentences(data)
    words = Segmenter(symptom_vocabulary("imcs_v2", data)).segment(texts)
    vectors = train_word_vectors(words, width=width, epochs=EPOCHS)
    file.parent.mkdir(parents=True, exist_ok=True)
    vectors.save(file)
    print(f"{file}: vectors of width {width} from {len(texts)} sentences")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
