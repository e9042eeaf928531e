"""`partition`: which client holds which examples."""

from __future__ import annotations

import click

from tff_re.cli import options
from tff_re.cli.display import console, say_written


@click.command(epilog=options.example("python -m tff_re.run partition flcmc-shipped-fedpap --out runs/partition"))
@click.argument("recipe")
@options.overrides
@options.data
@options.trust
@options.seed
@options.path_option("--out", help="Folder for partition.json, the heatmap, and of documents tables and pictures.")
def partition(recipe, overrides, data, trust, seed, out):
    """Show which client holds which examples under RECIPE, without training."""
    from tff_re import api

    data_paths = api.data_paths(data, trust)
    from datasets.partition import write_partition
    from tff_re.report.document_spread import documents_table, write_documents
    from tff_re.report.heatmaps import partition_heatmap
    from tff_re.report.partition_table import partition_table
    from tff_re.runs.experiment import ExperimentBuilder
    from tff_re.runs.folder import writing

    prepared = ExperimentBuilder(data_paths).prepare(api.load_recipe(recipe, *overrides, seed=seed))
    console.print(partition_table(prepared.counts))
    if prepared.documents is not None:
        console.print(documents_table(prepared.documents.rows))
    for note in prepared.notes:
        console.print(f"note: {note}", highlight=False)
    if out is None:
        return
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        picture = out / "partition.png"
        counts = prepared.counts
        partition_heatmap(picture, counts.train, counts.clients, counts.label_names)
        written = [picture]
        if prepared.partition is not None:
            written.append(write_partition(prepared.partition, out / "partition.json"))
        if prepared.documents is not None:
            written += write_documents(out, prepared.documents)
    say_written(written)
