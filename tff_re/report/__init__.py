"""Tables and pictures made from plain numbers, without TensorFlow."""
