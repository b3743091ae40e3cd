"""The settings of a memory plugin. Source: plugin contract §11.1."""

from hermes_agent.contracts.memory_settings import FLAT_JSON as _flat_json
from hermes_agent.contracts.memory_settings import KIND_BOOL as KIND_BOOL
from hermes_agent.contracts.memory_settings import KIND_JSON as KIND_JSON
from hermes_agent.contracts.memory_settings import KIND_NUMBER as KIND_NUMBER
from hermes_agent.contracts.memory_settings import KIND_SECRET as KIND_SECRET
from hermes_agent.contracts.memory_settings import KIND_SELECT as KIND_SELECT
from hermes_agent.contracts.memory_settings import KIND_TEXT as KIND_TEXT
from hermes_agent.contracts.memory_settings import ProviderConfigSchema as ProviderConfigSchema
from hermes_agent.contracts.memory_settings import ProviderField as ProviderField
from hermes_agent.contracts.memory_settings import ProviderFieldOption as ProviderFieldOption

STORAGE_FLAT_JSON = _flat_json
STORAGE_HONCHO_HOST_BLOCK = "honcho_host_block"
