"""Settings of conversations: limits of turns and subagents, usage caps, compaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from datetime import date
from pathlib import Path

from hermes_agent.config.settings import Settings, section
from hermes_agent.contracts.model_client import ModelClient
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.models.client_pool import ChosenModel
from hermes_agent.models.model_routes import RouteQuestion
from hermes_agent.policy import SmartApproval
from hermes_agent.policy.approval_transport import SelectedTransport
from hermes_agent.sessions import UsageTotals

REFUSE, WARN = "refuse", "warn"
"""Values of `limits.unknown_price` that are no price."""
PRICE_REMEDY = (
    "`limits.unknown_price` takes a price in dollars for a million tokens (0 for a model that costs nothing), or `warn`"
    " to go on without counting it; `hermes model list PROVIDER` fetches the prices of a provider that tells them."
)
WARN_SHARE = 0.8
"""Share of a cap at which the user gets a notice."""
JOB_PLATFORM = "cron"
"""The platform of scheduled jobs; a run has a session of its own."""


class UsageLimits(LazyNamedTuple):
    """Usage limits of the operator; 0 sets none. Tokens count input and output, for any cause."""

    session_tokens: int = 0
    session_usd: float = 0.0
    job_tokens: int = 0
    job_usd: float = 0.0
    day_tokens: int = 0
    day_usd: float = 0.0
    unknown_price: str | float = REFUSE
    """How a cap in dollars treats a model without a known price: `refuse`, `warn`, or dollars for a million tokens."""

    @property
    def price(self) -> float:
        """Dollars for a million tokens of requests without a known price; 0 if the operator set none."""
        return 0.0 if isinstance(self.unknown_price, str) else float(self.unknown_price)

    @property
    def refuses_unpriced(self) -> bool:
        """Whether a model without a known price gets no request where a cap in dollars holds."""
        return self.unknown_price == REFUSE


def read_limits(settings: Settings) -> UsageLimits:
    """Return the limits of the config block `limits`."""
    return section(UsageLimits, settings.limits)


class UsageCap(LazyNamedTuple):
    """One usage limit, and the usage that counts for it (arguments of `Transcript.usage`)."""

    name: str
    subject: str
    tokens: int
    usd: float
    usage_filter: dict[str, str]
    price: float = 0.0
    """Dollars for a million tokens of requests without a known price."""

    def sentence(self, spent: UsageTotals) -> str:
        """Return the sentence that ends the turn when the cap is reached, or ""."""
        found = self._used(spent, 1.0)
        return f"I stopped: {found[0]}, and the operator's limit is {found[1]}." if found else ""

    def warning(self, spent: UsageTotals) -> str:
        """Return the notice that most of the cap is used (`WARN_SHARE`), or ""."""
        found = self._used(spent, WARN_SHARE)
        return f"{found[0][:1].upper()}{found[0][1:]} of the operator's limit of {found[1]}." if found else ""

    def _used(self, spent: UsageTotals, share: float) -> tuple[str, str] | None:
        """Return clauses with usage and limit if this share of the cap is used."""
        if 0 < self.tokens * share <= spent.tokens:
            unit, used, limit = "tokens", f"{spent.tokens:,} tokens", f"{self.tokens:,}"
        elif 0 < self.usd * share <= (cost := spent.cost_at(self.price)):
            unit, used, limit = "usd", f"${cost:.2f}", f"${self.usd:.2f}"
        else:
            return None
        when = " today" if self.name == "day" else ""
        return f"{self.subject} has used {used}{when}", f"{limit} (`limits.{self.name}_{unit}`)"


def usage_caps(limits: UsageLimits, of_session: dict[str, str], platform: str) -> list[UsageCap]:
    """Return the caps that are set.

    Args:
        of_session: the usage that counts for the session; empty for none.
        platform: the platform of the session.
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
    """Return a clause that names the cap in dollars which a model of unknown price breaks, or ""."""
    cap = next((cap for cap in found if cap.usd), None)
    if cap is None or not isinstance(limits.unknown_price, str) or client.is_priced(model):
        return ""
    return unpriced_sentence(model, client.provider, f"limits.{cap.name}_usd")


def unpriced_sentence(model: str, provider: str, key: str) -> str:
    """Return a clause: the cap `key` cannot be kept because the price of a model is unknown."""
    name = model or "the first model of the list"
    return f"the price of {name} of {provider} is unknown, so `{key}` cannot be kept"


def price_refusal(limits: UsageLimits, found: Sequence[UsageCap], client: ModelClient, model: str) -> str:
    """Return the sentence that ends a turn when a model of unknown price is not allowed, or ""."""
    why = find_unpriced(limits, found, client, model) if limits.refuses_unpriced else ""
    return f"I stopped: {why}. {PRICE_REMEDY}" if why else ""


ChooseModel = Callable[[str | None], ChosenModel]
"""Returns the requested model, or for None the configured one. Raises UserError if there is none."""


RouteModel = Callable[[RouteQuestion], tuple[str, ChosenModel | None]]
"""Returns the id of a rule of `model.routes`, and its model, or None if no rule applies."""


@lazy_dataclass(frozen=True, slots=True)
class AgentSettings:
    """Settings of the operator for every conversation."""

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
    """Retries of a request after a temporary failure."""
    approval_timeout_s: float = 60.0
    approvals_off: bool = False
    """No approval is requested."""
    smart: SmartApproval | None = None
    """Decides approval requests before the user sees them."""
    transport: SelectedTransport | None = None
    """Asks the user in another way, if the operator selected one."""
    limits: UsageLimits = field(default_factory=UsageLimits)
    cwd: Path = Path()
    """Default working directory of sessions, resolved."""


@lazy_dataclass(frozen=True, slots=True)
class SubagentPolicy:
    """Limits of a subagent."""

    id: str
    depth: int
    """1 for a subagent of a conversation that is no subagent."""
    max_turns: int
    withheld: frozenset[str]
    """Names of tools that it does not get."""
    account: str
    """Id of the user's session, to which its model requests are charged."""


class CompressionSettings(LazyNamedTuple):
    """The settings under `compression`."""

    enabled: bool = True
    threshold: float = 0.5
    """Share of the context window at which compaction starts."""
    target_ratio: float = 0.2
    """Share of the context window for the last messages, which stay unchanged."""
    protect_first_n: int = 3
    protect_last_n: int = 20
