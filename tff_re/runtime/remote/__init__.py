"""Workers on other machines, and clients spread over them."""
