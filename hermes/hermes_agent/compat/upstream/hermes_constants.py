"""Where the home is. Source: plugin contract §11.3."""

from hermes_agent.compat.paths import display_hermes_home as display_hermes_home
from hermes_agent.compat.paths import find_node_executable as find_node_executable
from hermes_agent.compat.paths import get_default_hermes_root as get_default_hermes_root
from hermes_agent.compat.paths import get_hermes_dir as get_hermes_dir
from hermes_agent.compat.paths import get_hermes_home as get_hermes_home
from hermes_agent.compat.paths import with_hermes_node_path as with_hermes_node_path
