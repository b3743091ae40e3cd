"""The plugins that upstream's wheel carries, as a user's plugins: `make compat` compares what they register."""
