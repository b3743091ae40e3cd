"""`state.db`: opening, migrations, restore points, maintenance.

Each owner brings its tables as a `Schema`.
"""

from hermes_agent.store.database import Database
from hermes_agent.store.migrations import Schema

__all__ = ["Database", "Schema"]
