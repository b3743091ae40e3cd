"""What an extension of each kind looks like: one module a kind, the names and signatures are the plugin contract's."""
