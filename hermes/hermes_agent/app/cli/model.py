"""`hermes model` and `hermes auth`: models of providers, and keys and tokens for them.

`model` lists models, and has the actions that bundled providers add. `auth` stores keys and tokens in `auth.json`.
"""

from __future__ import annotations

import argparse
import functools
import sys
from typing import TYPE_CHECKING, Any

from hermes_agent.app.cli.command import (
    JSON,
    Args,
    CliSubcommand,
    activity,
    argument,
    exclusive,
    loaded_host,
    print_json,
)
from hermes_agent.config import hermes_home, load
from hermes_agent.contracts.model_client import ClientProfile, ClientServices
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, UserError
from hermes_agent.models.bundled import bundled_client_profiles
from hermes_agent.models.client_profiles import configured_services

if TYPE_CHECKING:
    from hermes_agent.credentials.logins import Login, LoginStore
    from hermes_agent.credentials.oauth import OAuthClient
    from hermes_agent.host import Host
    from hermes_agent.models.providers import ModelProvider


REFRESH = argument(
    "--refresh", action="store_true", help="request the list from the provider, even if a recent one is stored"
)

model_command = CliSubcommand(
    "model", "list the models of providers; fetch, check and remove the models of this machine"
)


def add_model(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `hermes model` to the command line, with the actions that bundled providers bring."""
    _add_provider_actions()
    model_command.add(subparsers)


@functools.cache
def _add_provider_actions() -> None:
    for profile in bundled_client_profiles():
        for command in profile.actions(functools.partial(_services, profile)):
            model_command.add_command(command)


def _services(profile: ClientProfile) -> ClientServices:
    return configured_services(profile, load(hermes_home()).settings)


@model_command.action(
    "list",
    "list the models of a provider; without PROVIDER, those of this machine",
    argument("provider", nargs="?", default="", metavar="PROVIDER", help="name of the provider"),
    REFRESH,
    JSON,
)
def _list_models(args: Args) -> int:
    profiles = bundled_client_profiles()
    if args.provider and not any(args.provider.lower() in (p.name, *p.aliases) for p in profiles):
        return _list_provider_models(args)
    offered = [model for profile in profiles for model in profile.offered_models(_services(profile))]
    if args.json:
        return print_json([model.details for model in offered])
    for model in offered:
        print(f"{model.name:<20} {'here' if model.is_installed else '-':<5} {model.summary}")
    return EXIT_OK


def _list_provider_models(args: Args) -> int:
    """Print the models of `args.provider`."""
    from hermes_agent.models.model_catalog import ModelsUnavailable  # after the imports of the host

    with loaded_host() as host:
        endpoint = host.select_model(provider=args.provider, model="any").endpoint
        try:
            with activity(f"asking {args.provider} for its models"):
                found = host.model_infos.list_models(endpoint, fresh=args.refresh)
        except ModelsUnavailable as exc:
            print(f"hermes: {exc}. Is there a key, and a network?", file=sys.stderr)
            return EXIT_FAILED
    if args.json:
        return print_json([info._asdict() for info in found])
    width = max(len(info.id) for info in found)
    for info in sorted(found):
        size = f"{info.context_length:>9,}" if info.context_length else f"{'?':>9}"
        marks = " ".join(word for word, there in (("pictures", info.vision), ("tools", info.tools)) if there)
        price = _price(info.input_price, info.output_price)
        print(f"{info.id:<{width}}  {size}  {price:<16}  {marks}".rstrip())
    return EXIT_OK


def _price(sent: float | None, written: float | None) -> str:
    """Return the prices of a million input and output tokens in dollars."""
    return "" if sent is None or written is None else f"${sent * 1e6:.2f} / ${written * 1e6:.2f}"


@model_command.action(
    "info",
    "show context length, abilities and price of a model",
    argument("name", metavar="NAME", nargs="?", default="", help="model (default: the configured one)"),
    argument("--provider", metavar="PROVIDER", default="", help="provider of the model (default: the configured one)"),
    REFRESH,
    JSON,
)
def _model_info(args: Args) -> int:
    from hermes_agent.models.model_catalog import ModelsUnavailable  # after the imports of the host

    with loaded_host() as host:
        selection = host.select_model(provider=args.provider, model=args.name)
        missing = ""
        if selection.client_profile is None:  # other providers have no list at a server
            try:
                host.model_infos.list_models(selection.endpoint, fresh=args.refresh)
            except ModelsUnavailable as exc:
                missing = str(exc)
        info = host.model_infos.known_info(selection.endpoint, selection.model)
    if args.json:
        return print_json({"provider": selection.provider, **info._asdict()})
    said = {True: "yes", False: "no", None: "unknown"}
    rows = [
        ("model", f"{info.id or '(the first of its list)'} of {selection.provider}"),
        ("context", f"{info.context_length:,} tokens" if info.context_length else "unknown"),
        ("answer", f"up to {info.max_output:,} tokens" if info.max_output else "unknown"),
        ("pictures", said[info.vision]),
        ("tools", said[info.tools]),
        ("price", f"{_price(info.input_price, info.output_price) or 'unknown'} (million tokens, in / out)"),
    ]
    for name, value in rows:
        print(f"{name:<9} {value}")
    if missing:
        print(f"hermes: {missing}; this is what the names say", file=sys.stderr)
    return EXIT_OK


auth_command = CliSubcommand("auth", "sign in at model providers, and out again")
add_auth = auth_command.add


def _logins() -> LoginStore:
    from hermes_agent.credentials.logins import LoginStore

    return LoginStore(hermes_home() / "auth.json")


@auth_command.action(
    "login",
    "store a key, or sign in where the provider offers it",
    argument("provider", metavar="PROVIDER", help="name of the provider, as in `model.provider`"),
    argument("--label", default="", help="name of the key, for `ctx.llm(profile=…)` and lists (default: PROVIDER)"),
    exclusive(
        argument("--api-key", action="store_true", help="store a key, typed at a prompt or read from standard input"),
        argument("--device", action="store_true", help="sign in on another device, with a code"),
        argument("--browser", action="store_true", help="sign in with a browser on this machine"),
    ),
    argument("--no-open", action="store_true", help="print the address and open no browser"),
)
def _login(args: Args) -> None:
    from hermes_agent.credentials.logins import API_KEY, Login

    with loaded_host() as host:
        provider = _provider(host, args.provider)
        client = _client(host, provider)
        if (
            not args.api_key
            and not args.device
            and provider.profile.auth_handler
            and _sign_in_by_plugin(provider, args)
        ):
            return
    label = args.label or provider.name
    way = "" if args.api_key else _sign_in_way(args, client)
    if way:
        login = _sign_in(way, client, label, opens=not args.no_open)
    elif args.device or args.browser:
        raise UserError(_explain_no_sign_in(provider), hint="Store a key with --api-key.", exit_status=EXIT_USAGE)
    else:
        if not args.api_key:
            print(_explain_no_sign_in(provider), file=sys.stderr)
        login = Login(provider.name, label, API_KEY, _ask_key(provider))
    logins = _logins()
    logins.put(login)
    print(f"Stored in {logins.path} as {label!r}.")


def _sign_in_by_plugin(provider: ModelProvider, args: Args) -> bool:
    """Let the plugin of a provider sign in; return False if it leaves that to the agent."""
    logins = _logins()
    before = logins.entries(provider.name)
    assert provider.profile.auth_handler is not None
    given = argparse.Namespace(provider=provider.name, no_browser=args.no_open, label=args.label)
    try:
        if not provider.profile.auth_handler("add", given):
            return False
    except Exception as exc:  # a plugin's code
        raise UserError(f"Signing in at {provider.name} failed: {exc}", hint="Try again.") from exc
    for login in [entry for entry in logins.entries(provider.name) if entry not in before]:
        if args.label and login.label != args.label:
            logins.remove(provider.name, login.label)
            login = login._replace(label=args.label)
            logins.put(login)
        print(f"Stored in {logins.path} as {login.label!r}.")
    return True


def _provider(host: Host, name: str) -> ModelProvider:
    from hermes_agent.models.providers import provider_from_config

    known = host.model_providers.get(name)
    own = host.config.settings.providers.get(name)
    provider = provider_from_config(name, own, known) if isinstance(own, dict) else known
    if provider is None or isinstance(provider.profile, ClientProfile):
        every = [each for key in host.model_providers.names() if (each := host.model_providers.get(key)) is not None]
        names = [each.name for each in every if not isinstance(each.profile, ClientProfile)]
        raise UserError(
            f"{name!r} is no provider that one signs in at.",
            hint=f"Known: {', '.join(names)}, and names under `providers`.",
            exit_status=EXIT_USAGE,
        )
    return provider


def _client(host: Host, provider: ModelProvider) -> OAuthClient:
    from hermes_agent.credentials.oauth import OAuthClient

    said: dict[str, Any] = dict(provider.profile.oauth)
    own = host.config.settings.providers.get(provider.name)
    said |= {k: v for k, v in ((own or {}).get("oauth") or {}).items() if v}
    port = int(said.pop("redirect_port", 0) or 0)
    texts = {
        name: str(said.get(name) or "") for name in OAuthClient._fields if name not in ("provider", "redirect_port")
    }
    return OAuthClient(provider.name, redirect_port=port, **texts)


def _ask_key(provider: ModelProvider) -> str:
    import getpass  # imports termios, which only a typed key needs

    from hermes_agent.credentials.logins import is_key

    if sys.stdin.isatty():
        key = getpass.getpass(f"Key for {provider.display_name}: ").strip()
    else:
        key = sys.stdin.readline().strip()
    if not is_key(key):
        raise UserError("That is no key: it is one line of letters, digits and signs.", exit_status=EXIT_USAGE)
    return key


REQUIRED_FIELDS = {
    "key": ("authorize_url", "key_url"),
    "device": ("client_id", "token_url", "device_url"),
    "browser": ("client_id", "token_url", "authorize_url"),
}
"""Settings of `oauth` in a profile or the config that each way to sign in needs."""


def _sign_in_way(args: Args, client: OAuthClient) -> str:
    """Return the first way to sign in that is configured, of those that the flags allow; "" for none."""
    wanted = ("device",) if args.device else ("key", "browser") if args.browser else tuple(REQUIRED_FIELDS)
    return next((way for way in wanted if all(getattr(client, name) for name in REQUIRED_FIELDS[way])), "")


def _explain_no_sign_in(provider: ModelProvider) -> str:
    """Return a sentence on what the user has to register, and where, to sign in."""
    if provider.profile.sign_in:
        return provider.profile.sign_in
    if provider.profile.signup_url:
        place = provider.profile.signup_url
        return f"{provider.display_name} has no sign-in that other programs may use: make a key at {place}."
    names = ", ".join(REQUIRED_FIELDS["device"])
    return f"No sign-in is configured for {provider.name}: set {names} under `providers.{provider.name}.oauth`."


def _sign_in(way: str, client: OAuthClient, label: str, *, opens: bool) -> Login:
    from hermes_agent.credentials.oauth import sign_in_by_browser, sign_in_by_device, sign_in_for_key

    if way == "device":
        return sign_in_by_device(client, label, lambda url, code: print(f"Open {url} and enter {code}", flush=True))
    sign_in = sign_in_for_key if way == "key" else sign_in_by_browser
    return sign_in(client, label, lambda url: show_address(url, opens=opens))


def show_address(url: str, *, opens: bool) -> None:
    """Show the address of a sign-in, and open it in a browser."""
    import webbrowser  # its import searches for browsers

    print(f"Sign in at:\n{url}", flush=True)
    if opens:
        webbrowser.open(url)


@auth_command.action(
    "list",
    "list the stored keys and sign-ins",
    argument("provider", metavar="PROVIDER", nargs="?", default="", help="only this provider"),
    JSON,
)
def _list_logins(args: Args) -> int:
    found = _logins().entries(args.provider)
    if args.json:
        shown = ("provider", "label", "auth_type", "state", "expires_at")
        return print_json([{name: getattr(login, name) for name in shown} for login in found])
    for login in found:
        print(f"{login.provider:<16} {login.label:<20} {login.auth_type:<8} {login.state}")
    if not found:
        print("Nothing is stored. Keys in .env and the environment are not listed here.", file=sys.stderr)
    return EXIT_OK


@auth_command.action(
    "logout",
    "delete a stored key or sign-in",
    argument("provider", metavar="PROVIDER"),
    argument("--label", default="", help="only the one with this name"),
)
def _logout(args: Args) -> int:
    gone = _logins().remove(args.provider, args.label)
    for label in gone:
        print(f"Forgotten: {args.provider} {label}")
    if not gone:
        print(f"hermes: nothing is stored for {args.provider} {args.label}".rstrip(), file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


@auth_command.action(
    "status",
    "show the key or sign-in that model requests use (exit status 1: there is none)",
    argument("provider", metavar="PROVIDER", nargs="?", default="", help="another provider"),
    JSON,
)
def _login_status(args: Args) -> int:
    with loaded_host() as host:
        selection = host.select_model(provider=args.provider, model="any" if args.provider else "")
        keys = [each.endpoint for each in (selection, *selection.with_other_keys)]
        needed = selection.endpoint.provider.needs_key
        logins = {login.label: login for login in host.logins.entries(selection.provider)}
    used = [key for key in keys if key.key or key.login]
    account, why_not = ("", "") if used else _account(selection.endpoint.provider)
    states = {key.key_name: logins[key.login].state if key.login in logins else "ready" for key in used}
    if account:
        states[account] = "ready"
    good = bool(used or account) or not needed
    if args.json:
        print_json({"provider": selection.provider, "usable": good, "keys": states})
        return EXIT_OK if good else EXIT_FAILED
    for name, state in states.items():
        print(f"{selection.provider}: {name}: {state}")
    if not (used or account):
        print(f"{selection.provider}: no key, and it needs {'one' if needed else 'none'}")
    if why_not:
        print(f"{selection.provider}: {why_not}")
    return EXIT_OK if good else EXIT_FAILED


def _account(provider: ModelProvider) -> tuple[str, str]:
    """Return the account that signs requests without a key, or why there is none."""
    from hermes_agent.contracts.model_provider import NotSignedIn

    try:
        return provider.profile.account(), ""
    except NotSignedIn as exc:
        return "", f"{exc.message} {exc.hint}".strip()
