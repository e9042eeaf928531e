"""Federated training in which sites keep their data and answer only the stages of a round."""
