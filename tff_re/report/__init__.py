"""From plain numbers to tables and pictures; knows no TensorFlow."""
