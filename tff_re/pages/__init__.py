"""One HTML page of a run or of a comparison, from its folder alone; imports no TensorFlow."""
