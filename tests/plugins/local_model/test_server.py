"""The child process: started once, alone with its key, gone with its parent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.core.errors import ModelError
from local_model import (
    CHILD_ENVIRONMENT,
    LOAD,
    LocalModelClient,
    LocalModelServer,
    LocalServerSettings,
    child_environment,
    default_threads,
    services,
)
from waiting import until, wait_for_end

CHILD = Path(__file__).with_name("scripted_child.py")


def scripted(tmp_path: Path, *script: dict[str, Any], **options: Any) -> LocalModelServer:
    weights = tmp_path / "weights.gguf"
    weights.write_text(json.dumps(script or [{"pieces": []}]))
    settings = LocalServerSettings(weights, "tiny", threads=3, context_length=512, idle_s=7)
    return LocalModelServer(settings, program=CHILD, **options)


def told(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "weights.gguf.told").read_text().splitlines()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_it_is_started_once_however_many_ask(tmp_path: Path) -> None:
    async def main() -> None:
        server = scripted(tmp_path)
        found = await asyncio.gather(*(server.ensure_started() for _ in range(5)))
        assert len(set(found)) == 1
        await server.aclose()

    await main()
    assert len(told(tmp_path)) == 1


async def test_the_key_is_neither_in_the_arguments_nor_in_the_environment(tmp_path: Path) -> None:
    async def main() -> str:
        server = scripted(tmp_path, environ={"PATH": "/bin", "OPENAI_API_KEY": "sk-secret", "NOTIFY_SOCKET": "/run/n"})
        endpoint = await server.ensure_started()
        await server.aclose()
        return endpoint.api_key

    key = await main()
    [child] = told(tmp_path)
    assert child["settings"]["api_key"] == key
    assert len(key) >= 32
    assert key not in json.dumps([child["argv"], child["environ"]])
    assert set(child["environ"]) <= {"PATH", "LC_CTYPE"}  # the interpreter adds LC_CTYPE in the C locale


async def test_it_is_told_how_to_load_the_model(tmp_path: Path) -> None:
    async def main() -> None:
        server = scripted(tmp_path)
        await server.ensure_started()
        await server.aclose()

    await main()
    settings = told(tmp_path)[0]["settings"]
    del settings["api_key"], settings["sys_path"]
    assert settings == {
        "path": str(tmp_path / "weights.gguf"),
        "alias": "tiny",
        "threads": 3,
        "prompt_threads": 3,
        "context_length": 512,
        "state": "",
        "cache_ram_mib": 256,
    }


async def test_without_a_request_the_process_ends_and_the_next_request_starts_it_again(tmp_path: Path) -> None:
    weights = tmp_path / "weights.gguf"
    weights.write_text("[]")
    given = LocalServerSettings(weights, "tiny", idle_s=0.01, state_dir=tmp_path / "state")
    server = LocalModelServer(given, program=CHILD)
    async with server.use():
        pid = server.pid
        assert pid is not None
    await asyncio.to_thread(wait_for_end, pid)
    async with server.use():
        assert server.pid not in (None, pid)
    await server.aclose()
    first, second = told(tmp_path)
    assert first["settings"]["state"] == second["settings"]["state"]
    assert Path(first["settings"]["state"]).parent == tmp_path / "state"
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


async def test_a_process_is_not_idle_while_a_request_runs(tmp_path: Path) -> None:
    weights = tmp_path / "weights.gguf"
    weights.write_text("[]")
    server = LocalModelServer(LocalServerSettings(weights, "tiny", idle_s=0.01), program=CHILD)
    async with server.use():
        async with server.use():
            pid = server.pid
        assert server._idle is None
        assert server.pid == pid
    await server.aclose()
    assert len(told(tmp_path)) == 1


async def test_ctrl_c_in_the_terminal_does_not_reach_it(tmp_path: Path) -> None:
    async def main() -> None:
        server = scripted(tmp_path)
        await server.ensure_started()
        await server.aclose()

    await main()
    assert told(tmp_path)[0]["sid"] != os.getsid(0)


async def test_after_a_crash_it_is_started_again_with_another_key(tmp_path: Path) -> None:
    async def main() -> None:
        server = scripted(tmp_path)
        first = await server.ensure_started()
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        assert await server.exit_reason() == "was killed (SIGKILL: by the kernel when memory ran out, or by a user)"
        second = await server.ensure_started()
        assert second.api_key != first.api_key
        await server.aclose()

    await main()
    assert len(told(tmp_path)) == 2


async def test_a_start_that_fails_shows_the_last_lines(tmp_path: Path) -> None:
    async def main() -> ModelError:
        server = scripted(tmp_path, {"start": "fail"})
        with pytest.raises(ModelError) as failed:
            await server.ensure_started()
        await server.aclose()
        return failed.value

    error = await main()
    assert error.kind == "unreachable"
    assert error.message == f"The embedded model ({tmp_path}/weights.gguf) ended with status 3 while starting."
    assert error.hint == "Its last lines:\nE no such tensor\nE giving up"


async def test_a_start_that_hangs_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    async def main() -> ModelError:
        server = scripted(tmp_path, {"start": "hang"}, start_deadline_s=1.5)
        with pytest.raises(ModelError, match=r"was not ready within 1\.5 s") as failed:
            await server.ensure_started()
        assert server.pid is None
        return failed.value

    error = await main()
    assert error.hint == "Its last lines:\nloading"
    assert not alive(told(tmp_path)[0]["pid"])


async def test_each_that_waits_for_the_weights_is_told_so_until_they_are_loaded(tmp_path: Path) -> None:
    server = scripted(tmp_path, {"start": "hang"})
    client = LocalModelClient(services(), LocalServerSettings(tmp_path / "weights.gguf", "tiny"), server=server)
    said = [client.loading_notice()]
    start = asyncio.create_task(server.ensure_started())
    await asyncio.to_thread(until, lambda: server.pid is not None)
    said.append(client.loading_notice())  # of a second conversation, while the first waits
    start.cancel()
    await asyncio.gather(start, return_exceptions=True)
    (tmp_path / "weights.gguf").write_text("[]")
    await server.ensure_started()
    said.append(client.loading_notice())
    await client.aclose()
    assert said == ["Loading the embedded model tiny (19 B) …"] * 2 + [""]


async def test_a_start_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    async def main() -> None:
        server = scripted(tmp_path, {"start": "hang"})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await server.ensure_started()
        assert server.pid is None

    await main()
    assert not alive(told(tmp_path)[0]["pid"])


async def test_closing_ends_the_process_and_nothing_starts_afterwards(tmp_path: Path) -> None:
    async def main() -> None:
        server = scripted(tmp_path)
        await server.ensure_started()
        await server.aclose()
        with pytest.raises(ModelError, match="already shut down"):
            await server.ensure_started()

    await main()
    [child] = told(tmp_path)
    assert not alive(child["pid"])


async def test_a_child_that_does_not_end_by_itself_is_killed(tmp_path: Path) -> None:
    async def main() -> None:
        server = scripted(tmp_path, {"start": "stubborn"})
        await server.ensure_started()
        await server.aclose()

    await main()
    assert not alive(told(tmp_path)[0]["pid"])


async def test_closing_what_was_never_started_is_nothing(tmp_path: Path) -> None:
    await scripted(tmp_path).aclose()
    assert not (tmp_path / "weights.gguf.told").exists()


def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    (tmp_path / "weights.gguf").write_text("[]")
    code = (
        "import asyncio, os, signal, sys; from pathlib import Path;"
        f"{LOAD}"
        "given = server.LocalServerSettings(Path(sys.argv[1]), 'tiny');"
        "child = server.LocalModelServer(given, program=Path(sys.argv[2]));"
        "\n"
        "async def main():\n"
        "    await child.ensure_started()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "weights.gguf"), str(CHILD)], timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL
    wait_for_end(told(tmp_path)[0]["pid"])


def test_the_environment_of_the_child_is_a_list() -> None:
    given = {name: "x" for name in CHILD_ENVIRONMENT} | {"ANTHROPIC_API_KEY": "s", "CREDENTIALS_DIRECTORY": "/c"}
    assert set(child_environment(given)) == set(CHILD_ENVIRONMENT)


def test_one_core_is_left_to_the_others() -> None:
    cores = len(os.sched_getaffinity(0))
    assert default_threads() == (cores if cores <= 2 else cores - 1)
