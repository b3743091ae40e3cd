"""The subcommands of `hermes`, a module each; `add` declares the arguments, the work is imported when it runs."""
