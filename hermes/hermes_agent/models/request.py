"""What is asked of a model, and what comes back: the types between a turn and any provider.

A client's stream is any number of `TextPart` and then exactly one `ModelAnswer`; a failure is a `ModelError`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from hermes_agent.core.messages import Message, Usage


class ToolDefinitions(list[dict[str, Any]]):
    """The tools that a model is shown; one object as long as they stay the same. Nobody changes it."""

    encoded: tuple[object, Any] | None = None
    """What they were last encoded as, and for whom (`models.encoding`)."""
    searchable: tuple[str, ...] = ()
    """Names of further ones that the model may call once it has found them (`tools.search`)."""


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What a caller sets for the model requests of one turn; what is None is left to the config and the provider.

    An option is sent as the caller said it, or the turn is refused (`ModelClient.unsupported`).
    """

    max_tokens: int | None = None
    """Longest answer of each request; a smaller `model.max_tokens` goes before it."""
    temperature: float | None = None
    tool_choice: str | Mapping[str, Any] | None = None
    """`none`: no tool is offered; `required`, or a function: holds for the first request, so that the turn can end."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further ones in the words of chat completions: `top_p`, `stop`, `seed`, …"""

    def values(self) -> dict[str, Any]:
        """Return those that are set, by their names in chat completions."""
        own = {"max_tokens": self.max_tokens, "temperature": self.temperature, "tool_choice": self.tool_choice}
        return {**{name: value for name, value in own.items() if value is not None}, **self.extra}

    @property
    def tool_name(self) -> str:
        """The function that `tool_choice` names; empty when it names none."""
        return (
            ""
            if self.tool_choice is None or isinstance(self.tool_choice, str)
            else self.tool_choice["function"]["name"]
        )

    def smaller_limit(self, max_tokens: int | None) -> int | None:
        """Return the smaller limit of this one and `max_tokens`; None when there is neither."""
        return min((limit for limit in (self.max_tokens, max_tokens) if limit is not None), default=None)

    def apply_to(self, request: ModelRequest, *, first: bool) -> ModelRequest:
        """Return a request of the turn with them. `first`: it is the first one."""
        extra = {**request.extra, **self.extra}
        if first and self.tool_choice not in (None, "auto", "none") and request.tools:
            extra["tool_choice"] = self.tool_choice
        if not request.tools:
            extra.pop("parallel_tool_calls", None)  # refused where there are no tools
        temperature = request.temperature if self.temperature is None else self.temperature
        limit = self.smaller_limit(request.max_tokens)
        return replace(request, max_tokens=limit, temperature=temperature, extra=extra, options=self)


NO_OPTIONS = RequestOptions()
"""The caller sets nothing."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request: the whole conversation and what the model may call."""

    model: str
    """The provider's name of the model (`gpt-5.2`, `anthropic/claude-sonnet-5`)."""
    messages: Sequence[Message]
    """The system prompt first, then the conversation in order."""
    tools: Sequence[dict[str, Any]] = ()
    """Chat-completions form: `{"type": "function", "function": {name, description, parameters}}` each."""
    max_tokens: int | None = None
    """Longest answer in tokens; None leaves it to the provider."""
    temperature: float | None = None
    """0 to 2; None leaves it to the provider."""
    session_id: str = ""
    """Which session asks; not sent to a provider that has no field for it."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request in the wire's own words (`response_format`, …). A client without a wire of that
    kind takes those that it knows."""
    options: RequestOptions = NO_OPTIONS
    """What of it the caller of the turn asked for: that is sent, or the request fails."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of the answer's text, in order; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The whole answer: the last item of a stream, exactly once."""

    message: Message
    """The assistant's message: all text that was streamed, and the tool calls in the model's order."""
    finish_reason: str
    """`stop`, `tool_calls`, `length` (the token limit), `content_filter`, or the provider's own word."""
    usage: Usage
    """Tokens of this request; zeros when the provider did not say."""
    model: str
    """Which model answered, as the provider names it."""
    provider: str = ""
    """Who answered; empty where only one can have."""
    listed_cost_usd: float | None = None
    """What it costs by the prices of the provider's list or the table; None when neither has it."""


ModelDelta = TextPart | ModelAnswer


class ModelClient(Protocol):
    """A provider that answers requests. One object serves the process, any number of requests at once."""

    provider: str
    """Its name in `model.provider`."""
    base_url: str
    """Where it is; empty when it lives in this machine's processes."""
    api_mode: str
    """How it is spoken to (plugin contract §8.1)."""
    fits_within: int
    """Tokens to which it makes a conversation fit by itself; 0 when it sends what it is given."""

    @property
    def url(self) -> str:
        """Where its requests go; empty when that is nobody's business."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        """Ask, and yield the answer as it comes. Closing or cancelling the iterator ends the request.

        Raises:
            ModelError: while it is iterated; what was yielded before it stays valid text.
        """
        ...

    def is_priced(self, model: str) -> bool:
        """Say whether it is known what an answer of a model costs, or will be with the answer; asks nobody."""
        ...

    def unsupported(self, model: str, options: RequestOptions) -> tuple[str, str] | None:
        """Return the first option that cannot be sent as it is, and half a sentence why; None when all can."""
        ...

    def warm_up(self) -> None:
        """Import what the first request needs, up to a second of work; called once, in a worker thread."""
        ...

    async def aclose(self) -> None:
        """Close its connections. It is not used afterwards."""
        ...
