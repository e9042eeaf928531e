"""From plain numbers to tables and pictures; knows no TensorFlow."""

from tff_re.report.csv_files import csv_text
from tff_re.report.documents import documents_png, documents_table, entropy_png, write_documents
from tff_re.report.plots import confusion_png, curves, partition_heatmap, run_curves
from tff_re.report.precision_recall import (
    Points,
    precision_recall_png,
    precision_recall_table,
    read_precision_recall,
    write_precision_recall,
)
from tff_re.report.similarity import RankCorrelations, first_and_last, rank_correlations, similarity_figure
from tff_re.report.tables import partition_table

__all__ = [
    "Points",
    "RankCorrelations",
    "confusion_png",
    "csv_text",
    "curves",
    "documents_png",
    "documents_table",
    "entropy_png",
    "first_and_last",
    "partition_heatmap",
    "partition_table",
    "precision_recall_png",
    "precision_recall_table",
    "rank_correlations",
    "read_precision_recall",
    "run_curves",
    "similarity_figure",
    "write_documents",
    "write_precision_recall",
]
