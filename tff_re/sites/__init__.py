"""Training where the data are: sites keep their files and answer stages of a round; nothing else leaves them."""
