"""Features whose packages may be missing. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.extras import FeatureUnavailable as FeatureUnavailable
from hermes_agent.compat.extras import ensure as ensure
from hermes_agent.compat.extras import ensure_and_bind as ensure_and_bind
from hermes_agent.compat.extras import feature_missing as feature_missing
