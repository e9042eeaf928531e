"""The tokenizer of sentence relations as TensorFlow operations: from text to the arrays of a RelationInput."""
