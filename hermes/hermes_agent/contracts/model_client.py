"""Model clients: requests, answers, and providers with a client of their own.

The stream of a client is any number of `TextPart` and then exactly one `ModelAnswer`. A failure is a `ModelError`.
A request with `shows_reasoning` may also get `ReasoningPart`.

The agent makes HTTP requests for a `ProviderProfile`. A `ClientProfile` makes its client itself, for a model that no
URL leads to, such as one in a child process of the agent.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hermes_agent.contracts.model_provider import ProviderProfile
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.messages import Message, Usage

if TYPE_CHECKING:
    from hermes_agent.contracts.command import CliCommand
    from hermes_agent.core.errors import ModelError

__all__ = [
    "ClassifyingClient",
    "ClientProfile",
    "ClientServices",
    "LoadingModel",
    "MakeHttpClient",
    "ModelAnswer",
    "ModelCheck",
    "ModelClient",
    "ModelDelta",
    "ModelRequest",
    "NO_OPTIONS",
    "OfferedModel",
    "ReasoningPart",
    "RequestOptions",
    "SetupHint",
    "TextPart",
    "ToolDefinitions",
    "classify_error",
    "loading_notice",
]


class ToolDefinitions(list[dict[str, Any]]):
    """The tools that a model is offered; the same object as long as they stay the same. It is not changed."""

    encoded: tuple[object, Any] | None = None
    """Their last encoding and its key (`models.wire_protocol`)."""
    tokens: int | None = None
    """Their approximate number of tokens, once it was asked for (`agent.compaction`)."""
    searchable: tuple[str, ...] = ()
    """Names of additional tools, which the model may call once it has found them (`tools.tool_search`)."""


@lazy_dataclass(frozen=True, slots=True)
class RequestOptions:
    """Options of the model requests of a turn; None: as the config and the provider set it.

    An option is sent as it was set, or left out with a notice (`ModelClient.unsupported`).
    """

    max_tokens: int | None = None
    """Longest answer of each request, in tokens; a smaller `model.max_tokens` wins."""
    temperature: float | None = None
    tool_choice: str | Mapping[str, Any] | None = None
    """`none`: no tool is offered. `required` or a function: holds for the first request, so that the turn can end."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Additional options by their names in chat completions: `top_p`, `stop`, `seed`, …"""
    tools: Sequence[dict[str, Any]] = ()
    """Tools of the caller, in the form of chat completions. A call of one ends the turn; the caller runs it."""
    continuation: Sequence[Message] = ()
    """What followed the user message: calls of the caller's tools with their results. The turn continues after it."""

    def values(self) -> dict[str, Any]:
        """Return the options that are set, by their names in chat completions."""
        own = {"max_tokens": self.max_tokens, "temperature": self.temperature, "tool_choice": self.tool_choice}
        return {**{name: value for name, value in own.items() if value is not None}, **self.extra}

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of the caller's tools."""
        return frozenset(tool["function"]["name"] for tool in self.tools)

    def with_tools(self, own: ToolDefinitions) -> ToolDefinitions:
        """Return the agent's tools and those of the caller; the caller's replaces one of the same name."""
        if not self.tools:
            return own
        names = self.tool_names
        both = ToolDefinitions([*(tool for tool in own if tool["function"]["name"] not in names), *self.tools])
        both.searchable = tuple(name for name in own.searchable if name not in names)
        return both

    @property
    def tool_name(self) -> str:
        """The function that `tool_choice` names, or "" if it names none."""
        return (
            ""
            if self.tool_choice is None or isinstance(self.tool_choice, str)
            else self.tool_choice["function"]["name"]
        )

    def over(self, usual: RequestOptions) -> RequestOptions:
        """Return these options, and those of `usual` that are not set here."""
        if usual is NO_OPTIONS:
            return self
        return replace(
            self,
            max_tokens=usual.max_tokens if self.max_tokens is None else self.max_tokens,
            temperature=usual.temperature if self.temperature is None else self.temperature,
            tool_choice=usual.tool_choice if self.tool_choice is None else self.tool_choice,
            extra={**usual.extra, **self.extra},
        )

    def without(self, name: str) -> RequestOptions:
        """Return the options without one."""
        own: dict[str, Any] = {name: None}
        if name in ("max_tokens", "temperature", "tool_choice"):
            return replace(self, **own)
        return replace(self, extra={key: value for key, value in self.extra.items() if key != name})

    def smaller_limit(self, max_tokens: int | None) -> int | None:
        """Return the smaller of this limit and `max_tokens`, or None if neither is set."""
        return min((limit for limit in (self.max_tokens, max_tokens) if limit is not None), default=None)

    def apply_to(self, request: ModelRequest, *, first: bool) -> ModelRequest:
        """Return the request with these options; `first` says that it is the first request of the turn."""
        if self.tool_choice == "none":
            request = replace(request, tools=())
        extra = {**request.extra, **self.extra}
        if first and self.tool_choice not in (None, "auto", "none") and request.tools:
            extra["tool_choice"] = self.tool_choice
        if not request.tools:
            extra.pop("parallel_tool_calls", None)  # refused by providers where no tool is offered
        temperature = request.temperature if self.temperature is None else self.temperature
        limit = self.smaller_limit(request.max_tokens)
        return replace(request, max_tokens=limit, temperature=temperature, extra=extra, options=self)


NO_OPTIONS = RequestOptions()
"""Options of a caller that sets none."""


@lazy_dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model request: the whole conversation, and the tools that the model may call."""

    model: str
    """The provider's name of the model (`gpt-5.2`, `anthropic/claude-sonnet-5`)."""
    messages: Sequence[Message]
    """The system prompt first, then the conversation in order."""
    tools: Sequence[dict[str, Any]] = ()
    """In the form of chat completions: `{"type": "function", "function": {name, description, parameters}}` each."""
    max_tokens: int | None = None
    """Longest answer in tokens; None leaves it to the provider."""
    temperature: float | None = None
    """0 to 2; None leaves it to the provider."""
    session_id: str = ""
    """Session of the request; sent only to providers that have a field for it."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Additional fields in the words of the wire protocol (`response_format`, …).

    A client that speaks no such protocol takes the fields that it knows.
    """
    options: RequestOptions = NO_OPTIONS
    """What the caller of the turn asked for."""
    shows_reasoning: bool = False
    """Whether the stream may have `ReasoningPart`; it changes nothing of what is sent."""

    def without_option(self, name: str) -> ModelRequest:
        """Return the request without an option of its caller."""
        extra = {key: value for key, value in self.extra.items() if key != name}
        changes: dict[str, Any] = {name: None} if name in ("max_tokens", "temperature") else {}
        return replace(self, extra=extra, options=self.options.without(name), **changes)


@lazy_dataclass(frozen=True, slots=True)
class ReasoningPart:
    """A piece of the model's reasoning, in order; it is shown to the user and is no part of the answer."""

    text: str


@lazy_dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of the answer's text, in order; never empty."""

    text: str


@lazy_dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The whole answer: the last item of a stream, exactly once."""

    message: Message
    """The assistant's message: all text that was streamed, and the tool calls in the model's order."""
    finish_reason: str
    """`stop`, `tool_calls`, `length` (the token limit), `content_filter`, or a word of the provider's own."""
    usage: Usage
    """Tokens of this request; zeros if the provider reports none."""
    model: str
    """The model that answered, as the provider names it."""
    provider: str = ""
    """The provider that answered; "" if only one was asked."""
    listed_cost_usd: float | None = None
    """Cost in US dollars by the listed prices; None if no price is known."""


ModelDelta = TextPart | ReasoningPart | ModelAnswer


class ModelClient(Protocol):
    """A client of one provider. One object serves the process, and any number of requests in parallel."""

    provider: str
    """The provider's name in `model.provider`."""
    base_url: str
    """Base URL of its API; "" for a model in a process of this machine."""
    api_mode: str
    """Its wire protocol (plugin contract §8.1)."""
    fits_within: int
    """Tokens to which the client shortens a conversation by itself; 0 if it sends what it is given."""

    @property
    def url(self) -> str:
        """URL of its requests, or "" if there is none to show."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Send a request and yield the answer as it arrives. Closing or cancelling it ends the request.

        Raises:
            ModelError: while it is iterated; text that was yielded before stays valid.
        """
        ...

    def is_priced(self, model: str) -> bool:
        """Return whether the cost of an answer is known, or will be known with the answer; sends no request."""
        ...

    def unsupported(self, model: str, options: RequestOptions) -> tuple[str, str] | None:
        """Return the first option that cannot be sent unchanged, with half a sentence on why, or None."""
        ...

    def warm_up(self) -> None:
        """Import what the first request needs, up to a second of work; called once, in a worker thread."""
        ...

    async def aclose(self) -> None:
        """Close its connections. The client is not used afterwards."""
        ...


class LoadingModel(Protocol):
    """Addition to a `ModelClient` that loads its model at the first request, and again after a pause."""

    def loading_notice(self) -> str:
        """Return a sentence on what the next request waits for, or "" if the model is loaded."""
        ...


def loading_notice(client: ModelClient | LoadingModel) -> str:
    """Return the notice before a request of this client, or ""."""
    notice: Callable[[], str] | None = getattr(client, "loading_notice", None)
    return notice() if notice is not None else ""


class ClassifyingClient(Protocol):
    """Addition to a `ModelClient` that knows the errors of its provider."""

    async def classify_error(self, error: ModelError, model: str) -> Any:
        """Return a mapping with `reason`, as for `transform_api_error_classification`; None changes nothing."""
        ...


async def classify_error(client: ModelClient | ClassifyingClient, error: ModelError, model: str) -> Any:
    """Return what the client makes of a failed request, or None."""
    classify: Callable[[ModelError, str], Awaitable[Any]] | None = getattr(client, "classify_error", None)
    return None if classify is None else await classify(error, model)


class MakeHttpClient(Protocol):
    """Makes a client of a chat-completions server that runs as a child process of the agent."""

    def __call__(self, base_url: str, key: str = "", *, silence_s: float = 120.0) -> ModelClient:
        """Return the client; it opens no connection before its first request, and uses none twice.

        Args:
            base_url: of the API, such as `http://127.0.0.1:8080/v1`. No proxy is used.
            key: sent as a bearer token; "" sends none.
            silence_s: longest wait in seconds for the first byte, and between two pieces of the answer.
        """
        ...


class ClientServices(LazyNamedTuple):
    """The parts of the host that a `ClientProfile` may use."""

    settings: Mapping[str, Any]
    """The block `model.NAME` of the config, where NAME is the provider's name; empty for all but bundled providers."""
    model: str
    """The requested model; "" leaves it to the provider."""
    is_selected: bool
    """Whether the config or the user names this provider."""
    http_client: MakeHttpClient
    load_http: Callable[[], object]
    """Imports the HTTP library, 0.3 s of work; see `ModelClient.warm_up`."""
    mask_message: Callable[[Message], Message]
    """Returns a message with every known secret masked. Apply it before a conversation is shortened."""
    exclusive: Callable[[Path, str], AbstractContextManager[None]]
    """Holds the lock of a file for a task (`pull`) in a `with` block. Raises LockHeld: another process has it."""


class SetupHint(LazyNamedTuple):
    """How a user gets a model of a `ClientProfile`, as one entry of a list of ways."""

    text: str
    """What the provider is and the steps that are missing, several lines; without a number in front."""
    nixos: str = ""
    """Half a sentence on the same with NixOS; "" says nothing."""


class ModelCheck(LazyNamedTuple):
    """A fault that `hermes doctor` reports."""

    text: str
    remedy: str


class OfferedModel(LazyNamedTuple):
    """A model in the list of `hermes model list`."""

    name: str
    is_installed: bool
    summary: str
    """The rest of its line."""
    details: Mapping[str, Any]
    """What `--json` prints."""


@lazy_dataclass
class ClientProfile(ProviderProfile):
    """A provider that brings its own client; the agent sends no request to `base_url`."""

    needs_key: bool = False
    is_free: bool = False
    """Its answers cost nothing."""
    fits_conversations: bool = False
    """Its client shortens a conversation to the context window by itself, so that the agent does not compact it."""
    takes_images: bool = True
    """False: its models see no images, and a request with an image is refused before it is sent."""
    is_small: bool = False
    """Its models are too small to judge commands (`approvals.mode: smart`)."""
    answer_limit_s: float = 120.0
    """Seconds within which its model answers the question of `hermes doctor --ask`."""
    setup_text: str = ""
    """What `hermes setup` says of it in its list; "": it is in the list only if its model can answer already."""
    download_text: str = ""
    """Size of what `prepare` fetches, such as `1.1 GB`."""

    def find_model(self, services: ClientServices) -> str:
        """Return the name of the model that would answer, or "" if none can.

        Raises:
            ConfigError: `services.model` is set, the provider is selected, and it has no such model.
        """
        raise NotImplementedError

    def make_client(self, services: ClientServices) -> ModelClient:
        """Return the client; it starts nothing before its first request."""
        raise NotImplementedError

    def setup_hint(self, services: ClientServices) -> SetupHint | None:
        """Return how to get a model of this provider, for the error that none is configured, or None."""
        return None

    def prepare(self, services: ClientServices) -> None:
        """Fetch what its model needs to answer, for `hermes setup`; prints its progress.

        Raises:
            UserError: it cannot be fetched; the text says why.
        """

    def check(self, services: ClientServices) -> Iterable[ModelCheck]:
        """Return the problems of its model, for `hermes doctor`; called if none is selected."""
        return ()

    def offered_models(self, services: ClientServices) -> Sequence[OfferedModel]:
        """Return the models that it can run or fetch, for `hermes model list`."""
        return ()

    def actions(self, services: Callable[[], ClientServices]) -> Sequence[CliCommand]:
        """Return its actions of `hermes model`; `services` reads the config when it is called.

        Only those of bundled providers are added. An action returns its exit status, or None for success.
        """
        return ()
