"""Declaration of a platform's settings: key, variable, type, default; and sending without a gateway.

`Options` provides `env_enablement_fn`, `is_connected`, `validate_config`, `setup_fn`, `required_env` and the settings
of the adapter. `standalone_sender` provides `standalone_sender_fn`. Source: plugin contract §8.2.1.
"""

from __future__ import annotations

import getpass
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from hermes_agent.config import hermes_home, home_paths, load
from hermes_agent.config.dotenv import read_env_file, write_env_value
from hermes_agent.config.home import HomePaths
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.system.installation import install_hint

if TYPE_CHECKING:
    from hermes_agent.adapters.base import BasePlatformAdapter
    from hermes_agent.adapters.events import SendResult

__all__ = ["Option", "Options", "send_standalone", "standalone_attempt", "standalone_sender"]


def standalone_sender(
    make: Callable[[Any], Any], begin: str, end: str = ""
) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Return a `standalone_sender_fn`.

    Args:
        make: returns an adapter for a `PlatformConfig`.
        begin, end: names of the adapter methods before and after sending; sync or async.
    """

    async def send_alone(
        config: Any,
        chat_id: str,
        message: str,
        *,
        thread_id: str | None = None,
        media_files: Iterable[tuple[str, bool]] | None = None,
        force_document: bool = False,
    ) -> dict[str, Any]:
        adapter = make(config)
        try:
            await _await_result(getattr(adapter, begin)())
            return await send_standalone(
                adapter, chat_id, message, media_files, thread_id=thread_id, force_document=force_document
            )
        except Exception as exc:  # noqa: BLE001 - the error goes into the result
            return {"success": False, "error": f"{type(exc).__name__}: {exc}"}
        finally:
            await _await_result(getattr(adapter, end)() if end else None)

    return send_alone


def standalone_attempt(
    make: Callable[[Any], Any], begin: str, end: str = ""
) -> Callable[[Any], Coroutine[Any, Any, Any]]:
    """Return an `attempt_fn`: connect with a config, then disconnect; exceptions of the adapter pass.

    Its result is that of the method `begin`.

    Args:
        make, begin, end: as for `standalone_sender`.
    """

    async def attempt(config: Any) -> Any:
        adapter = make(config)
        try:
            return await _await_result(getattr(adapter, begin)())
        finally:
            await _await_result(getattr(adapter, end)() if end else None)

    return attempt


async def _await_result(value: Any) -> Any:
    return await value if isinstance(value, Awaitable) else value


async def send_standalone(
    adapter: BasePlatformAdapter,
    chat_id: str,
    message: str,
    media_files: Iterable[tuple[str, bool]] | None = None,
    *,
    thread_id: str | None = None,
    force_document: bool = False,
) -> dict[str, Any]:
    """Send a text in parts and the files that may be sent; return the result of the last part.

    Args:
        adapter: an adapter that is ready to send.
        media_files: path, and whether it is a voice message.

    Raises:
        Exception: any exception of the adapter.
    """
    metadata = {"thread_id": thread_id} if thread_id else None
    result: SendResult | None = None
    limit = getattr(adapter, "MAX_MESSAGE_LENGTH", 4096)
    for part in adapter.truncate_message(message, limit, adapter.message_len_fn):
        result = await adapter.send(chat_id, part, metadata=metadata) if part.strip() else result
    for path, is_voice in adapter.filter_media_delivery_paths(list(media_files or ())):
        send = adapter.send_voice if is_voice and not force_document else adapter.send_document
        result = await send(chat_id, path, metadata=metadata)
    if result is None:
        return {"success": False, "error": "there is nothing to send"}
    return {"success": result.success, "message_id": result.message_id, "error": result.error}


logger = logging.getLogger(__name__)

_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


class Option(LazyNamedTuple):
    """A setting: `platforms.<name>.<key>`, or an environment variable, which wins."""

    key: str
    env: str = ""
    default: Any = ""
    """Determines the type: text, int, float, bool, or list of texts (in a variable: separated by commas)."""
    required: bool = False
    ask: str = ""
    """Question of the setup; empty: the setup does not ask."""
    secret: bool = False


class Options:
    """Settings of the platform `name`, including `<NAME>_HOME_CHANNEL`.

    Args:
        home_env: another variable for the home channel.
    """

    def __init__(self, name: str, *options: Option, home_env: str = "") -> None:
        self.name, self.options = name, options
        self.home_env = home_env or f"{name.upper()}_HOME_CHANNEL"

    @property
    def required_env(self) -> list[str]:
        """Variables of the required settings."""
        return [option.env for option in self.options if option.required and option.env]

    def made(self, adapter_class: Callable[[], Any], config: Any) -> Any:
        """Return an adapter with these settings of a config; `adapter_class` imports its class."""
        return adapter_class()(config, self.read(config))

    def register(
        self,
        ctx: Any,
        adapter_class: Callable[[], Any],
        *,
        alone: Sequence[str] = (),
        attempt: Sequence[str] = (),
        sdk: Sequence[str] = (),
        **fields: Any,
    ) -> None:
        """Register the platform.

        Args:
            adapter_class: imports and returns the class of the adapter; its arguments are the config and the settings.
            alone: names of the adapter methods before and after sending without a gateway (`standalone_sender`).
            attempt: names of the methods that connect as `attempt_fn` and disconnect; default: `alone`.
            sdk: required modules; the extra with the name of the platform installs them.
            fields: other keywords of `ctx.register_platform`, at least `label`.
        """
        make = partial(self.made, adapter_class)
        if alone:
            fields["standalone_sender_fn"] = standalone_sender(make, *alone)
        if attempt or alone:
            fields["attempt_fn"] = standalone_attempt(make, *(attempt or alone))
        name, upper = self.name, self.name.upper()
        if not all(map(find_spec, sdk)):
            fields["install_hint"] = install_hint(name)
        values = {
            "name": name,
            "adapter_factory": make,
            "check_fn": lambda: all(find_spec(module) for module in sdk),
            "validate_config": self.is_valid,
            "is_connected": self.is_set,
            "required_env": self.required_env,
            "setup_fn": self.ask,
            "env_enablement_fn": self.seed,
            "allowed_users_env": f"{upper}_ALLOWED_USERS",
            "allow_all_env": f"{upper}_ALLOW_ALL_USERS",
            "cron_deliver_env_var": self.home_env,
        }
        ctx.register_platform(**values | fields)

    def seed(self) -> dict[str, Any] | None:
        """Return the settings of the environment for `PlatformConfig.extra`; None if there are none."""
        found: dict[str, Any] = {o.key: os.environ[o.env] for o in self.options if o.env and os.environ.get(o.env)}
        home = os.environ.get(self.home_env, "").strip()
        if found and home:
            thread = os.environ.get(f"{self.home_env}_THREAD_ID", "").strip() or None
            name = os.environ.get(f"{self.home_env}_NAME", "").strip() or "Home"
            found["home_channel"] = {"chat_id": home, "name": name, "thread_id": thread}
        return found or None

    def read(self, config: Any) -> SimpleNamespace:
        """Return all settings as attributes of their types.

        Args:
            config: the `PlatformConfig`; its fields `token` and `api_key` count, too.

        Raises:
            ValueError: a setting is missing or of another type; the message names it.
        """
        extra: Mapping[str, Any] = getattr(config, "extra", None) or {}
        values = {}
        for option in self.options:
            given = extra.get(option.key)
            if given is None and option.key in ("token", "api_key"):
                given = getattr(config, option.key, None)
            values[option.key] = option.default if given is None else self._typed(option, given)
            if option.required and not values[option.key]:
                either = f", or the variable {option.env}" if option.env else ""
                raise ValueError(f"platforms.{self.name}.{option.key} is not set{either}")
        return SimpleNamespace(**values)

    def is_set(self, config: Any) -> bool:
        """Return whether all required settings are set."""
        return self._can_read(config, logging.DEBUG)

    def is_valid(self, config: Any) -> bool:
        """Return whether the settings are valid; otherwise log the reason."""
        return self._can_read(config, logging.WARNING)

    def _can_read(self, config: Any, level: int) -> bool:
        try:
            self.read(config)
        except ValueError as exc:
            logger.log(level, "%s", exc)
            return False
        return True

    def ask(self) -> None:
        """Ask for the settings in the terminal: `setup_fn`. Secrets go to `.env`, others to the config.

        Raises:
            UserError: the home is managed by Nix, or a value cannot be stored.
        """
        where = home_paths(hermes_home())
        if where.declared is not None:
            raise UserError(
                f"cannot write platforms.{self.name}: this home is managed by Nix",
                hint="Use services.hermes-agent.settings for settings, and environmentFiles for secrets.",
            )
        present = {**(load(hermes_home()).settings.platforms.get(self.name) or {}), **(self.seed() or {})}
        for option in (item for item in self.options if item.ask and item.env):
            value = self._asked(option, present.get(option.key))
            if value is not None:
                self._keep(option, value, where)

    def _asked(self, option: Option, present: Any) -> Any:
        """Return the answer as a value of the option's type; None to keep the present value."""
        shown = (
            "keep it" if option.secret and present else _display_value(option.default if present is None else present)
        )
        question = f"  {option.ask} (empty: {shown}): "
        while answer := (getpass.getpass(question) if option.secret else input(question)).strip():
            try:
                return self._typed(option, answer)
            except ValueError as exc:
                print(f"  {exc}.")
        return None

    def _keep(self, option: Option, value: Any, where: HomePaths) -> None:
        if option.secret:
            write_env_value(where.env, option.env, value)
            os.environ[option.env] = value
            print(f"  {option.env} is stored in {where.env}.")
            return
        from hermes_agent.config.edit import set_value  # only the setup writes

        path = set_value(hermes_home(), ("platforms", self.name, option.key), value)
        print(f"  platforms.{self.name}.{option.key} is stored in {path}.")
        if option.env in read_env_file(where.env):  # written by an earlier setup; it would win
            write_env_value(where.env, option.env, None)
            os.environ.pop(option.env, None)
            print(f"  {option.env} is removed from {where.env}.")
        if os.environ.get(option.env):
            print(f"  {option.env} is set in the environment and overrides this. Unset it.")

    def _typed(self, option: Option, given: Any) -> Any:
        default, text = option.default, str(given).strip()
        try:
            if isinstance(default, bool):
                if text.lower() not in (*_YES, *_NO):
                    raise ValueError
                return text.lower() in _YES
            if isinstance(default, (list, tuple)):
                items = given if isinstance(given, (list, tuple)) else text.split(",")
                return [str(item).strip() for item in items if str(item).strip()]
            return type(default)(text)
        except ValueError:
            kind = {bool: "true or false", int: "a whole number", float: "a number"}[type(default)]
            raise ValueError(f"platforms.{self.name}.{option.key} is {given!r}: expected {kind}") from None


def _display_value(value: Any) -> str:
    """Return a value in the form that the setup shows."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return text or "none"
