"""`python -m hermes_agent` is the command `hermes`."""

from hermes_agent.app.main import main

if __name__ == "__main__":
    raise SystemExit(main())
