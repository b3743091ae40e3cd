"""The embedded model as a model provider: weights on this machine, which answer without a key.

The weights run in a child process (`server_process.py`), so that a crash in native code, or the kernel when memory runs
out, ends that process and not the agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_agent.contracts.model_client import (
    ClientProfile,
    ClientServices,
    ModelCheck,
    ModelClient,
    OfferedModel,
    SetupHint,
)
from hermes_agent.core.errors import ConfigError

if TYPE_CHECKING:
    from hermes_agent.contracts.command import CliCommand

    from .availability import LocalModelAvailability


@dataclass
class EmbeddedModel(ClientProfile):
    """The provider `local`; a method imports what it needs, since most starts select another provider."""

    def find_model(self, services: ClientServices) -> str:
        """Return the name of the weights that would answer (see `ClientProfile.find_model`)."""
        from .weights import PINS

        model = services.model
        if services.is_selected and model and model not in PINS and not services.settings.get("path"):
            raise ConfigError(
                f"model.default: {model!r} is no name of an embedded model",
                hint=f"Known: {', '.join(PINS)}. A file of your own: `hermes config set model.local.path FILE`.",
            )
        found = _find(services)
        return found.model if found.is_usable else ""

    def make_client(self, services: ClientServices) -> ModelClient:
        """Return the client; its process starts with the first request."""
        from .availability import choose_context, system_place, writes_tool_calls
        from .client import LocalModelClient
        from .server import LocalServerSettings
        from .weights import state_folder

        found = _find(services)
        names = ("threads", "idle_s")
        given = {name: services.settings[name] for name in names if services.settings.get(name) is not None}
        settings = LocalServerSettings(
            found.path,
            found.model,
            context_length=choose_context(found, int(services.settings.get("context_length") or 0)),
            writes_tool_calls=writes_tool_calls(found, str(services.settings.get("tool_calls") or "auto")),
            system_place=system_place(found),
            state_dir=state_folder(),
            **given,
        )
        return LocalModelClient(services, settings)

    def setup_hint(self, services: ClientServices) -> SetupHint:
        """Return the steps that are missing until it answers."""
        from .availability import describe_setup

        return describe_setup(_find(services))

    def prepare(self, services: ClientServices) -> None:
        """Fetch the default weights, as `hermes model pull` does."""
        from .commands import pull_default

        pull_default(services)

    def check(self, services: ClientServices) -> Iterable[ModelCheck]:
        """Return what half an installation lacks."""
        from .availability import find_faults

        return find_faults(_find(services), is_selected=services.is_selected)

    def offered_models(self, services: ClientServices) -> Sequence[OfferedModel]:
        """Return the weights that `hermes model pull` fetches."""
        from .commands import list_weights

        return list_weights()

    def actions(self, services: Callable[[], ClientServices]) -> Sequence[CliCommand]:
        """Return `hermes model pull`, `path`, `status` and `remove`."""
        from .commands import make_commands

        return make_commands(services)


def _find(services: ClientServices) -> LocalModelAvailability:
    from .availability import check_availability

    return check_availability(services.settings, services.model)


PROFILE = EmbeddedModel(
    name="local",
    display_name="the embedded model",
    description="The embedded model, in a child process of this machine",
    aliases=("embedded",),
    is_free=True,
    fits_conversations=True,
    takes_images=False,
    is_small=True,
    answer_limit_s=600.0,
    setup_text="runs on this machine, needs no key",
    download_text="1.1 GB",
)
