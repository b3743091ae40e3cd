"""Run what the lists name and show what came of it: plugin, run, verdict, difference."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from compat.corpus.compare import differences, expected_failure, expected_without_env, refusals, unserved
from compat.corpus.install import CannotInstall, installed
from compat.corpus.lists import LATER, Plugin, Repository, Run
from compat.corpus.world import PluginHome, asks_for_env
from compat.repositories.record import digest_of, host_errors

__all__ = ["Row", "judge", "rows", "rows_of", "run_one", "run_service", "show"]

AT_A_TIME = 2


@dataclass(frozen=True)
class Row:
    """What came of one run."""

    plugin: str
    run: str
    verdict: str
    """`same`, `differs`, `broken` (no answer at all), `not installed`, `fails as known`, or `skipped`: not there."""
    lines: tuple[str, ...] = ()

    @property
    def green(self) -> bool:
        """Whether it is as expected."""
        return self.verdict in ("same", "fails as known")


def rows(plugins: Sequence[Plugin], *, smoke: bool = True) -> Iterable[tuple[Plugin, list[Row]]]:
    """Yield each plugin with its rows, in their order; two plugins at a time."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield from zip(plugins, pool.map(lambda plugin: rows_of(plugin, smoke=smoke), plugins), strict=True)


def rows_of(plugin: Plugin, *, smoke: bool = True) -> list[Row]:
    """Install a plugin and run each of its runs that is expected to load, or that has a reason why it does not."""
    judged = [run for run in plugin.runs if run.loads or run.reason]
    if plugin.repository is not None and plugin.repository.place is None:
        words = f"LATER_PLUGINS=DIR has no {plugin.repository.name}, commit {plugin.repository.commit}"
        return [Row(plugin.name, run.mode, "skipped", (words,)) for run in judged]
    if plugin.repository is not None and (problem := another_version(plugin.repository)):
        return [Row(plugin.name, run.mode, "differs", (problem,)) for run in judged]
    try:
        site = installed(plugin)
    except CannotInstall as exc:
        return [Row(plugin.name, run.mode, "not installed", (str(exc),)) for run in judged]
    found = [row for run in judged for row in judge(plugin, run, site, smoke=smoke)]
    if smoke and (service := plugin.setting.service) is not None and plugin.listing != f"{LATER}.txt":
        its = [run for run in judged if run.mode == service.run and (run.memory_provider or service.kind == "chat")]
        found += [run_service(plugin, run, site) for run in its]
    return found


def another_version(repository: Repository) -> str:
    """Return a sentence if a repository's folder is not the recorded one; empty otherwise."""
    assert repository.place is not None
    if digest_of(repository.place) == repository.source:
        return ""
    return f"this is another version than the recorded one, commit {repository.commit}"


def run_service(plugin: Plugin, run: Run, site: Path) -> Row:
    """Run turns of a plugin with the stand-in of its service."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        try:
            answer = PluginHome(Path(place), plugin, run, site, service=plugin.setting.service).start(depth="service")
        except (RuntimeError, TimeoutError, OSError) as exc:
            return Row(plugin.name, "service", "broken", (str(exc),))
    lines = [*answer.get("service", ()), *([answer["ended"]] if "ended" in answer else [])]
    return Row(plugin.name, "service", "differs" if lines else "same", tuple(lines))


def judge(plugin: Plugin, run: Run, site: Path, *, smoke: bool = True) -> list[Row]:
    """Run a run; where the manifest of a standalone folder asks for variables: with and without them."""
    found = [run_one(plugin, run, site, smoke=smoke)]
    if found[0].verdict != "broken" and asks_for_env(plugin, run, site):
        found.append(run_one(plugin, replace(run, without_env=True), site, smoke=False))
    return found


def run_one(plugin: Plugin, run: Run, site: Path, *, smoke: bool) -> Row:
    """Run a run in a world of its own and compare."""
    mode = f"{run.mode} without variables" if run.without_env else run.mode
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        try:
            answer = PluginHome(Path(place), plugin, run, site).start(depth="smoke" if smoke else "register")
        except (RuntimeError, TimeoutError, OSError) as exc:
            return Row(plugin.name, mode, "broken", (str(exc),))
    if run.without_env:
        lines = expected_without_env(answer, run.enabled[0])
    elif run.reason:
        lines = expected_failure(answer, run)
        return Row(plugin.name, mode, "differs" if lines else "fails as known", tuple(lines or [run.reason]))
    else:
        lines = differences(run.registered, answer["registered"], exact=run.refused is not None)
    if run.refused is not None:
        lines += refusals(run.refused, answer)
    # upstream lacked some of the names that a plugin of the older lists tries: `unserved` has those that it gave
    raised = [said for said in answer["raised"] if run.refused is not None or "ImportError: " not in said["raised"]]
    lines += unserved(run.registered, answer) + answer["called"] + host_errors({"log": raised}, [])
    if "ended" in answer:
        lines.append(answer["ended"])
    return Row(plugin.name, mode, "differs" if lines else "same", tuple(lines))


def show(row: Row, lines: int = 4) -> str:
    """Return the row as the table has it, its first differences below."""
    more = [f"    … and {len(row.lines) - lines} more"] if len(row.lines) > lines else []
    return "\n".join([f"{row.plugin:34} {row.run:28} {row.verdict}", *(f"    {x}" for x in row.lines[:lines]), *more])
