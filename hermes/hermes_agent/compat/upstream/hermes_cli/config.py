"""Config and `.env`. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.paths import get_hermes_home as get_hermes_home
from hermes_agent.compat.settings import atomic_config_write as atomic_config_write
from hermes_agent.compat.settings import cfg_get as cfg_get
from hermes_agent.compat.settings import fast_safe_load as fast_safe_load
from hermes_agent.compat.settings import get_config_path as get_config_path
from hermes_agent.compat.settings import get_env_value as get_env_value
from hermes_agent.compat.settings import load_config as load_config
from hermes_agent.compat.settings import load_config_readonly as load_config_readonly
from hermes_agent.compat.settings import read_raw_config as read_raw_config
from hermes_agent.compat.settings import save_config as save_config
from hermes_agent.compat.settings import save_env_value as save_env_value
from hermes_agent.compat.settings import write_platform_config_field as write_platform_config_field
