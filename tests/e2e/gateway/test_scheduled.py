"""A scheduled job as a session of its own, with a real model server; the tool and the commands around it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.adapters.config import Platform
from hermes_agent.adapters.events import SessionSource, bind_session
from hermes_agent.app.main import main as hermes
from hermes_agent.compat.gateway import get_job, load_jobs
from hermes_agent.core.errors import UserError
from hermes_agent.cron import Job, JobStore, Schedule
from hermes_agent.cron.feature import ScheduledJobs
from hermes_agent.cron.jobs import edit_job
from hermes_agent.gateway.scheduled_jobs import SchedulerFactory
from hermes_agent.host import Host
from hermes_agent.testing import call
from hermes_agent.testing.chat import chat_host
from hermes_agent.testing.scripted_model import ScriptedModel, served

ONCE = Schedule("once", "at 9", at=1.0)


@pytest.fixture
def build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_host: None
) -> Iterator[Callable[..., tuple[Host, ScriptedModel]]]:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    monkeypatch.setenv("HERMES_BUNDLED_PLUGINS", str(tmp_path / "none"))
    with contextlib.ExitStack() as stack:

        def build(*answers: Any, config: str = "") -> tuple[Host, ScriptedModel]:
            model = ScriptedModel(*answers)
            address = stack.enter_context(served(model))
            block = f"model: {{provider: custom, base_url: '{address}', default: {model.name}}}\n"
            (tmp_path / "config.yaml").write_text(block + config)
            host = Host.build(tmp_path)
            stack.callback(host.bridge.close)
            return host, model

        yield build


async def run_job(host: Host, job: Job) -> tuple[Job, dict[str, Any], list[tuple[str, str, str]]]:
    """Let the clock run a job that is due, and return it, its run, and what was sent."""
    sent: list[tuple[str, str, str]] = []

    async def main() -> None:
        done = asyncio.Event()

        async def send(target: str, text: str, key: str, principal: str) -> None:
            assert principal == job.principal
            if target.startswith("gone:"):
                raise UserError("there is no platform 'gone'")
            sent.append((target, text, key))

        clock = host.service(SchedulerFactory).make(send)
        tell = clock._deliver

        async def told(*args: Any) -> None:
            await tell(*args)
            done.set()

        clock._deliver = told
        await clock.start()
        async with asyncio.timeout(60):
            await done.wait()
        await clock.drain(5)
        await host.aclose()

    with contextlib.closing(host.service(ScheduledJobs).open()) as store:
        made = store.put(replace(job, next_run=1.0))
        await main()
        return store.find(made.id), store.runs(made.id)[0], sent


async def test_a_job_has_a_session_of_its_own_and_its_answer_goes_where_it_should(build: Callable[..., Any]) -> None:
    host, model = build("Rain.")
    deliver = "gone:x, irc:#room, local, irc:#room"
    job = Job("", "weather", ONCE, prompt="Will it rain?", deliver=deliver, principal="irc:ada")

    after, run, sent = await run_job(host, job)

    assert (run["status"], run["output"], after.enabled) == ("ok", "Rain.", False)
    ((target, text, key),) = sent
    assert (target, text) == ("irc:#room", "⏰ weather\n\nRain.")
    assert key.startswith(f"cron-{after.id}-")
    asked = model.requests[0]["messages"][-1]["content"]
    assert asked.startswith('[This is the scheduled job "weather".')
    assert asked.endswith("Will it rain?")
    with contextlib.closing(host.open_transcript()) as transcript:
        (info,) = transcript.recent(of=frozenset({"irc:ada"}))
    assert (info.id, info.source) == (run["session"], "cron")


async def test_an_answer_that_says_nothing_is_not_sent(build: Callable[..., Any]) -> None:
    host, _ = build("[SILENT]")
    _, run, sent = await run_job(host, Job("", "quiet", ONCE, prompt="x", deliver="irc:#room"))
    assert (run["status"], sent) == ("silent", [])


async def test_a_job_does_not_work_where_a_link_leads_that_took_the_place_of_its_directory(
    build: Callable[..., Any], tmp_path: Path
) -> None:
    host, model = build("Done.", "Done.")
    own, elsewhere, link = (tmp_path / name for name in ("own", "elsewhere", "link"))
    own.mkdir()
    elsewhere.mkdir()
    link.symlink_to(own)
    given = Job("", "tidy", ONCE, prompt="x")
    job = edit_job(given, {"workdir": str(link)}, home=tmp_path, now=1.0, others={})
    assert job.workdir == str(own)  # held as it was when somebody chose it

    own.rmdir()
    own.symlink_to(elsewhere)
    _, run, _ = await run_job(host, job)
    assert run["status"] == "error" and f"now leads to {elsewhere}" in run["output"], run
    assert model.requests == []


async def test_a_model_that_fails_is_told(build: Callable[..., Any]) -> None:
    host, _ = build()
    after, run, sent = await run_job(host, Job("", "news", ONCE, prompt="x", deliver="irc:#room"))
    assert run["status"] == "error"
    assert after.last_error
    assert sent[0][1].startswith("⏰ news\n\n⚠️ The job failed (error): ")


@pytest.mark.parametrize(("mode", "status"), [("deny", "denied"), ("approve", "ok")])
async def test_what_asks_is_refused_unless_the_operator_allows_it(
    build: Callable[..., Any], tmp_path: Path, mode: str, status: str
) -> None:
    target = tmp_path.with_name(f"{tmp_path.name}-elsewhere") / "file"  # `tmp_path` is the home
    host, model = build(
        call("write_file", path=str(target), content="x"), "Done.", config=f"approvals: {{cron_mode: {mode}}}\n"
    )
    await run_job(host, Job("", "writer", ONCE, prompt="write"))
    assert target.exists() == (status == "ok")
    assert ("no user can be asked in a scheduled job" in str(model.requests[-1])) == (status == "denied")


async def test_a_script_runs_first_and_the_agent_is_told_what_it_printed(
    build: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "look.sh").write_text("echo disk is full; echo key=$SOME_API_KEY\n")
    monkeypatch.setenv("SOME_API_KEY", "secret-value-1")
    host, model = build("Oh no.")
    await run_job(host, Job("", "disk", ONCE, prompt="Judge.", script="look.sh"))
    asked = model.requests[0]["messages"][-1]["content"]
    assert '<foreign-text from="look.sh">\ndisk is full\nkey=\n' in asked
    assert asked.endswith("Judge.")


@pytest.mark.parametrize(
    ("script", "status", "text"),
    [
        ("print('hello')", "ok", "hello"),
        ("pass", "silent", ""),
        ("raise SystemExit(3)", "error", "ended with status 3"),
    ],
)
async def test_a_script_may_be_the_whole_job(
    build: Callable[..., Any], tmp_path: Path, script: str, status: str, text: str
) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "job.py").write_text(script)
    host, model = build()
    _, run, sent = await run_job(host, Job("", "job", ONCE, script="job.py", no_agent=True, deliver="irc:#room"))
    assert run["status"] == status
    assert text in run["output"]
    assert bool(sent) == (status != "silent")
    assert model.requests == []


async def test_a_job_is_told_what_another_said_and_shown_the_toolsets_that_it_may_use(
    build: Callable[..., Any],
) -> None:
    host, model = build("First.", "Second.")
    first, _, _ = await run_job(host, Job("", "first", ONCE, prompt="x"))
    host.agent._transcript = None
    await run_job(host, Job("", "second", ONCE, prompt="y", context_from=(first.id,), toolsets=("file",)))
    assert f'<foreign-text from="job {first.id}">\nFirst.\n' in model.requests[1]["messages"][-1]["content"]
    tools = [t["function"]["name"] for t in model.requests[1]["tools"]]
    assert tools == ["patch", "read_file", "search_files", "write_file"]
    assert "terminal" in str(model.requests[0]["tools"])


def tool(host: Host, **args: Any) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(host.tools.dispatch("cronjob", args))
    return result


def test_the_model_schedules_work_that_goes_back_to_its_chat(build: Callable[..., Any]) -> None:
    host, _ = build()
    with bind_session(SessionSource(Platform("telegram"), "42", user_id="ada"), "key"):
        made = tool(host, action="create", schedule="every day at 9:00", prompt="What is new?")["job"]
    assert (made["deliver"], made["origin"], made["name"]) == ("origin", "telegram:42", "What is new?")
    assert made["schedule"] == {"kind": "cron", "display": "every day at 9:00", "expr": "0 9 * * *"}
    assert [j["id"] for j in tool(host, action="list")["jobs"]] == [made["id"]]
    assert tool(host, action="update", job_id=made["id"], repeat=2)["job"]["repeat"] == {"times": 2, "completed": 0}
    assert tool(host, action="pause", job_id="What is new?")["job"]["state"] == "paused"
    assert tool(host, action="resume", job_id=made["id"])["job"]["state"] == "scheduled"
    assert tool(host, action="run", job_id=made["id"])["success"]
    assert (load_jobs()[0]["id"], (get_job(made["id"]) or {})["name"], get_job("x")) == (made["id"], made["name"], None)
    assert tool(host, action="remove", job_id=made["id"])["success"]
    assert tool(host, action="list")["jobs"] == []


def test_wrong_calls_of_the_tool_are_named(build: Callable[..., Any]) -> None:
    host, _ = build()
    assert "expected one of create" in tool(host, action="explode")["error"]
    assert "`schedule` is missing" in tool(host, action="create", prompt="x")["error"]
    assert "every day at 9:00" in tool(host, action="create", schedule="soonish", prompt="x")["error"]
    assert "there is no job 'x'" in tool(host, action="remove", job_id="x")["error"]


def test_a_script_or_a_message_elsewhere_asks_first(build: Callable[..., Any]) -> None:
    host, _ = build()
    entry = host.tools.get("cronjob")
    assert entry is not None and entry.approval is not None
    for more in ({"script": "x.sh"}, {"deliver": "email:boss@example.org"}):
        asked = entry.approval({"action": "create", "schedule": "in 2h", **more})
        assert asked is not None and next(iter(more.values())) in str(asked)
    assert entry.approval({"action": "create", "deliver": "origin"}) is None
    assert entry.approval({"action": "remove", "script": "x"}) is None


def test_the_commands_of_the_terminal(
    build: Callable[..., Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HERMES_BUNDLED_PLUGINS", raising=False)  # the bundled platforms are there
    build()

    def cron(*args: str) -> tuple[int, str, str]:
        status = hermes(["cron", *args])
        said = capsys.readouterr()
        return status, said.out, said.err

    assert "No jobs." in cron("list")[1]
    status, out, err = cron("add", "every day at 9:00", "What is new?", "--deliver", "irc:#room", "--skill", "news")
    assert (status, "No daemon runs" in err) == (0, True)
    job_id = out.split()[0]
    assert " → irc:#room" in cron("list")[1]
    assert json.loads(cron("list", "--json")[1])[0]["skills"] == ["news"]
    assert cron("edit", job_id, "--name", "News", "--schedule", "every 2h")[0] == 0
    assert "News is paused." in cron("pause", "News")[1]
    assert "paused" in cron("list")[1]
    assert "News: next" in cron("resume", "News")[1]
    assert "runs within half a minute" in cron("run", "News")[1]
    assert "not run yet" in cron("runs", "News")[1]
    with contextlib.closing(JobStore(tmp_path / "state.db")) as store:
        (run,) = store.claim_due(2.0, 1)
    assert run.job.name == "News"
    assert "running" in cron("runs", "News")[1]
    assert cron("add", "sometimes", "x")[0] != 0
    assert cron("remove", "News")[1] == "News is removed.\n"


def test_what_an_attached_job_tells_a_chat_is_part_of_its_conversation() -> None:
    wish = call("cronjob", action="create", schedule="every day at 9:00", prompt="news?", attach_to_session=True)
    with chat_host(model=[wish, "made", "It snows.", "In Rome."]) as chat:
        chat.ask("tell me the news each morning")
        host = chat.host.host
        with contextlib.closing(host.service(ScheduledJobs).open()) as store:
            (job,) = store.jobs()
            store.request_run(job.id, 1.0)
        host.bridge.call_later(0, host.service(ScheduledJobs).scheduler.wake)
        chat.wait(lambda: any("It snows." in one.text for one in chat.adapter.sent))
        chat.host._run(attached(host))
        assert chat.ask("where?") == "In Rome."
        said = [(m["role"], m["content"]) for m in chat.host.model.messages[-3:]]
    assert job.to_dict()["attach_to_session"] is True
    assert said == [
        ("user", "[The scheduled job 'news?' has told this chat what follows.]"),
        ("assistant", "It snows."),
        ("user", "where?"),
    ]


async def attached(host: Host) -> None:
    """Wait until the run is over for the clock: its answer has been attached then."""
    assert host.service(ScheduledJobs).scheduler is not None
    if host.service(ScheduledJobs).scheduler._running:
        await asyncio.wait(list(host.service(ScheduledJobs).scheduler._running), timeout=60)
