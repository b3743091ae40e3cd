"""The subcommands of `hermes`; each module declares its arguments and imports its work when it runs."""
