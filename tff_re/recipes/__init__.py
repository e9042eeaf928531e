"""Recipes and suites: the TOML files that come with the project, and the code that reads and checks them."""
