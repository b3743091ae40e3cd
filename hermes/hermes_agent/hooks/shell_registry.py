"""The shell hooks of one host: read from the config, and registered where the user allowed them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from hermes_agent.config.settings import Settings, plain
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.hooks.bus import HookBus
from hermes_agent.hooks.shell_consent import HookConsent
from hermes_agent.hooks.shell_hooks import (
    NO_EVENT,
    HookRun,
    RunHook,
    ShellHook,
    ShellHookCallback,
    broken_guards,
    read_shell_hooks,
    run_program,
)

logger = logging.getLogger(__name__)

SAFE_MODE = "HERMES_SAFE_MODE"
ALLOW = "`hermes hooks allow` shows it and allows it."
MARGIN_S = 5.0
"""Seconds beyond a program's own limit before the hook bus gives up on it."""


class HookQuestion(LazyNamedTuple):
    """A hook that waits for the user's consent."""

    title: str
    details: str
    """Why it waits, and how its script changed."""
    allow: Callable[[], str]
    """Store the approval, register the hook, and return what happened."""


class ShellHooks:
    """The programs that listen, and those that wait for the user's consent.

    Args:
        run_in_sandbox: runs a program in the sandbox of commands.
        environment, cwd, profile: see `ShellHookCallback`.
    """

    def __init__(
        self,
        bus: HookBus,
        home: Path,
        *,
        run_in_sandbox: RunHook,
        environment: Callable[[], Mapping[str, str]],
        cwd: Callable[[], str],
        profile: str,
    ) -> None:
        self._bus = bus
        self._home = home
        self._run_in_sandbox = run_in_sandbox
        self._environment = environment
        self._cwd = cwd
        self._profile = profile
        self._owners: dict[str, float] = {}
        self.pending: list[tuple[ShellHook, str]] = []
        """Hooks that are not run, each with the reason."""
        self.problems: list[str] = []
        """What is wrong with entries of the config, but for unknown events, which the check of names finds."""

    def load(self, settings: Settings, environ: Mapping[str, str]) -> dict[str, float]:
        """Register what the config has, in place of what was registered; return the time limit of each owner.

        A hook that may not or cannot run is left out with a warning; in place of a guard that fails closed, each call
        that it would judge is blocked.
        """
        for owner in self._owners:
            self._bus.remove_owner(owner)
        self._owners, self.pending = {}, []
        hooks, problems = read_shell_hooks(plain(settings.hooks))
        for problem in problems:
            logger.warning("shell hook: %s", problem)
        self.problems = [problem for problem in problems if NO_EVENT not in problem]
        if hooks and environ.get(SAFE_MODE) == "1":
            logger.warning("shell hooks: none is run: %s is set", SAFE_MODE)
            return {}
        for guard, problem in broken_guards(plain(settings.hooks)):
            self._register(guard, _failing(problem))
        consent = HookConsent.from_config(self._home, settings, environ)
        for hook in hooks:
            if why := consent.explain(hook):
                self.pending.append((hook, why))
                # the beginning of the sentence is upstream's (contract §9.2)
                text = "shell hook for %s (%s) not allowlisted — skipped. It is %s; `hermes hooks allow` shows it."
                logger.warning(text, hook.event, hook.command, why)
                if hook.blocks_on_failure:
                    self._register(hook, _failing(f"{why}. {ALLOW}"))
            else:
                self._register(hook, self._run_in_sandbox if hook.sandbox else run_program)
        return dict(self._owners)

    def hints(self) -> list[str]:
        """Return what a user reads at the start of a conversation about hooks that do not run."""
        waiting = [hook for hook, _ in self.pending]
        named = ", ".join(dict.fromkeys(hook.command for hook in waiting))
        effects = "; ".join(dict.fromkeys(filter(None, map(_effect, waiting))))
        guard = f" (guards among them: {effects})" if effects else ""
        hint = f"Shell hooks that do not run{guard}: {named}. `hermes hooks allow` shows and allows them."
        return [*([hint] if waiting else []), *(f"Shell hook of the config: {problem}" for problem in self.problems)]

    def faults(self) -> list[tuple[str, str]]:
        """Return each hook that does not run and each wrong entry of the config, with what to do."""
        waiting = (
            ": ".join(filter(None, (hook.event, hook.command, why, _effect(hook)))) for hook, why in self.pending
        )
        form = "docs/operator/hooks.md shows the form of an entry."
        return [*((text, ALLOW) for text in waiting), *((problem, form) for problem in self.problems)]

    def questions(self, reload: Callable[[], None]) -> list[HookQuestion]:
        """Return a question for each hook that waits.

        Args:
            reload: registers the hooks of the config again.
        """
        return [self._question(hook, why, reload) for hook, why in self.pending]

    def _question(self, hook: ShellHook, why: str, reload: Callable[[], None]) -> HookQuestion:
        consent = HookConsent(self._home)

        def allow() -> str:
            consent.allow(hook)
            reload()
            return f"Allowed: {hook.command} runs on {hook.event}. `hermes hooks revoke` takes it back."

        title = f"The config runs a program on {hook.event}: {hook.command}. Allow it?"
        return HookQuestion(title, f"It is {why}.\n{consent.difference(hook)}".strip(), allow)

    def _register(self, hook: ShellHook, run: RunHook) -> None:
        callback = ShellHookCallback(
            hook,
            run,
            environment=self._environment,
            cwd=self._cwd,
            profile=self._profile,
        )
        self._bus.add(hook.event, callback, hook.owner)
        self._owners[hook.owner] = max(self._owners.get(hook.owner, 0.0), hook.timeout_s + MARGIN_S)


def _failing(problem: str) -> RunHook:
    """Return what stands for a program that does not run: it fails at each call."""
    return lambda *_: HookRun(None, problem=problem)


def _effect(hook: ShellHook) -> str:
    """Return what follows for tool calls if the program does not run."""
    if hook.event != "pre_tool_call":
        return ""
    return "with `fail_closed`, calls are blocked" if hook.blocks_on_failure else "calls are not checked"
