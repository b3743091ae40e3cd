"""`state.db`: opening it, migrations, restore points, upkeep. Each owner brings its tables as a `Schema`."""

from hermes_agent.store.database import Database
from hermes_agent.store.migrations import Schema

__all__ = ["Database", "Schema"]
