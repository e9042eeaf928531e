"""From files to records to clients' encoded examples, without any model or federated computation."""
