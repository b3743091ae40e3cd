"""Upstream's own tests, run against the import names that this project serves: `make upstream-tests DIR=…`."""
