"""What TensorFlow Federated adds to the language, with its names, types and states, for a stack without it.

Only the names of the language are used (`computations.federated.core`), so that on TFF's stack each part is tested
against TFF's own.
"""
