"""Send without a gateway: what `standalone_sender_fn` of most platforms does. Source: plugin contract §8.2.1.

The settings of one platform, said once: key, variable, type, default. Source: plugin contract §8.2.1.

From it come `env_enablement_fn`, `is_connected`, `validate_config`, `setup_fn`, `required_env`, an adapter's values.
"""

from __future__ import annotations

import getpass
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_agent.config import hermes_home, home_paths, load
from hermes_agent.config.dotenv import read_env_file, write_env_value
from hermes_agent.config.home import HomePaths
from hermes_agent.core.errors import UserError
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
        make: makes an adapter of a `PlatformConfig`.
        begin, end: the adapter's methods that make it ready to send, and end that; sync or async.
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
        except Exception as exc:  # noqa: BLE001 - whoever asked is told
            return {"success": False, "error": f"{type(exc).__name__}: {exc}"}
        finally:
            await _await_result(getattr(adapter, end)() if end else None)

    return send_alone


def standalone_attempt(
    make: Callable[[Any], Any], begin: str, end: str = ""
) -> Callable[[Any], Coroutine[Any, Any, Any]]:
    """Return an `attempt_fn`: connect with a config, and disconnect; it raises what the adapter raises.

    What `begin` returns is what the attempt returns.

    Args:
        make, begin, end: as those of `sender`.
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
    """Send a text, cut as the platform needs it, and the files that may be sent; return what became of the last part.

    Args:
        adapter: ready to send.
        media_files: path, and whether it is a voice message, of each.

    Raises:
        Exception: whatever the adapter raises.
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


class Option(NamedTuple):
    """One setting: `platforms.<name>.<key>`, or a variable, which wins."""

    key: str
    env: str = ""
    default: Any = ""
    """Its type is the setting's: text, int, float, bool, or a list of texts (in a variable, with commas)."""
    required: bool = False
    ask: str = ""
    """What setup asks; empty: it does not."""
    secret: bool = False


class Options:
    """The settings of the platform `name`; `<NAME>_HOME_CHANNEL` is one of each.

    Args:
        home_env: the variable of the home channel, where it has another name.
    """

    def __init__(self, name: str, *options: Option, home_env: str = "") -> None:
        self.name, self.options = name, options
        self.home_env = home_env or f"{name.upper()}_HOME_CHANNEL"

    @property
    def required_env(self) -> list[str]:
        """The variables of what it cannot do without."""
        return [option.env for option in self.options if option.required and option.env]

    def made(self, adapter_class: Callable[[], Any], config: Any) -> Any:
        """Return an adapter with what a config says of these settings; `adapter_class` imports its class."""
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
        """Register a platform with these settings.

        Args:
            adapter_class: imports and returns the adapter's class, made with a config and the settings.
            alone: the adapter's methods that make it ready to send without a gateway, and end that (`alone.sender`).
            attempt: those that connect as `attempt_fn` does, and disconnect; those of `alone` where they say whether
                the account is good.
            sdk: modules without which it cannot work; the extra that brings them has the platform's name.
            fields: further keywords of `ctx.register_platform`; `label` at least.
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
        """Return what the environment says, for `PlatformConfig.extra`; None when it says nothing."""
        found: dict[str, Any] = {o.key: os.environ[o.env] for o in self.options if o.env and os.environ.get(o.env)}
        home = os.environ.get(self.home_env, "").strip()
        if found and home:
            thread = os.environ.get(f"{self.home_env}_THREAD_ID", "").strip() or None
            name = os.environ.get(f"{self.home_env}_NAME", "").strip() or "Home"
            found["home_channel"] = {"chat_id": home, "name": name, "thread_id": thread}
        return found or None

    def read(self, config: Any) -> SimpleNamespace:
        """Return every setting, as an attribute of its type.

        Args:
            config: the `PlatformConfig`; `token` is also looked for in its field of that name.

        Raises:
            ValueError: one is missing, or of another type; the text names it.
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
        """Say whether what it cannot do without is there."""
        try:
            self.read(config)
        except ValueError as exc:
            logger.debug("%s", exc)
            return False
        return True

    def is_valid(self, config: Any) -> bool:
        """Say whether the settings can be used; the log says what is wrong."""
        try:
            self.read(config)
        except ValueError as exc:
            logger.warning("%s", exc)
            return False
        return True

    def ask(self) -> None:
        """Ask at the terminal for what has a question: `setup_fn`. Secrets go into `.env`, the rest into the config.

        Raises:
            UserError: the home is Nix's, or a value cannot be kept.
        """
        where = home_paths(hermes_home())
        if where.declared is not None:
            raise UserError(
                f"nothing is written: this home is configured by Nix, platforms.{self.name} with it",
                hint="Settings are given with services.hermes-agent.settings, secrets with its environmentFiles.",
            )
        present = {**(load(hermes_home()).values.get("platforms", {}).get(self.name) or {}), **(self.seed() or {})}
        for option in (one for one in self.options if one.ask and one.env):
            value = self._asked(option, present.get(option.key))
            if value is not None:
                self._keep(option, value, where)

    def _asked(self, option: Option, present: Any) -> Any:
        """Return the answer as a value of the option's type; None where it stays as it is."""
        shown = (
            "as it is" if option.secret and present else _display_value(option.default if present is None else present)
        )
        question = f"  {option.ask} (empty: {shown}): "
        while said := (getpass.getpass(question) if option.secret else input(question)).strip():
            try:
                return self._typed(option, said)
            except ValueError as exc:
                print(f"  {exc}.")
        return None

    def _keep(self, option: Option, value: Any, where: HomePaths) -> None:
        if option.secret:
            write_env_value(where.env, option.env, value)
            os.environ[option.env] = value
            print(f"  {option.env} is stored in {where.env}.")
            return
        from hermes_agent.config.edit import set_value  # only a setup writes

        path = set_value(hermes_home(), ("platforms", self.name, option.key), value)
        print(f"  platforms.{self.name}.{option.key} is stored in {path}.")
        if option.env in read_env_file(where.env):  # of an earlier setup; it would win
            write_env_value(where.env, option.env, None)
            os.environ.pop(option.env, None)
            print(f"  {option.env} is removed from {where.env}.")
        if os.environ.get(option.env):
            print(f"  {option.env} of the environment wins over it: unset it there.")

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
    """Return a value as the setup shows it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return text or "none"
