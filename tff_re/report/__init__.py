"""From plain numbers to tables and pictures; knows no TensorFlow."""

from tff_re.report.comparison import (
    ComparisonRow,
    Difference,
    MetricSummary,
    class_csv,
    class_markdown,
    comparison_csv,
    comparison_markdown,
    comparison_rich,
    paired_difference,
)
from tff_re.report.plots import confusion_png, curves, partition_heatmap, run_curves
from tff_re.report.similarity import RankCorrelations, first_and_last, rank_correlations, similarity_figure
from tff_re.report.tables import partition_table

__all__ = [
    "ComparisonRow",
    "Difference",
    "MetricSummary",
    "RankCorrelations",
    "class_csv",
    "class_markdown",
    "comparison_csv",
    "comparison_markdown",
    "comparison_rich",
    "confusion_png",
    "curves",
    "first_and_last",
    "paired_difference",
    "partition_heatmap",
    "partition_table",
    "rank_correlations",
    "run_curves",
    "similarity_figure",
]
