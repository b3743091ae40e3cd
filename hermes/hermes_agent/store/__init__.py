"""`state.db`: opening it, its migrations, one writer. Each owner brings its own tables as a `Schema`."""

from hermes_agent.store.database import Database, Schema

__all__ = ["Database", "Schema"]
