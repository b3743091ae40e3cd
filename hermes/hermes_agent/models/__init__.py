"""Language models: providers, wire protocols, selection, fallback, prices."""
