"""Scripts that call tools."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.testing import call, plugin_host


def outcome(tmp_path: Path, code: str, register: Any = lambda ctx: None, **more: Any) -> dict[str, Any]:
    config = {"terminal": {"cwd": str(tmp_path), "sandbox": "bwrap"}, **more}
    with plugin_host(register, config=config, model=[call("execute_code", code=code), "done"]) as host:
        if "execute_code" not in host.visible_tools:
            pytest.skip("no sandbox of bubblewrap can be made here")
        result: dict[str, Any] = json.loads(host.ask("go").tool_calls[0].result)
    assert not list(tmp_path.glob("hermes-code-*"))
    return result


def test_a_script_calls_tools_and_only_what_it_prints_comes_back(tmp_path: Path) -> None:
    seen: list[str] = []
    code = (
        "from hermes_tools import read_file, write_file, terminal\n"
        "write_file(path='note.txt', content='tea')\n"
        "print(read_file(path='note.txt')['content'], terminal(command='echo $((6 * 7))')['output'].strip())\n"
    )
    result = outcome(
        tmp_path, code, lambda ctx: ctx.register_hook("pre_tool_call", lambda tool_name, **kw: seen.append(tool_name))
    )
    assert result["output"].split() == ["1|tea", "42"]
    assert (tmp_path / "note.txt").read_text() == "tea"
    assert seen == ["execute_code", "terminal", "write_file", "read_file", "terminal"]


def test_a_guard_of_a_plugin_holds_for_scripts_and_other_tools_cannot_be_called(tmp_path: Path) -> None:
    def register(ctx: Any) -> None:
        block = {"action": "block", "message": "not this file"}
        ctx.register_hook("pre_tool_call", lambda tool_name, **kw: block if tool_name == "write_file" else None)

    code = (
        "import hermes_tools\n"
        "print(hermes_tools.write_file(path='x', content='y')['error'])\n"
        "print(hermes_tools.call('delegate_task', goal='x')['error'])\n"
    )
    lines = outcome(tmp_path, code, register)["output"].splitlines()
    assert lines[0] == "not this file"
    assert lines[1].startswith("a script cannot call 'delegate_task'")


def test_the_directory_of_a_script_has_no_number_which_could_be_taken_for_one_that_nobody_named(tmp_path: Path) -> None:
    seen = {outcome(tmp_path, "import os\nprint(os.path.dirname(__file__))")["output"].strip() for _ in range(4)}
    names = [Path(path).name for path in seen]
    assert len(names) == 4 and all(name.removeprefix("hermes-code-").isalpha() for name in names)


def test_a_script_in_a_unit_of_systemd_calls_tools() -> None:
    socket, work = os.environ.get("HERMES_TEST_EXEC_SOCKET"), os.environ.get("HERMES_TEST_EXEC_WORK")
    if not socket or not work:
        pytest.skip("it runs in the container of tests/service/test_exec_unit.py")
    config = {"terminal": {"cwd": work, "sandbox": "systemd", "exec_socket": socket}}
    code = "import os\nfrom hermes_tools import write_file\nprint(write_file(path='n.txt', content='x'), os.getuid())"
    with plugin_host(lambda ctx: None, config=config, model=[call("execute_code", code=code), "done"]) as host:
        result = json.loads(host.ask("go").tool_calls[0].result)
    assert result["exit_code"] == 0, result
    assert (Path(work) / "n.txt").read_text() == "x"
    assert int(result["output"].split()[-1]) != os.getuid()
    assert not list(Path(work).glob("hermes-code-*"))


def test_a_script_holds_so_many_connections_and_no_more(tmp_path: Path) -> None:
    code = (
        "import glob, socket\n"
        "held = []\n"
        "for _ in range(100):\n"
        "    held.append(socket.socket(socket.AF_UNIX))\n"
        "    held[-1].connect(glob.glob('hermes-code-*/socket')[0])\n"
        "held[-1].settimeout(60)\n"
        "print('closed', held[-1].recv(1) == b'')\n"
        "for request in (b'[]', b'[' * 100000):\n"
        "    held[0].sendall(request + b'\\n')\n"
        "    print('not understood' in held.pop(0).makefile().readline())\n"
    )
    assert outcome(tmp_path, code)["output"].splitlines() == ["closed True", "True", "True"]


@pytest.mark.attack("sandbox: sockets", at="bubblewrap")
def test_a_command_beside_a_script_does_not_reach_its_socket(tmp_path: Path) -> None:
    (tmp_path / "knock.py").write_text(
        "import glob, socket\n"
        "(found,) = glob.glob('hermes-code-*/socket')\n"
        "door = socket.socket(socket.AF_UNIX)\n"
        "try:\n"
        "    door.connect(found)\n"
        "except OSError as exc:\n"
        "    print('refused', exc.errno)\n"
        "else:\n"
        "    print('reached')\n"
    )
    code = (
        "import subprocess, sys\n"
        "from hermes_tools import terminal\n"
        "print(subprocess.run([sys.executable, 'knock.py'], capture_output=True, text=True).stdout.strip())\n"
        "print(terminal(command='python3 knock.py')['output'].strip())\n"
    )
    own, others = outcome(tmp_path, code)["output"].splitlines()
    assert own == "reached" and others.startswith("refused")


def test_a_script_makes_so_many_calls_and_no_more(tmp_path: Path) -> None:
    code = (
        "from hermes_tools import search_files\n"
        "answers = [search_files(pattern='x') for _ in range(51)]\n"
        "print(sum('at most 50 calls' in str(a) for a in answers))\n"
    )
    assert outcome(tmp_path, code)["output"].strip() == "1"


def test_arguments_have_the_order_of_the_schema_or_their_names(tmp_path: Path) -> None:
    def register(ctx: Any) -> None:
        odd = {"type": "object", "properties": {"tool": {"type": "string"}, "from": {"type": "string"}}}
        schema = {"name": "web_search", "description": "Search", "parameters": odd}
        ctx.register_tool("web_search", "own", schema, lambda args, **kw: json.dumps(args), override=True)

    code = (
        "from hermes_tools import patch, read_file, search_files, terminal, web_search\n"
        "from hermes_tools import write_file\n"
        "write_file('note.txt', 'tea\\ncake\\n')\n"
        "patch('replace', 'note.txt', 'tea', new_string='milk')\n"
        "print(read_file('note.txt', 2, limit=1)['content'], '1:milk' in str(search_files('milk', path='note.txt')))\n"
        "print(terminal('echo $((6 * 7))', 60)['output'].strip(), web_search('a', **{'from': 'b'}))\n"
        "for wrong in ((('a', 1, 2, 3), {}), (('a',), {'path': 'b'})):\n"
        "    try:\n"
        "        read_file(*wrong[0], **wrong[1])\n"
        "    except TypeError as exc:\n"
        "        print(exc)\n"
        "print(read_file.__doc__)\n"
    )
    allowed = {"entries": {"under-test": {"allow_tool_override": True}}}
    assert outcome(tmp_path, code, register, plugins=allowed)["output"].splitlines() == [
        "2|cake",
        " True",
        "42 {'from': 'b', 'tool': 'a'}",
        "read_file() takes at most 3 positional arguments (path, offset, limit), and 4 were given",
        "read_file() got two values for 'path': argument 1 and the keyword",
        "read_file(path, offset, limit)",
    ]


def test_an_error_of_the_script_is_seen(tmp_path: Path) -> None:
    result = outcome(tmp_path, "raise ValueError('broken')")
    assert result["exit_code"] == 1
    assert "ValueError: broken" in result["output"]


def test_without_a_sandbox_whoever_is_asked_reads_the_script_and_nobody_there_means_no(tmp_path: Path) -> None:
    config = {"terminal": {"cwd": str(tmp_path), "sandbox": "off"}}
    code = "from hermes_tools import read_file\nprint(read_file(path='note.txt')['content'])\nprint('é' * 3)"
    asked: list[str] = []

    def person(question: Any) -> str:
        asked.append(question.detail)
        return "once"

    (tmp_path / "note.txt").write_text("tea")
    answers = [call("execute_code", code=code), "done"]
    with plugin_host(lambda ctx: None, config=config, model=answers, approvals=person) as host:
        result = json.loads(host.ask("go").tool_calls[0].result)
    assert result["output"].split() == ["1|tea", "ééé"]
    assert len(asked) == 1 and code in asked[0]
    with plugin_host(lambda ctx: None, config=config, model=answers) as host:
        assert "execute_code" in host.visible_tools
        refused = host.ask("go").tool_calls[0].result
    assert "tea" not in refused and "1|" not in refused
    assert not list(tmp_path.glob("hermes-code-*"))


def test_where_commands_run_elsewhere_there_is_no_such_tool(tmp_path: Path) -> None:
    with plugin_host(lambda ctx: None, config={"terminal": {"backend": "ssh", "cwd": str(tmp_path)}}) as host:
        assert "execute_code" not in host.visible_tools
        assert "run in a remote backend" in host.dispatch_tool("execute_code", {"code": "print(1)"})


def test_the_description_names_only_tools_that_are_shown_beside_it(tmp_path: Path) -> None:
    def described(**agent: Any) -> str:
        config = {"terminal": {"cwd": str(tmp_path), "sandbox": "off"}, "agent": agent}
        with plugin_host(lambda ctx: None, config=config) as host:
            found = {d["function"]["name"]: d["function"] for d in host.host.agent.definitions("cli")}
        names = found["execute_code"]["description"].partition("import ")[2].partition("`")[0].split(", ")
        assert set(names) <= {*found, "call"}
        return str(names)

    assert "read_file" in described() and "terminal" in described()
    assert "read_file" not in described(disabled_toolsets=["file"])
    assert described(disabled_toolsets=["file", "terminal", "web"]) == "['call']"


SWAPPER = """
import os, sys
work, outside = sys.argv[1:]
print("up", flush=True)
while True:
    for name in os.listdir(work):
        if name.startswith("hermes-code-") and not name.endswith("-old"):
            try:
                os.rename(f"{work}/{name}", f"{work}/{name}-old")
                os.symlink(outside, f"{work}/{name}")
            except OSError:
                pass
"""


@pytest.mark.attack("races")
def test_the_directory_of_a_script_that_becomes_a_link_leads_nowhere(tmp_path: Path, attempt: Any) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    for place in (work, outside):
        place.mkdir()
    (outside / "socket").write_text("")
    (outside / "socket").chmod(0o600)
    swapper = subprocess.Popen(
        [sys.executable, "-c", SWAPPER, str(work), str(outside)], stdout=subprocess.PIPE, text=True
    )
    assert swapper.stdout is not None and swapper.stdout.readline() == "up\n"
    config = {"terminal": {"cwd": str(work), "sandbox": "bwrap"}}
    model = [
        call("execute_code", code=f"print({number})")
        for number in range(20 if os.environ.get("HERMES_ATTACK_FULL") else 8)
    ]
    try:
        with plugin_host(lambda ctx: None, config=config, model=[*model, "done"]) as host:
            if "execute_code" not in host.visible_tools:
                pytest.skip("no sandbox of bubblewrap can be made here")
            calls = host.ask("go").tool_calls
    finally:
        swapper.kill()
        swapper.wait()
        swapper.stdout.close()
    left = sorted(path.name for path in outside.iterdir())
    for tried in calls:
        attempt(left == ["socket"] and (outside / "socket").stat().st_mode & 0o777 == 0o600, f"{left}: {tried.result}")
    assert len(calls) == len(model) and not (outside / "socket").read_text()
