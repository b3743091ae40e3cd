"""The tool `execute_code`: a Python script that calls tools.

The script runs as a command of the tool `terminal`. It calls tools over a socket in a folder of its own below the
working directory. A call goes through the whole pipeline: guards, approval, limits. Without a sandbox the command
contains the whole script, so that the approval request shows it and the shell rules check it. Source: plugin contract
§4.7 (schema), §4.12 (parameters).
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import shlex
import socket
import stat
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from string import ascii_lowercase
from typing import Any

from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import new_id
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.system.files import hold_directory, open_beneath
from hermes_agent.tools import CallScope, Dispatcher, ToolRegistry, current_scope, shown_tools, tool_error, tool_schema

CALLABLE = ("patch", "read_file", "search_files", "terminal", "web_extract", "web_search", "write_file")
"""Tools that a script may call if they exist."""
MAX_CALLS = 50
TIMEOUT_S = 300
MAX_CODE = 100_000
"""Longest code, in bytes; an argument of a process has at most 131,072."""
MAX_CONNECTIONS = 32
"""Open connections of a script."""
MAX_REQUEST = 4_000_000
"""Longest request of a script, in bytes."""

SCHEMA = tool_schema(
    "execute_code", "Run a Python script that calls tools.", {"code": {"type": "string"}}, required=["code"]
)

_MODULE = '''\
import json as _json, os as _os, socket as _socket

_directory = _os.open(_os.path.dirname(_os.path.abspath(__file__)), _os.O_RDONLY)


def call(tool, /, **arguments):
    """Call a tool; returns what it returns, read as JSON where it is JSON."""
    with _socket.socket(_socket.AF_UNIX) as _s:
        _s.connect("/proc/self/fd/%d/socket" % _directory)
        _s.sendall(_json.dumps({"tool": tool, "arguments": arguments}).encode() + b"\\n")
        with _s.makefile("rb") as _f:
            _text = _json.loads(_f.readline())["result"]
    try:
        return _json.loads(_text)
    except ValueError:
        return _text


def _bound(tool, names, positional, arguments):
    """Return the arguments by name; those without one have the order of the tool's schema."""
    if len(positional) > len(names):
        _most = f"at most {len(names)} positional arguments ({', '.join(names)})" if names else "keywords alone"
        raise TypeError(f"{tool}() takes {_most}, and {len(positional)} were given")
    for _number, (_name, _value) in enumerate(zip(names, positional), 1):
        if _name in arguments:
            raise TypeError(f"{tool}() got two values for {_name!r}: argument {_number} and the keyword")
        arguments[_name] = _value
    return arguments

'''
_FUNCTION = '''
def {name}(*positional, **arguments):
    """{name}({shown})"""
    return call({name!r}, **_bound({name!r}, {names!r}, positional, arguments))

'''


@lazy_dataclass(slots=True, eq=False, repr=False)
class ExecuteCode:
    """The handler of `execute_code`.

    Attributes:
        sandbox: returns the sandbox of commands; "" if they run where they cannot reach the socket.
    """

    bridge: Bridge
    dispatcher: Dispatcher
    registry: ToolRegistry
    sandbox: Callable[[], str]

    def is_available(self) -> bool:
        """Return whether the tool may be shown."""
        return bool(self.sandbox())

    def schema(self) -> dict[str, Any]:
        """Return the description, which lists the present tools."""
        shown = shown_tools.get()
        names = ", ".join(n for n in self._callable(None) if shown is None or n in shown) or "call"
        return {
            "description": (
                f"Run a Python script that calls tools: `from hermes_tools import {names}`, each with the tool's"
                " parameters in their order or as keywords; a JSON result comes as its value. For many calls whose"
                f" results only the script must see: print what you need. At most {MAX_CALLS} calls and {TIMEOUT_S} s."
            )
        }

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Run the script and return what `terminal` returns."""
        code = str(args.get("code") or "")
        if not code.strip():
            raise ToolFailed("there is no code")
        if (size := len(code.encode("utf-8", "replace"))) > MAX_CODE:
            raise ToolFailed(f"the code has {size} bytes; {MAX_CODE} is the most")
        scope = current_scope.get()
        if scope is None:
            raise ToolFailed("a script runs only in a conversation")
        if not self.is_available():
            raise ToolFailed("commands run in a remote backend, so a script cannot call tools; use `terminal`")
        try:
            return self._run_in_directory(code, replace(scope, task_id=new_id("script"), extra={}))
        except OSError as exc:
            raise ToolFailed(f"no script can be put into {scope.cwd}: {exc.strerror or exc}") from exc

    def _run_in_directory(self, code: str, scope: CallScope) -> str:
        """Run the script in a folder of its own, which is removed after it."""
        import shutil  # with the first script

        with hold_directory(str(scope.cwd), make=False) as above:
            name = f"hermes-code-{''.join(secrets.choice(ascii_lowercase) for _ in range(12))}"
            os.mkdir(name, 0o700, dir_fd=above)
            try:
                place = open_beneath(above, name, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    return self._run(code, place, f"{scope.cwd}/{name}", scope)
                finally:
                    os.close(place)
            finally:
                shutil.rmtree(name, ignore_errors=True, dir_fd=above)

    def _run(self, code: str, place: int, path: str, scope: CallScope) -> str:
        """Run the script. Commands of other calls may write to the folder, and exchange each name in it.

        Args:
            place: descriptor of the folder; its files are reached only through it.
            path: path of the folder for the command.
        """
        allowed, sandbox = self._callable(scope), self.sandbox()
        # in a systemd unit another user runs it, in the group of the working directory, which only the agent and its
        # commands have; it reads the two files, and a connection to the socket needs the permission to write
        directory, file, connect = (0o750, 0o640, 0o660) if sandbox == "systemd" else (0o700, 0o600, 0o600)
        os.fchmod(place, directory)
        _write_file(place, "hermes_tools.py", _MODULE + "".join(self._functions(allowed)), file)
        _write_file(place, "script.py", code, file)
        listening = _ToolSocket(self.dispatcher, scope, allowed)
        self.bridge.wait_core(listening.open(place, connect))
        scope = replace(scope, tool_socket=f"{path}/socket")
        command = f"python3 {shlex.quote(f'{path}/script.py')}"
        if sandbox == "none":
            end = new_id("end")
            command = f"PYTHONPATH={shlex.quote(path)} python3 - <<'{end}'\n{code}\n{end}"
        try:
            arguments = {"command": command, "timeout": TIMEOUT_S}
            return self.dispatcher.run_inline(new_id("call"), "terminal", arguments, scope).result
        finally:
            self.bridge.wait_core(listening.close())

    def _functions(self, names: list[str]) -> Iterator[str]:
        """Yield the source of a function for each tool, with parameters in the order of the schema."""
        schemas = {d["function"]["name"]: d["function"] for d in self.registry.get_definitions(names)}
        for name in names:
            properties = (schemas.get(name, {}).get("parameters") or {}).get("properties") or {}
            parameters = tuple(str(parameter) for parameter in properties)
            shown = ", ".join(parameter for parameter in parameters if parameter.isidentifier())
            yield _FUNCTION.format(name=name, names=parameters, shown=shown)

    def _callable(self, scope: CallScope | None) -> list[str]:
        shown = None if scope is None else scope.shown
        return [
            name
            for name in CALLABLE
            if (entry := self.registry.get(name)) is not None
            and self.registry.is_usable(entry)
            and (shown is None or name in shown)
        ]


def _write_file(directory: int, name: str, text: str, mode: int) -> None:
    """Write a new file into an open directory."""
    handle = open_beneath(directory, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        os.fchmod(handle, mode)
        file.write(text)


@lazy_dataclass(slots=True, eq=False, repr=False)
class _ToolSocket:
    """The socket over which a script calls tools. Used on the core loop."""

    dispatcher: Dispatcher
    scope: CallScope
    allowed: list[str]
    _calls_left: int = MAX_CALLS
    _server: asyncio.Server | None = None
    _connections: set[asyncio.Task[None]] = field(default_factory=set)

    async def open(self, place: int, mode: int) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"/proc/self/fd/{place}/socket")  # a path of any length: the kernel takes 107 bytes
        handle = open_beneath(place, "socket", os.O_PATH)
        try:
            if not stat.S_ISSOCK(os.fstat(handle).st_mode):
                raise OSError(errno.ELOOP, "the socket of the script was replaced")
            os.chmod(f"/proc/self/fd/{handle}", mode)  # noqa: PTH101 - a name could be exchanged
        finally:
            os.close(handle)
        self._server = await asyncio.start_unix_server(self._serve_connection, sock=listener, limit=MAX_REQUEST)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= MAX_CONNECTIONS:  # each uses a descriptor of the agent
            writer.close()
            return
        self._connections.add(task)
        try:
            result = await self._answer(await reader.readline())
            writer.write(json.dumps({"result": result}).encode() + b"\n")
            await writer.drain()
        except (
            ConnectionError,
            ValueError,
            RecursionError,
        ) as exc:  # it disconnected, or the request is invalid or too long
            writer.write(json.dumps({"result": tool_error(f"the call was not understood: {exc}")}).encode() + b"\n")
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, line: bytes) -> str:
        request = json.loads(line)
        if not isinstance(request, dict):
            raise ValueError("it is no mapping")
        name, arguments = request.get("tool"), request.get("arguments")
        if name not in self.allowed or not isinstance(arguments, dict):
            return tool_error(f"a script cannot call {name!r}; it can call {', '.join(self.allowed)}")
        self._calls_left -= 1
        if self._calls_left < 0:
            return tool_error(f"a script makes at most {MAX_CALLS} calls")
        self.dispatcher.coerce(name, arguments)
        scope = replace(self.scope, task_id=new_id("script"))  # a shell of its own: the script's is busy
        return (await self.dispatcher.run(new_id("call"), name, arguments, scope)).result
