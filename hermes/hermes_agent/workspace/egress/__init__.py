"""The network of commands: one of its own for each task, and a broker that alone leads out of it."""
