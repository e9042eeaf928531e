"""One HTML page of a run or of a comparison, made only from its folder and without TensorFlow."""
