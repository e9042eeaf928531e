"""`export`: a run as a model that takes raw text."""

from __future__ import annotations

from pathlib import Path

import click

from tff_re.cli import options
from tff_re.cli.display import say


@click.command(epilog=options.example("python -m tff_re.run export runs/first --quantise float16"))
@click.argument("run", type=click.Path(path_type=Path))
@options.path_option("--out", help="Folder to write [default: RUN/export].")
@click.option("--overwrite", is_flag=True, help="Replace an older export.")
@click.option(
    "--format",
    "formats",
    type=click.Choice(["both", "keras", "saved_model"]),
    default="both",
    show_default=True,
    help="What to write.",
)
@click.option("--quantise", type=click.Choice(["float16"]), help="Write a second SavedModel with weights in 16 bits.")
@click.option("--tflite", is_flag=True, help="Write model.tflite too: encoded inputs, weights in 8 bits.")
@click.option("--onnx", is_flag=True, help="Write model.onnx too: encoded inputs, the tokenizer next to it.")
@click.option("--huggingface", is_flag=True, help="Write a folder of the encoder too that transformers loads.")
@click.option("--adapter-only", is_flag=True, help="Write only the adapter, as safetensors [default: RUN/adapter].")
@click.option(
    "--training-digests/--no-training-digests",
    default=None,
    help="Write digests of the training and dev texts, by which `evaluate` says which examples of a file were seen "
    "[default: only of public data sets].",
)
@options.last
@options.data
@options.trust
@options.runtime
def export(run, out, **how):
    """Export RUN as a model (.keras and SavedModel) that takes raw text, with a model card."""
    from tff_re import api

    folder = api.export(run, out, **how)
    written = ", ".join(f"{path.name}/" if path.is_dir() else path.name for path in sorted(folder.iterdir()))
    say(f"written: {folder} ({written})")
