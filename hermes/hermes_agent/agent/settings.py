"""What every conversation is made with: the model, and what the operator set; its hard caps end a turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_agent.models.client_pool import ChosenModel
from hermes_agent.models.request import ModelClient
from hermes_agent.policy import SmartApproval
from hermes_agent.sessions import UsageTotals

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation


logger = logging.getLogger(__name__)

REFUSE, WARN = "refuse", "warn"
"""Values of `limits.unknown_price`, beside a price."""
PRICE_REMEDY = (
    "`limits.unknown_price` takes a price in dollars for a million tokens (0 for a model that costs nothing), or `warn`"
    " to go on without counting it; `hermes model list PROVIDER` fetches the prices of a provider that tells them."
)
JOB_PLATFORM = "cron"
"""The front door of scheduled jobs; a run has a session of its own."""


class UsageLimits(NamedTuple):
    """0 sets no limit. Tokens are input and output together, whoever caused them."""

    session_tokens: int = 0
    session_usd: float = 0.0
    job_tokens: int = 0
    job_usd: float = 0.0
    day_tokens: int = 0
    day_usd: float = 0.0
    unknown_price: str | float = REFUSE
    """What a cap in dollars makes of a model without a known price: `refuse`, `warn`, or dollars a million tokens."""

    @property
    def price(self) -> float:
        """Dollars a million tokens of calls whose price is unknown; 0 where the operator set none."""
        return 0.0 if isinstance(self.unknown_price, str) else float(self.unknown_price)

    @property
    def refuses_unpriced(self) -> bool:
        """Whether a model without a known price is not asked where a cap in dollars holds."""
        return self.unknown_price == REFUSE


def read_limits(settings: Mapping[str, Any]) -> UsageLimits:
    """Return what the block `limits` of the config sets."""
    return UsageLimits(**{name: value or 0 for name, value in settings.items()})


class UsageCap(NamedTuple):
    """One of them, with whose usage it looks at (arguments of `Transcript.spent`)."""

    name: str
    subject: str
    tokens: int
    usd: float
    usage_filter: dict[str, str]
    price: float = 0.0
    """Dollars a million tokens of calls whose price is unknown."""

    def sentence(self, spent: UsageTotals) -> str:
        """Return the sentence that ends the turn when it is reached; empty when it is not."""
        if 0 < self.tokens <= spent.tokens:
            unit, used, limit = "tokens", f"{spent.tokens:,} tokens", f"{self.tokens:,}"
        elif 0 < self.usd <= (cost := spent.cost_at(self.price)):
            unit, used, limit = "usd", f"${cost:.2f}", f"${self.usd:.2f}"
        else:
            return ""
        when = " today" if self.name == "day" else ""
        key = f"limits.{self.name}_{unit}"
        return f"I stopped: {self.subject} has used {used}{when}, and the operator's limit is {limit} (`{key}`)."


def usage_caps(limits: UsageLimits, of_session: dict[str, str], platform: str) -> list[UsageCap]:
    """Return those that are set.

    Args:
        of_session: whose usage counts for the session; empty for none.
        platform: the front door of the session.
    """
    if not any(limits[:-1]):
        return []
    job = platform == JOB_PLATFORM and bool(of_session)
    found = [
        UsageCap("session", "this session", limits.session_tokens, limits.session_usd, of_session),
        UsageCap("job", "this job", limits.job_tokens * job, limits.job_usd * job, of_session),
        UsageCap("day", "the agent", limits.day_tokens, limits.day_usd, {"day": date.today().isoformat()}),
    ]
    return [cap._replace(price=limits.price) for cap in found if cap.usage_filter and (cap.tokens or cap.usd)]


def find_unpriced(limits: UsageLimits, found: Sequence[UsageCap], client: ModelClient, model: str) -> str:
    """Return half a sentence: which cap in dollars cannot be kept since a model's price is unknown; empty for none."""
    cap = next((cap for cap in found if cap.usd), None)
    if cap is None or not isinstance(limits.unknown_price, str) or client.is_priced(model):
        return ""
    return unpriced_sentence(model, client.provider, f"limits.{cap.name}_usd")


def unpriced_sentence(model: str, provider: str, key: str) -> str:
    """Return half a sentence on a cap that cannot be kept."""
    name = model or "the first model of the list"
    return f"the price of {name} of {provider} is unknown, so `{key}` cannot be kept"


def price_refusal(limits: UsageLimits, found: Sequence[UsageCap], client: ModelClient, model: str) -> str:
    """Return the sentence that ends a turn when a model may not be asked at an unknown price; empty when it may."""
    why = find_unpriced(limits, found, client, model) if limits.refuses_unpriced else ""
    return f"I stopped: {why}. {PRICE_REMEDY}" if why else ""


def turn_caps(talk: Conversation, turn_id: str) -> list[UsageCap]:
    """Return the caps that hold for a turn."""
    of_session = {"session_id": talk.account} if talk.account else {"turn_id": turn_id}
    return usage_caps(talk.agent.settings.limits, of_session, talk.platform)


def uncounted_notice(talk: Conversation, turn_id: str) -> str:
    """Return a notice, once for a conversation and a model: its calls do not count for the caps in dollars."""
    limits = talk.agent.settings.limits
    if limits.unknown_price != WARN or talk.uncounted_model == (talk.provider, talk.model):
        return ""
    why = find_unpriced(limits, turn_caps(talk, turn_id), talk.chosen.client, talk.model)
    if not why:
        return ""
    talk.uncounted_model = (talk.provider, talk.model)
    logger.warning("%s: its calls are not counted", why)
    return f"{why[:1].upper()}{why[1:]}: its calls are not counted."


async def reached_cap(talk: Conversation, turn_id: str) -> str:
    """Return the sentence that ends the turn when a cap is reached; empty when none is."""
    found = turn_caps(talk, turn_id)
    for cap in found:
        if sentence := cap.sentence(await talk.agent.call_transcript("spent", **cap.usage_filter)):
            return sentence
    return price_refusal(talk.agent.settings.limits, found, talk.chosen.client, talk.model)


ChooseModel = Callable[[str | None], ChosenModel]
"""Returns the model for a wish (None: as configured). Raises UserError when there is none."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What the operator set for every conversation."""

    max_turns: int = 90
    """Model steps of one turn before the last answer is asked for."""
    max_turn_tokens: int = 0
    """Tokens of one turn before the last answer is asked for; 0 sets no limit."""
    notice_after: int = 3
    """Identical calls in a row that bring a notice to the model; 0 never does."""
    end_after: int = 5
    """Identical calls in a row that end the turn; 0 never does."""
    max_verify_nudges: int = 3
    """Times that `pre_verify` may send the model back to work in one turn."""
    api_max_retries: int = 3
    """Repetitions of a request that failed for the moment."""
    approval_timeout_s: float = 60.0
    approvals_off: bool = False
    """Nobody is asked about anything."""
    smart: SmartApproval | None = None
    """Looks at questions before a person does."""
    limits: UsageLimits = field(default_factory=UsageLimits)
    cwd: Path = Path()
    """Where tools work, resolved; the one default of every session."""


class CompressionSettings(NamedTuple):
    """The settings under `compression`."""

    enabled: bool = True
    threshold: float = 0.5
    """Part of the context at which it starts."""
    target_ratio: float = 0.2
    """Part of the context that the messages may take that stay as they are at the end."""
    protect_first_n: int = 3
    protect_last_n: int = 20
