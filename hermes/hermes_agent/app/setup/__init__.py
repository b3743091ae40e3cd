"""`hermes setup`: from an empty home to the first answer."""
