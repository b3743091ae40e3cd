"""Services for providers that bring their own client, and the error that no model is configured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.config.settings import Settings, plain
from hermes_agent.contracts.model_client import ClientProfile, ClientServices, ModelClient, SetupHint
from hermes_agent.core.errors import EXIT_USAGE, LockHeld, UserError

if TYPE_CHECKING:
    from hermes_agent.core.messages import Message


def client_services(
    profile: ClientProfile, block: Any, *, model: str = "", is_selected: bool = False
) -> ClientServices:
    """Return what a profile gets.

    Args:
        block: `model` of the config: a name, or a mapping with the provider's settings under its name.
        model: the requested model.
        is_selected: whether the config or the user names the provider.
    """

    def http_client(base_url: str, key: str = "", *, silence_s: float = 120.0) -> ModelClient:
        from hermes_agent.models.client import HttpModelClient  # a start sends no request, and needs no protocol
        from hermes_agent.models.http_transport import HttpTimeouts
        from hermes_agent.models.providers import ModelEndpoint, provider_from_profile

        endpoint = ModelEndpoint(provider_from_profile(profile), base_url, key)
        return HttpModelClient(endpoint, HttpTimeouts(first_byte_s=silence_s, idle_s=silence_s), is_child=True)

    settings = block.get(profile.name) if isinstance(block, Mapping) else None
    return ClientServices(settings or {}, model, is_selected, http_client, _load_http, _mask_message, _exclusive)


def configured_services(profile: ClientProfile, settings: Settings) -> ClientServices:
    """Return what a profile gets for the model that the config names."""
    model = settings.model
    is_selected = model.provider.strip().lower() in (profile.name, *profile.aliases)
    return client_services(profile, plain(model), model=model.default, is_selected=is_selected)


_WITHOUT = """\
`hermes setup` asks step by step. These work without a model, a key and a network:
  hermes config, plugins, skills, tools, sessions, state, cron, profile, import, logs, completion
  hermes doctor --offline (what is missing), hermes self docs (the documentation), hermes --help"""


def missing_model_error(hints: Iterable[SetupHint | None], *, wanted: str = "") -> UserError:
    """Return the error that no model is configured, with every way to get one.

    Args:
        hints: of the providers that bring a client.
        wanted: the model that was named, which no configured provider can have; "" if none was named.
    """
    what = (
        f"The model {wanted!r} is named, but no provider that could have it is set up."
        if wanted
        else "There is no model."
    )
    known = [hint for hint in hints if hint is not None]
    ways = [
        "A provider with a key:\n     hermes config set model.provider openrouter\n"
        "     hermes config set model.default NAME\n"
        "     and OPENROUTER_API_KEY=… in the environment, a credential or $HERMES_HOME/.env",
        "A server of your own (Ollama, llama.cpp, vLLM):\n"
        "     hermes config set model.base_url http://127.0.0.1:11434/v1\n     hermes config set model.default NAME",
        *(hint.text for hint in known),
    ]
    numbered = "\n".join(f"  {number}. {way}" for number, way in enumerate(ways, 1))
    nixos = "; ".join(
        [
            "set `services.hermes-agent.settings.model` (a key goes into `credentials`)",
            *(h.nixos for h in known if h.nixos),
        ]
    )
    hint = f"Ways to get one:\n{numbered}\nOn NixOS {nixos}.\n{_WITHOUT}"
    return UserError(what, hint=hint, exit_status=EXIT_USAGE)


def _load_http() -> object:
    from hermes_agent.models.http_transport import load_http  # as above

    return load_http()


def _mask_message(message: Message) -> Message:
    from hermes_agent.core.redaction import mask_message  # the command line sends no message

    return mask_message(message)


@contextmanager
def _exclusive(path: Path, task: str) -> Iterator[None]:
    from hermes_agent.system.locks import FileLock  # only a download takes a lock

    lock = FileLock.for_file(path)
    if not lock.try_acquire():
        raise LockHeld(
            f"Another {task} of {path.name} is running (process {lock.holder() or 'unknown'}).",
            hint="Wait until it has ended.",
        )
    with lock:
        yield
