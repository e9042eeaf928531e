"""What a recipe may add to a run, a file for each feature; `order.py` has them in their order."""
