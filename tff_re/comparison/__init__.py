"""Several algorithms on the same partitions and seeds: suites, statistics, tables, reports."""
