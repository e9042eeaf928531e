"""What a recipe may add to a run, with one file for each feature.

`order.py` has the features in their order.
"""
