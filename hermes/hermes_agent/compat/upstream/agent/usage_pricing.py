"""Tokens and what they cost. Source: plugin contract §11.1."""

from hermes_agent.compat.usage_pricing import CanonicalUsage as CanonicalUsage
from hermes_agent.compat.usage_pricing import CostResult as CostResult
from hermes_agent.compat.usage_pricing import PricingEntry as PricingEntry
from hermes_agent.compat.usage_pricing import estimate_usage_cost as estimate_usage_cost
from hermes_agent.compat.usage_pricing import get_pricing_entry as get_pricing_entry
from hermes_agent.compat.usage_pricing import normalize_usage as normalize_usage
