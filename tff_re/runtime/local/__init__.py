"""TFF's C++ worker on this machine, which we start, watch and stop."""
