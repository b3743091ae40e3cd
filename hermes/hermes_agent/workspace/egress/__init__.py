"""The network of commands: a namespace for each session, and brokers as the only way out."""
