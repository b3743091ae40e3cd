"""The config: its schema, the files of a home, validation and editing.

`schema.json` declares every key. `config.load` returns the effective values, `Config.settings` has them with types,
`config.edit` changes a file,
`config.check` reports on files, and `config.reference` writes the reference page.
"""

from hermes_agent.config.home import hermes_home, home_paths, make_home, stamp
from hermes_agent.config.load import Config, load
from hermes_agent.config.settings import Settings, plain, section
from hermes_agent.config.yaml_document import ConfigFinding

__all__ = [
    "Config",
    "ConfigFinding",
    "Settings",
    "hermes_home",
    "load",
    "make_home",
    "home_paths",
    "plain",
    "section",
    "stamp",
]
