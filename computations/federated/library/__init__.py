"""What TensorFlow Federated has on top of the language, for a stack without it: with its names, types and states.

Only the names of the language are used (`computations.federated.core`), so that on TFF's stack each part is tested
against TFF's own.
"""
