"""From files to records to clients' encoded examples; knows no model and no federated computation."""
