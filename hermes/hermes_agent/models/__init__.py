"""Models: providers, the wire protocol, the choice of one, and the embedded default."""
