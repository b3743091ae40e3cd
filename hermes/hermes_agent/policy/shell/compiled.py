"""Programs that a script writes, compiles and runs: which file comes of which source, and whether that is harmless."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from hermes_agent.policy.shell.paths import resolve_place
from hermes_agent.policy.shell.planted import build_commands
from hermes_agent.policy.shell.script import UNDETERMINED, NestedCode, ShellCommand

__all__ = ["compiled_programs", "read_source", "compiled_files"]

_COMPILERS = re.compile(
    r"(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|tcc|c99|c89|rustc|gfortran|gdc|dmd|ghc|ocamlopt|nim|zig|fpc|valac|cobc)(?:-[\d.]+)?$"
)
_SOURCE = re.compile(r"\.(?:c|cc|cpp|cxx|c\+\+|rs|go|java|f90|d|hs|ml|nim|zig|pas|vala|s|S|asm|cob)$")
_HEADERS = re.compile(
    r"(?:std(?:io|lib|int|bool|def|arg)|string|math|ctype|time|assert|limits|float|inttypes|complex|errno|locale|iso646"
    r"|iostream|iomanip|sstream|vector|map|set|unordered_map|unordered_set|algorithm|numeric|string_view|array|tuple"
    r"|utility|functional|memory|optional|variant|chrono|random|bitset|deque|queue|stack|list|cmath|cstd\w+|cstring"
    r"|cctype|ctime|climits|cassert|type_traits|limits|ranges|span|concepts|iterator|initializer_list)(?:\.h)?$"
)
_POWER = re.compile(
    r"\b(?:system|popen|v?fork|clone|exec[lv]\w*|posix_spawn\w*|remove\w*|unlink\w*|rmdir|rename\w*|syscall|dlopen|kill"
    r"|raise|reboot|mount|umount2?|ioctl|ptrace|socket|connect|open\w*|creat|f?re?open|fopen|[io]?fstream|filesystem"
    r"|f?truncate|f?chmod|f?chown|symlink|mmap|asm|__asm\w*|extern|process|unsafe|libc|std::(?:fs|net|os|env)"
    r"|ProcessBuilder|Runtime|java\.(?:net|nio)|FileWriter|FileOutputStream|Files?|reflect|import|use\s+std::(?:fs|net)"
    r"|os/exec|plugin|Command|performIO|executeProgram)\b|@cImport|/dev/"
)
_IMPORTS = re.compile(
    r'(?m)^\s*import\s+(?:"(?:fmt|math|strings|strconv|sort|time|errors|unicode)"|java\.util\.[\w.*]+;)'
)
_FORKS = re.compile(r"(?:while|for)\s*\([^{};]*(?:;[^{};]*;[^{};]*)?\)\s*\{?[^{}]*\bfork\b|loop\s*\{[^{}]*\bfork\b")


def compiled_programs(command: ShellCommand) -> Iterator[tuple[str, str]]:
    """Yield the programs that a compiler makes, and the source of each; `-` is what it reads."""
    if _COMPILERS.match(command.name):
        sources = [o for o in command.operands if o == "-" or _SOURCE.search(o)]
        named = [b for a, b in zip(command.args, command.args[1:], strict=False) if a == "-o"]
        named += [a[2:] for a in command.args if re.match(r"-o[^-]", a)]
        stem = posixpath.basename(sources[0]).rpartition(".")[0] if sources else ""
        for source in sources:
            yield from ((resolve_place(command, name), source) for name in named or ("a.out", stem))
    elif command.name == "javac":
        yield from (
            (resolve_place(command, o.removesuffix(".java")), o) for o in command.operands if o.endswith(".java")
        )
    elif command.name in ("go", "make", "gmake"):
        for operand in command.operands:
            name = operand.rpartition(".")[0] if operand.endswith(".go") else operand
            endings = (".go",) if command.name == "go" else (".c", ".cc", ".cpp")
            yield from ((resolve_place(command, name), f"{name}{ending}") for ending in endings)


def compiled_files(command: ShellCommand) -> tuple[str, ...]:
    """Return the compiled files that a command may run."""
    if command.name in ("java", "tcc", "go", "rust-script", "runghc", "zig"):
        return tuple(resolve_place(command, operand) for operand in command.operands)
    return (resolve_place(command, command.words[0].text),) if command.words and "/" in command.words[0].text else ()


def read_source(text: str) -> NestedCode:
    """Return what a source runs, once it is compiled: nothing, where it only calculates and prints."""
    found = build_commands(text)
    if _FORKS.search(text):
        found += NestedCode((":(){ :|:& };:",))
    headers = re.findall(r'(?m)^\s*#\s*include\s*[<"]([^>"]+)[>"]', text)
    bare = re.sub(
        r'"(?:\\.|[^"\\\n])*"',
        '""',
        _IMPORTS.sub("", re.sub(r"//[^\n]*|/\*.*?\*/|#\s*include[^\n]*", "", text, flags=re.DOTALL)),
    )
    harmless = all(map(_HEADERS.match, headers)) and not _POWER.search(bare)
    return found if harmless else found + NestedCode(marks=frozenset({UNDETERMINED}))
