"""The config: its schema, the files of a home, and what is wrong with them.

`schema.json` is the truth about every key. `load` gives the effective values; `hermes_agent.config.edit` changes
a file, `hermes_agent.config.check` reports on one; `hermes_agent.config.reference` writes the docs' key list.
"""

from hermes_agent.config.home import hermes_home, home_paths, make_home, stamp
from hermes_agent.config.load import Config, load
from hermes_agent.config.yaml_document import ConfigFinding

__all__ = [
    "Config",
    "ConfigFinding",
    "hermes_home",
    "load",
    "make_home",
    "home_paths",
    "stamp",
]
