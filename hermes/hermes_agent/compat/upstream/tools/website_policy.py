"""Sites that the operator forbids. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.addresses import check_website_access as check_website_access
