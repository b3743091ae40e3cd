"""`hermes auth login|list|logout|status`: keys and tokens of model providers, kept in `auth.json`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, UserError

if TYPE_CHECKING:
    from hermes_agent.credentials.logins import Login, Logins
    from hermes_agent.credentials.oauth import Client
    from hermes_agent.host import Host
    from hermes_agent.models.providers import Provider

__all__ = ["add"]


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("auth", help="sign in at model providers, and out again")
    actions = parser.add_subparsers(prog=parser.prog, metavar="ACTION", required=True)

    login = actions.add_parser("login", help="store a key, or sign in where the provider offers it")
    login.add_argument("provider", metavar="PROVIDER", help="as in `model.provider`")
    login.add_argument("--label", default="", help="its name, for `ctx.llm(profile=…)` and lists (default: PROVIDER)")
    way = login.add_mutually_exclusive_group()
    way.add_argument("--api-key", action="store_true", help="store a key: it is asked for, or read from standard input")
    way.add_argument("--device", action="store_true", help="sign in on another device, with a code")
    way.add_argument("--browser", action="store_true", help="sign in with a browser on this machine")
    login.add_argument("--no-open", action="store_true", help="print the address and open no browser")
    login.set_defaults(run=_login)

    listing = actions.add_parser("list", help="what is stored")
    listing.add_argument("provider", metavar="PROVIDER", nargs="?", default="", help="only those of this provider")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=_list)

    logout = actions.add_parser("logout", help="forget what is stored")
    logout.add_argument("provider", metavar="PROVIDER")
    logout.add_argument("--label", default="", help="only the one of this name")
    logout.set_defaults(run=_logout)

    status = actions.add_parser(
        "status", help="what the configured model is asked with; status 1 when nothing is there"
    )
    status.add_argument("provider", metavar="PROVIDER", nargs="?", default="", help="another provider")
    status.add_argument("--json", action="store_true", help="print JSON")
    status.set_defaults(run=_status)


def _logins() -> Logins:
    from hermes_agent.config import hermes_home  # what the listing needs, and no more
    from hermes_agent.credentials.logins import Logins

    return Logins(hermes_home() / "auth.json")


def _login(args: argparse.Namespace) -> int:
    from hermes_agent.app.cli.tools import loaded_host  # providers of plugins
    from hermes_agent.credentials.logins import API_KEY, Login

    with loaded_host() as host:
        provider = _provider(host, args.provider)
        client = _client(host, provider)
    label = args.label or provider.name
    if args.api_key or not (args.device or args.browser or client.device_url or client.authorize_url):
        login = Login(provider.name, label, API_KEY, _asked_key(provider))
    else:
        login = _signed_in(args, client, label)
    logins = _logins()
    logins.put(login)
    print(f"Stored in {logins.path} as {label!r}.")
    return EXIT_OK


def _provider(host: Host, name: str) -> Provider:
    from hermes_agent.models.providers import LOCAL, configured

    known = host.model_providers.get(name)
    own = (host.config.get("providers") or {}).get(name)
    provider = configured(name, own, known) if isinstance(own, dict) else known
    if provider is None or provider.name == LOCAL:
        raise UserError(
            f"{name!r} is no provider that one signs in at.",
            hint=f"Known: {', '.join(host.model_providers.names())}, and names under `providers`.",
            exit_status=EXIT_USAGE,
        )
    return provider


def _client(host: Host, provider: Provider) -> Client:
    from hermes_agent.credentials.oauth import Client

    said: dict[str, Any] = dict(provider.profile.oauth) if provider.profile is not None else {}
    own = (host.config.get("providers") or {}).get(provider.name)
    said |= {k: v for k, v in ((own or {}).get("oauth") or {}).items() if v}
    port = int(said.pop("redirect_port", 0) or 0)
    texts = {name: str(said.get(name) or "") for name in Client._fields if name not in ("provider", "redirect_port")}
    return Client(provider.name, redirect_port=port, **texts)


def _asked_key(provider: Provider) -> str:
    import getpass  # termios: only who types a key pays for it

    if sys.stdin.isatty():
        key = getpass.getpass(f"Key for {provider.display_name}: ").strip()
    else:
        key = sys.stdin.readline().strip()
    if not key or not all("!" <= char <= "~" for char in key):
        raise UserError("That is no key: it is one line of letters, digits and signs.", exit_status=EXIT_USAGE)
    return key


def _signed_in(args: argparse.Namespace, client: Client, label: str) -> Login:
    from hermes_agent.credentials.oauth import sign_in_by_browser, sign_in_by_device

    by_device = args.device or (bool(client.device_url) and not args.browser)
    missing = [
        name
        for name in ("client_id", "token_url", "device_url" if by_device else "authorize_url")
        if not getattr(client, name)
    ]
    if missing:
        raise UserError(
            f"Nobody says how to sign in at {client.provider} so: {', '.join(missing)} is missing.",
            hint=f"Set `providers.{client.provider}.oauth.{missing[0]}`, or store a key with --api-key.",
            exit_status=EXIT_USAGE,
        )
    if by_device:
        return sign_in_by_device(client, label, lambda url, code: print(f"Open {url} and enter {code}", flush=True))
    return sign_in_by_browser(client, label, lambda url: _show(url, opens=not args.no_open))


def _show(url: str, *, opens: bool) -> None:
    import webbrowser  # looks for browsers at import

    print(f"Sign in at:\n{url}", flush=True)
    if opens:
        webbrowser.open(url)


def _list(args: argparse.Namespace) -> int:
    found = _logins().of(args.provider)
    if args.json:
        print(json.dumps([_shown(login) for login in found], indent=2))
        return EXIT_OK
    for login in found:
        print(f"{login.provider:<16} {login.label:<20} {login.auth_type:<8} {login.state}")
    if not found:
        print("Nothing is stored. Keys in .env and the environment are not listed here.", file=sys.stderr)
    return EXIT_OK


def _shown(login: Login) -> dict[str, Any]:
    return {
        "provider": login.provider,
        "label": login.label,
        "auth_type": login.auth_type,
        "state": login.state,
        "expires_at": login.expires_at,
    }


def _logout(args: argparse.Namespace) -> int:
    gone = _logins().remove(args.provider, args.label)
    for label in gone:
        print(f"Forgotten: {args.provider} {label}")
    if not gone:
        print(f"hermes: nothing is stored for {args.provider} {args.label}".rstrip(), file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def _status(args: argparse.Namespace) -> int:
    from hermes_agent.app.cli.tools import loaded_host  # providers of plugins

    with loaded_host() as host:
        selection = host.select_model(provider=args.provider, model="any" if args.provider else "")
        keys = [each.endpoint for each in (selection, *selection.siblings)]
        needed = selection.endpoint.provider.needs_key
        logins = {login.label: login for login in host.logins.of(selection.provider)}
    used = [key for key in keys if key.key or key.login]
    states = {key.key_name: logins[key.login].state if key.login in logins else "ready" for key in used}
    good = bool(used) or not needed
    if args.json:
        print(json.dumps({"provider": selection.provider, "usable": good, "keys": states}, indent=2))
        return EXIT_OK if good else EXIT_FAILED
    for name, state in states.items():
        print(f"{selection.provider}: {name}: {state}")
    if not used:
        print(f"{selection.provider}: " + ("no key, and it needs one" if needed else "no key, and it needs none"))
    return EXIT_OK if good else EXIT_FAILED
