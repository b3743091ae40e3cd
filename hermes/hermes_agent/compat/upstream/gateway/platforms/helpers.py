"""What adapters share. Source: plugin contract §11.2, §11.3."""

from hermes_agent.contracts.platform.markdown import TABLE_SEPARATOR_RE as TABLE_SEPARATOR_RE
from hermes_agent.contracts.platform.markdown import convert_table_to_bullets as convert_table_to_bullets
from hermes_agent.contracts.platform.markdown import redact_phone as redact_phone
from hermes_agent.contracts.platform.markdown import strip_markdown as strip_markdown
from hermes_agent.contracts.platform.seen import MessageDeduplicator as MessageDeduplicator
from hermes_agent.contracts.platform.seen import ThreadParticipationTracker as ThreadParticipationTracker
