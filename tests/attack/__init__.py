"""Attacks on the running program, and the table that `make attack` prints of them."""
