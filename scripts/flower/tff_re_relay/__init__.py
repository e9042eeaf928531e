"""Flower apps that carry the messages of tff-re. They read nothing of them, and need neither TensorFlow nor tff-re."""
