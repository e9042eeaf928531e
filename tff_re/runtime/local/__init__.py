"""TFF's C++ worker on this machine, started, watched and stopped by us."""
