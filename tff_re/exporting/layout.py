"""The names of an export's files and folders."""

from __future__ import annotations

FORMAT = "tff-re export"
FORMAT_VERSION = 2
"""The version that is written and read: one with digests of its files."""

DESCRIPTION_FILE, LABELS_FILE, ENCODING_FILE = "export.json", "labels.json", "encoding.json"
CARD_FILE = "README.md"
TRAINING_DIGESTS_FILE = "training_digests.json"
KERAS_FILE, TFLITE_FILE, ONNX_FILE = "model.keras", "model.tflite", "model.onnx"
SAVED_MODEL_FOLDER, FLOAT16_FOLDER = "saved_model", "saved_model_float16"
HUGGINGFACE_FOLDER = "huggingface"
TOKENIZER_FILE = "tokenizer.json"
"""As the library tokenizers writes it."""

DEFAULT_SIGNATURE = "serving_default"

REMEDY = "export the model again or copy the whole folder"
"""For a file that is missing or damaged."""
