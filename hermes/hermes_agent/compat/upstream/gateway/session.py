"""Where a message comes from. Source: plugin contract §8.2.3, §11.2."""

from hermes_agent.contracts.platform.source import SessionSource as SessionSource
from hermes_agent.contracts.platform.source import build_session_key as build_session_key
