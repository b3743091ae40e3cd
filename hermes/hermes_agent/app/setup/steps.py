"""Steps of `hermes setup`: model, sandbox, chat platforms, service, first answer.

The model step tries its answers before it writes them. Answers are recorded in `setup.json` (no secrets), so that an
interrupted setup offers them again; the file is removed at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hermes_agent.app.doctor import probe_model, terminal_findings
from hermes_agent.app.gateway_commands import set_up
from hermes_agent.app.setup.discovery import FoundClient, SetupSurvey, explain_client
from hermes_agent.app.setup.questions import Choice, Questions, show_progress
from hermes_agent.app.setup.user_unit import explain_no_manager, install_unit, is_lingering, unit_path
from hermes_agent.config import home_paths
from hermes_agent.config.dotenv import read_env_file, write_env_value
from hermes_agent.config.edit import set_value
from hermes_agent.config.yaml_reader import read_file
from hermes_agent.core.errors import EXIT_USAGE, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.redaction import redactor
from hermes_agent.credentials.logins import is_key
from hermes_agent.host import Host
from hermes_agent.models.client_profiles import configured_services
from hermes_agent.models.model_catalog import fetch_model_ids
from hermes_agent.models.providers import CUSTOM, ModelProvider
from hermes_agent.models.selection import ModelSelection, is_selected_by_key
from hermes_agent.system.files import JsonFile

STATE_FILE = "setup.json"
OTHER_PROVIDER = "another provider with a key"
OTHER_SERVER = "another OpenAI-compatible server"


class Flags(LazyNamedTuple):
    """Answers on the command line; "" and None mean no answer."""

    provider: str = ""
    base_url: str = ""
    model: str = ""
    key: str = ""
    """Read from standard input, never from the command line, where other users could see it."""
    stores_key: bool | None = None
    platforms: tuple[str, ...] | None = None
    service: str = ""


class Plan(LazyNamedTuple):
    """Result of the model step; `key` is the only secret."""

    provider: ModelProvider
    base_url: str
    model: str
    key: str = ""
    variable: str = ""
    """Name under which the key is stored, or was found."""
    is_stored: bool = True
    """True if the key is already in the home or none is needed."""

    def block(self) -> dict[str, Any]:
        """Return the settings for the section `model` of the config."""
        block = {"provider": self.provider.name, "default": self.model, "base_url": self.base_url}
        return {name: value for name, value in block.items() if value}


class Setup:
    """One run of the setup in a home."""

    def __init__(self, host: Host, found: SetupSurvey, flags: Flags, questions: Questions) -> None:
        self.host = host
        self.found = found
        self.flags = flags
        self.questions = questions
        self.state = JsonFile(host.home / STATE_FILE)
        self.saved = self.state.read()

    def record(self, **answers: Any) -> None:
        """Record answers for a later run; None removes an answer."""
        with self.state.change() as value:
            value.update({name: answer for name, answer in answers.items() if answer is not None})
            for name in (name for name, answer in answers.items() if answer is None):
                value.pop(name, None)

    def finish(self) -> None:
        """Delete the recorded answers."""
        self.state.path.unlink(missing_ok=True)

    # --- the model ---------------------------------------------------------------------------------------------

    def choose_model(self) -> Plan:
        """Choose a model, and try it until it answers a request.

        Raises:
            UserError: the model does not answer, and the user cannot be asked or gives up.
        """
        again = False
        while True:
            plan = self._plan(again=again)
            self.record(provider=plan.provider.name, base_url=plan.base_url or None, model=plan.model or None)
            problem, hint = self._try(plan)
            if not problem:
                return plan
            if not self.questions.can_ask:
                raise UserError(problem, hint=hint)
            print(f"  {problem}\n  {hint}".rstrip())
            if not self.questions.confirm("  Answer again?", default=True):
                raise UserError("no model is set up", hint="`hermes setup` goes on with the answers so far.")
            again = True

    def _plan(self, *, again: bool) -> Plan:
        provider, base_url = self._provider(again=again)
        if self._own_client(provider) is not None:
            return Plan(provider, "", self.flags.model)
        key, variable, is_stored = self._key(provider, again=again)
        model = self._model(provider, base_url, key, again=again)
        return Plan(provider, base_url, model, key, variable, is_stored)

    def _provider(self, *, again: bool) -> tuple[ModelProvider, str]:
        flags = self.flags
        if flags.provider or flags.base_url:
            return self._named(flags.provider or CUSTOM), flags.base_url
        saved = "" if again else str(self.saved.get("provider") or "")
        is_known = self.host.model_providers.get(saved) is not None
        if is_known and self.questions.can_ask and self.questions.confirm(f"Go on with {saved}?", default=True):
            return self._named(saved), str(self.saved.get("base_url") or "")
        rows = self._rows()
        if not self.questions.can_ask and len(rows) == 1:
            return self._found(rows[0].value)
        what = "the model's provider" + (f" (found: {', '.join(row.text for row in rows)})" if rows else "")
        self.questions.require("Name it with --provider NAME, or a server with --base-url URL.", what)
        chosen = self.questions.choose("Which model is to answer?", [*rows, *self._other_rows()])
        if chosen == OTHER_SERVER:
            return self._named(CUSTOM), self.questions.text("Address, such as http://192.168.1.5:8000/v1")
        if chosen == OTHER_PROVIDER:
            names = [Choice(p.name, f"{p.name}: {p.display_name}") for p in self._with_key()]
            chosen = self.questions.choose("Which provider?", names)
        return self._found(chosen)

    def _found(self, name: str) -> tuple[ModelProvider, str]:
        """Return a provider, and the address of its server, or "" if that is the provider's default."""
        provider = self._named(name)
        address = next((server.base_url for server in self.found.servers if server.provider.name == name), "")
        return provider, "" if address == provider.base_url else address

    def _rows(self) -> list[Choice]:
        """Return the results of the survey as rows: servers first, since they need no key."""
        rows = [
            Choice(server.provider.name, f"{server.provider.display_name} at {server.base_url}")
            for server in self.found.servers
        ]
        rows += [
            Choice(key.provider.name, f"{key.provider.display_name}, with the key in {key.variable}")
            for key in self.found.keys
        ]
        return rows + [_client_row(client) for client in self.found.clients if not client.problem]

    def _other_rows(self) -> list[Choice]:
        missing = [client for client in self.found.clients if client.problem and client.profile.setup_text]
        own = [_client_row(client, client.profile.download_text) for client in missing]
        return [*own, Choice(OTHER_PROVIDER, OTHER_PROVIDER), Choice(OTHER_SERVER, OTHER_SERVER)]

    def _own_client(self, provider: ModelProvider) -> FoundClient | None:
        return next((client for client in self.found.clients if client.provider.name == provider.name), None)

    def _with_key(self) -> list[ModelProvider]:
        return [p for p in self.host.model_providers.providers() if is_selected_by_key(p)]

    def _named(self, name: str) -> ModelProvider:
        provider = self.host.model_providers.get(name)
        if provider is None:
            known = ", ".join(self.host.model_providers.names())
            raise UserError(f"there is no provider {name!r}", hint=f"Known: {known}.", exit_status=EXIT_USAGE)
        return provider

    def _key(self, provider: ModelProvider, *, again: bool) -> tuple[str, str, bool]:
        """Return the key, its variable, and whether the home already has it (also True if none is needed)."""
        variable = next(iter(provider.key_names), "")
        if self.flags.key and not variable:
            hint = f"`hermes auth login {provider.name} --api-key` stores a key."
            raise UserError(f"{provider.display_name} names no variable for a key", hint=hint, exit_status=EXIT_USAGE)
        if self.flags.key and not again:
            return self.flags.key, variable, False
        named = next((name for name in provider.key_names if self.host.credentials.get(name)), "")
        if named and not again:
            in_home = named in read_env_file(home_paths(self.host.home).env)
            return str(self.host.credentials.get(named)).strip(), named, in_home
        if not provider.needs_key and not (again and variable and self.questions.can_ask):
            return "", "", True
        self.questions.require("Pass it on standard input with --key-stdin.", f"the key of {provider.display_name}")
        where = f", from {provider.profile.signup_url}" if provider.profile.signup_url else ""
        none = "" if provider.needs_key else "; empty: none"
        key = self.questions.text(f"Key of {provider.display_name}{where} (it does not show{none})", hidden=True)
        if not key and not provider.needs_key:
            return "", "", True
        if not is_key(key):
            print("  A key is one line of letters, digits and signs.")
            return self._key(provider, again=True)
        return key, variable, False

    def _model(self, provider: ModelProvider, base_url: str, key: str, *, again: bool) -> str:
        if self.flags.model and not again:
            return self.flags.model
        names = self._models(provider, base_url, key)
        if provider.profile.has_own_models and len(names) == 1:
            return names[0]
        default = provider.default_model or next(iter(provider.profile.fallback_models), "")
        saved = str(self.saved.get("model") or "") if self.saved.get("provider") == provider.name else ""
        first = next((name for name in (saved, default) if name in names), "")
        rows = [Choice(name, name) for name in ([first] if first else []) + [n for n in names if n != first]]
        if not self.questions.can_ask and (first or default):
            return first or default
        self.questions.require("Name it with --model NAME.", f"a model of {provider.display_name}")
        return self.questions.choose(f"Which model of {provider.display_name}?", rows, own="the name of another model")

    def _models(self, provider: ModelProvider, base_url: str, key: str) -> list[str]:
        found = next((s.models for s in self.found.servers if s.provider.name == provider.name), None)
        if found is not None:
            return list(found)
        done = show_progress(f"Asking {provider.display_name} for its models")
        try:
            names = fetch_model_ids(self._selection(Plan(provider, base_url, "any", key)).endpoint)
        except UserError as exc:
            done(exc.message)
            return []
        done("no list" if names is None else f"{len(names)} models")
        return list(names or provider.profile.fallback_models)

    def _selection(self, plan: Plan) -> ModelSelection:
        block = {**plan.block(), "default": plan.model}
        return self.host.select_model(settings=block | ({"api_key": plan.key} if plan.key else {}))

    def _try(self, plan: Plan) -> tuple[str, str]:
        """Return why the model does not answer, and a remedy; both are "" if it answers."""
        if (client := self._own_client(plan.provider)) is not None:
            return self._try_client(client)
        redactor.learn([plan.key])
        done = show_progress(f"Trying {plan.model or 'the first model'} of {plan.provider.display_name}")
        try:
            finding = probe_model(self._selection(plan), plan.model)
            problem, hint = (finding.text, finding.remedy) if finding.level == "wrong" else ("", "")
        except UserError as exc:
            problem, hint = exc.message, exc.hint
        done("failed" if problem else "ok")
        return problem, hint

    def _try_client(self, client: FoundClient) -> tuple[str, str]:
        """Prepare a provider with its own client; return why it cannot answer, and a remedy."""
        name = client.provider.name
        if not explain_client(self.host, name):
            return "", ""
        try:
            client.profile.prepare(configured_services(client.profile, self.host.config.settings))
        except UserError as exc:
            return exc.message, exc.hint
        problem = explain_client(self.host, name)
        return problem, "`hermes doctor` says more." if problem else ""

    def store_model(self, plan: Plan) -> None:
        """Write the key to `.env`, then the model, which needs the key, to the config."""
        where = home_paths(self.host.home)
        if plan.key and not plan.is_stored and self._stores(plan):
            write_env_value(where.env, plan.variable, plan.key)
            print(f"  {plan.variable} is stored in {where.env}.")
        written = read_file(where.editable).value.get("model")
        own = [client.provider.name for client in self.found.clients]
        kept = {name: written[name] for name in own if isinstance(written, dict) and written.get(name)}
        path = set_value(self.host.home, ("model",), kept | plan.block())
        print(f"  The model is set in {path}.")
        self.host.reread_config()

    def _stores(self, plan: Plan) -> bool:
        """Return True if the key is to be stored in `.env`; ask about a key from the environment."""
        if self.flags.stores_key is not None:
            return self.flags.stores_key
        if plan.variable not in {key.variable for key in self.found.keys}:
            return True
        where = home_paths(self.host.home).env
        return self.questions.confirm(f"  Copy {plan.variable} into {where}, for a service?", default=True)

    # --- the rest ----------------------------------------------------------------------------------------------

    def show_sandbox(self) -> None:
        """Print where commands run, and what a sandbox still needs."""
        for finding in terminal_findings(self.host):
            print(f"  {finding.text}")
            if finding.remedy and finding.level != "ok":
                print(f"    {finding.remedy}")

    def set_up_platforms(self) -> None:
        """Set up the chat platforms of the flags, or those that the user chooses one by one."""
        if self.flags.platforms is not None:
            for name in self.flags.platforms:
                set_up(self.host, name)
            return
        while self.questions.can_ask and self.questions.confirm("Set up a chat platform?", default=False):
            set_up(self.host, None)

    def set_up_service(self) -> None:
        """Install and start the daemon as a user service, if a flag or the user says so."""
        wanted = self.flags.service
        if not wanted and self.questions.can_ask and not unit_path().exists() and not explain_no_manager():
            at_login = "Run the agent as a service of your user, started at login?"
            wanted = "user" if self.questions.confirm(at_login, default=False) else ""
        if wanted == "user":
            done = show_progress("Starting the service")
            path = install_unit(self.host.home)
            done("ok")
            if is_lingering():
                print(f"  {path} runs the agent, from boot on.")
            else:
                print(f"  {path} runs the agent while you are logged in.")
                print("    `loginctl enable-linger` starts it at boot, and keeps it running when you log out.")


def _client_row(client: FoundClient, size: str = "") -> Choice:
    text = client.profile.setup_text or client.profile.description
    about = f"{client.provider.display_name}: {text}" if text else client.provider.display_name
    return Choice(client.provider.name, f"{about} ({size})" if size else about)


def nix_lines(plan: Plan, platforms: Sequence[str], declared: Path) -> str:
    """Return the NixOS settings that correspond to what the setup would write."""
    lines = ["services.hermes-agent = {", "  enable = true;"]
    settings = " ".join(f"{name} = {_nix_text(value)};" for name, value in plan.block().items())
    lines.append(f"  settings.model = {{ {settings} }};")
    if plan.variable:
        lines.append(f"  credentials.{plan.variable} = {_nix_text(f'/run/secrets/{plan.variable}')};  # a path, no key")
    lines += [f"  settings.platforms.{name}.enabled = true;" for name in platforms]
    lines.append("};")
    return "\n".join([f"This home is configured by Nix ({declared}); nothing is written here. Declare:", "", *lines])


def _nix_text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${")
    return f'"{escaped}"'


def read_key() -> str:
    """Return the key on the first line of standard input.

    Raises:
        UserError: the line is empty or has other characters than printable ASCII.
    """
    key = sys.stdin.readline().strip()
    if not is_key(key):
        raise UserError(
            "--key-stdin: standard input holds no key: one line of letters, digits and signs", exit_status=EXIT_USAGE
        )
    return key
