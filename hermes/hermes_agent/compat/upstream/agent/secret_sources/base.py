"""Secret sources. Source: plugin contract §8.11, §11.2."""

from hermes_agent.contracts.secret_source import ErrorKind as ErrorKind
from hermes_agent.contracts.secret_source import FetchResult as FetchResult
from hermes_agent.contracts.secret_source import SecretSource as SecretSource
from hermes_agent.contracts.secret_source import is_valid_env_name as is_valid_env_name
