"""Files replaced as a whole, variables as values. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.json_files import atomic_json_write as atomic_json_write
from hermes_agent.compat.json_files import atomic_replace as atomic_replace
from hermes_agent.compat.variables import env_bool as env_bool
from hermes_agent.compat.variables import env_float as env_float
from hermes_agent.compat.variables import env_int as env_int
from hermes_agent.compat.variables import env_var_enabled as env_var_enabled
