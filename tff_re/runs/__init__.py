"""One run: from a recipe to the folder with its checkpoints, metrics and model."""
