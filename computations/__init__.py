"""Federated computations: local training, aggregation, server updates and the algorithms composed of them.

Nothing here knows a data set, a file or a command line; everything is a value that a TFF execution context can run.
"""
