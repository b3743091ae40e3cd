"""`hermes setup`: set up an empty home, up to the first answer."""
