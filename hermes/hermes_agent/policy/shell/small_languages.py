"""Readers of small languages: which commands a text in them runs.

- `READERS`: awk, sed, SQL, makefiles, build files, options in variables, …
- `read_line_language`: editors, debuggers, file transfer, databases; their words are in `languages.txt`.
- `autostart_commands`, `read_source`: units and crontabs, and sources that a script writes, compiles and runs.
"""

from __future__ import annotations

import functools
import posixpath
import re
import shlex
from collections.abc import Callable, Iterator

from hermes_agent.policy.shell import code, python
from hermes_agent.policy.shell.paths import resolve_place
from hermes_agent.policy.shell.script import (
    LIBRARY,
    NETWORK,
    UNDETERMINED,
    UNKNOWN,
    NestedCode,
    PossibleScript,
    ShellCommand,
)

_UNIT = re.compile(r"/systemd/.*\.(?:service|timer|socket|mount|conf)$|\.service$")
_TABLE = re.compile(r"/etc/(?:cron\.d/|crontab$)|/var/spool/cron/")
_SCRIPT = re.compile(r"/etc/(?:cron\.(?:hourly|daily|weekly|monthly)/|init\.d/|rc\.local$|profile(?:\.d/|$)|rc\d\.d/)")
_EXEC = re.compile(r"(?m)^\s*Exec\w+\s*=[-@:+!|\s]*(.+)$")
_LINE = re.compile(r"(?m)^\s*(?:@\w+|(?:[-\d*/,A-Za-z]+[ \t]+){5})\s*(.+)$")
_CALL = re.compile(r"\b(?:system|popen|exec\w*)\s*\(\s*\"((?:\\.|[^\"\\])*)\"\s*[,)]")
_LIST = re.compile(r"\b(?:Command(?:::new)?|execl[pe]*|execv[pe]*|ProcessBuilder)\s*\(([^;]*)")


def autostart_commands(path: str, text: str) -> NestedCode:
    """Return the commands that a file at this path runs through systemd, cron or an init script."""
    if _UNIT.search(path):
        return NestedCode(tuple(_EXEC.findall(text)))
    if _TABLE.match(path):
        lines = _LINE.findall(text)  # a line in the table of a user has no user name
        return NestedCode((*lines, *(line.partition(" ")[2] for line in lines if path.startswith("/etc/"))))
    return NestedCode((text,)) if _SCRIPT.match(path) else NestedCode()


def build_commands(text: str) -> NestedCode:
    """Return the commands that the source of a compiled program starts, as far as they are literals."""
    calls = [call.replace('\\"', '"') for call in _CALL.findall(text)]
    lists = [" ".join(re.findall(r'"((?:\\.|[^"\\])*)"', given)) for given in _LIST.findall(text)]
    return NestedCode((*calls, *filter(None, lists)))


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
    """Yield the programs that a compiler makes, each with its source; `-` is the standard input."""
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
    """Return the commands of a compiled source; none when it only calculates and prints."""
    found = build_commands(text) + NestedCode(tuple(f"rm -rf {shlex.quote(path)}" for path in code.emptied(text)))
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


_UNTOLD = frozenset({UNDETERMINED})


def _awk(text: str) -> NestedCode:
    """Read awk: commands after `system(`, before `| getline`, after `print |`; files after `>`."""
    if len(text) > code.LONGEST:
        return NestedCode(tuple(code.texts(text)), _UNTOLD)
    bare = re.sub(r'#[^\n]*(?=\n|$)|"(?:\\.|[^"\\])*"', lambda m: '"' if m[0][0] == '"' else "", text)
    bare = re.sub(r"(?:(?<=[~(,{};!&|\n])|(?<=^)|(?<=[~(,{};!&|\n]\s))\s*/(?:\\.|\[[^\]]*\]|[^/\\\n])+/", " 0 ", bare)
    parts: list[str] = []
    marks: set[str] = set()
    runs = re.search(r"\bsystem\s*\(|(?<!\|)\|&?(?!\|)|@\w+\s*\(|@load\b", bare)
    if runs:
        parts += code.texts(text)
        is_literal = re.fullmatch(
            r'(?s)(?:[^|]|\|\|)*?(?:system\s*\(\s*"[^"]*"\s*\)|"[^"]*"\s*\|&?\s*getline|\|&?\s*"[^"]*")(?:(?!system|\||@).)*',
            text,
        )
        marks |= set() if is_literal else _UNTOLD
    if "/inet" in text:
        marks |= {NETWORK, UNDETERMINED}
    parts += [f": > '{m[1]}'" for m in re.finditer(r'(?:print|printf)\b[^;\n}]*>{1,2}\s*"([^"\']*)"', text)]
    if UNKNOWN in text:
        marks |= _UNTOLD
    return NestedCode(tuple(parts), frozenset(marks))


def _sed(text: str) -> NestedCode:
    """Read sed: the command `e` of GNU sed runs its argument or the line; `w` writes a file."""
    parts: list[str] = []
    marks: set[str] = set()
    rest = text
    while rest:
        rest = rest.lstrip(" \t\n;{}")
        rest = re.sub(
            r"^(?:\d+~?\d*|\$|/(?:\\.|\[[^\]]*\]|[^/\\])*/[IM]*|\\(.)(?:(?!\1).)*\1[IM]*)?(?:,\s*(?:[+~]?\d+|\$|/(?:\\.|[^/\\])*/[IM]*))?\s*!?\s*",
            "",
            rest,
        )
        rest = rest.lstrip(" \t")
        verb, line = rest[:1], rest.partition("\n")[0]
        if verb in ("s", "y") and len(rest) > 2:
            mark = re.escape(rest[1])
            match = re.match(
                rf"[sy]{mark}((?:\\.|\[[^\]\n]*\]|(?!{mark})[^\\])*){mark}((?:\\.|(?!{mark})[^\\])*){mark}([^;}}\n]*)",
                rest,
                re.DOTALL,
            )
            if match is None:
                return NestedCode(
                    tuple(parts), frozenset({*marks, UNDETERMINED}) if UNKNOWN not in rest else frozenset(marks)
                )
            flags = match[3].partition("w")
            if verb == "s" and "e" in flags[0]:
                parts.append(re.sub(r"\\(.)", r"\1", match[2]))
                marks |= _UNTOLD
            if flags[1]:
                parts.append(f": > {flags[2].strip()}")
            rest = rest[match.end() :]
        elif verb == "e":
            argument = line[1:].strip().rstrip("}").strip()
            parts += [argument] if argument else []
            marks |= set() if argument else _UNTOLD
            rest = rest[len(line) :]
        elif verb in ("w", "W"):
            parts.append(f": > {line[1:].strip()}")
            rest = rest[len(line) :]
        elif verb in ("a", "i", "c", "r", "R", ":", "b", "t", "T", "#"):
            ends = re.match(r"[bt:T][^;}\n]*", rest) if verb in "btT:" else re.match(r"(?:\\\n|[^\n])*", rest)
            rest = rest[ends.end() if ends else len(line) :]
        else:
            rest = rest[1:]
    return NestedCode(tuple(parts), frozenset(marks))


_SQL_SHELL = re.compile(
    r"(?mi)(?:^|;)[\t\x20]*(?:\\+!|\.(?:shell|system)\b|system\b|!)\s*(.+)|\bprogram\s+'((?:[^']|'')+)'"
    r"|\b(?:xp_cmdshell|sys_exec|sys_eval|shellfs|system)\s*\(?\s*'((?:[^']|'')+)'"
    r"|^[\t\x20]*(?:\.(?:once|output|import|read)|\\[og]|\\copy\b.*?(?:to|from)\s+program)\s+(?:-\w\s+)?[\"']?\|?\s*'?"
    r"((?<=\|).+|(?<=program ').+)"
    r"|\\setenv\s+\w*(?:PAGER|EDITOR)\w*\s+(.+)|^[\t\x20]*(?:\\P|pager)\s+(.+)|(?i:from_program|read_text)\(\s*'((?:[^']|'')+)\|'"
)
_SQL_UNTOLD = re.compile(
    r"(?i)\b(?:load_extension|load_file|sys_exec|sys_eval|xp_cmdshell|lo_export|lo_import|into\s+(?:out|dump)file|writefile|edit\s*\("
    r"|create\s+(?:or\s+replace\s+)?(?:function|procedure|extension)\b.*\b(?:plpython\w*|plperlu|plsh|c)\b|install\s+plugin|soname"
    r"|pg_read_file|pg_execute|utl_http|dbms_scheduler)|^\s*\.(?:load|open\s+\|)|\bload\s+'"
)
_SQL_FILE = re.compile(
    r"(?im)^[\t\x20]*(?:\.(?:output|once|backup|save|clone|log|dump)\s+|\\o\s+)([^|\s]\S*)|into\s+(?:out|dump)file\s+'([^']+)'|(?:writefile\(|copy\s.*?\sto)\s*'([^']+)'"
)


def _sql(text: str) -> NestedCode:
    """Read the shell escapes of SQL clients; rules judge the statements."""
    parts = [
        next(g for g in m.groups() if g).strip("'\" |").replace("''", "'")
        for m in _SQL_SHELL.finditer(text)
        if any(m.groups())
    ]
    files = [f": > {m[1] or m[2] or m[3]}" for m in _SQL_FILE.finditer(text)]
    library = (
        frozenset({LIBRARY})
        if re.search(r"(?im)load_extension|^[ \t]*\.load|install\s+plugin|soname", text)
        else frozenset[str]()
    )
    return NestedCode((*parts, *files), library | (_UNTOLD if _SQL_UNTOLD.search(text) else frozenset()))


def _has_recipe(line: str) -> bool:
    """Return whether a line of a makefile is a rule with a recipe after `;`."""
    head, ends, _ = line.partition(";")
    target, colon, _ = head.partition(":")
    return bool(ends and colon and target[:1].strip()) and "=" not in head and "#" not in target


def _make(text: str) -> NestedCode:
    """Read the recipes, `$(shell …)` and `!=` of a makefile."""
    parts = [match[1] for match in re.finditer(r"\$[({](?:shell)\s+(.{1,2000}?)[)}](?=[^)}]|$)", text)]
    parts += [match[1] for match in re.finditer(r"(?m)^[ \t]*[\w.-]+[ \t]*!=[ \t]*(.+)$", text)]
    parts += [match[1] for match in re.finditer(r"(?m)^(?:override\s+|export\s+)?SHELL\s*:?=\s*(.+)$", text)]
    for line in re.sub(r"\\n", "\n", re.sub(r"\\t", "\t", text)).splitlines():
        if line.startswith("\t"):
            parts.append(line.strip().lstrip("@-+"))
        elif _has_recipe(line):
            parts.append(line.partition(";")[2].strip().lstrip("@-+"))
    parts = [part.replace("$$", "$") for part in parts]
    load = re.search(r"(?m)^[ \t]*-?load\s|\$[({](?:guile|eval|call|foreach)\b", text)
    eval_option = re.search(r"--eval[=\s](.+)", text)
    return NestedCode((*parts, *([eval_option[1]] if eval_option else [])), _UNTOLD if load else frozenset())


_DECLARES = re.compile(
    r"""\s*(?:\#.*|//.*|(?:project|executable|static_library|shared_library|test|cmake_minimum_required|add_executable
    |add_library|enable_testing)\((?:[\w\s.,:/-]|'[\w\s.,:/+-]*'|"[\w\s.,:/+-]*")*\)|fn\s+main\(\)\s*\{\s*(?:println!\("[^"\\{}]*"\);\s*)*\}?
    |println!\("[^"\\{}]*"\);|\})\s*$""",
    re.VERBOSE,
)
"""Lines of build files that only name targets, or print."""


def _just(text: str) -> NestedCode:
    """Read the recipes of a justfile, with any indentation."""
    return _make(re.sub(r"(?m)^[ \t]+", "\t", text))


def _hcl(text: str) -> NestedCode:
    """Read a Terraform configuration: some blocks run programs."""
    parts = re.findall(r'(?m)\bcommand\s*=\s*"((?:\\.|[^"\\])*)"', text)
    runs = re.search(r'"(?:local-exec|remote-exec|external)"|\bexec\s*\{', text)
    return NestedCode(tuple(parts), _UNTOLD) if runs else NestedCode()


def _build(text: str) -> NestedCode:
    """Read a build file of another tool, which may have its commands in pieces."""
    if all(map(_DECLARES.match, filter(str.strip, text.splitlines()))):
        return NestedCode()
    strings = re.findall(r'"([^"]*)"', text)
    joined = (PossibleScript(" ".join(strings[at:])) for at in range(min(len(strings), code.MOST_TEXTS)))
    return NestedCode((*code.texts(text), *joined), _UNTOLD)


def _node_options(text: str) -> NestedCode:
    loads = re.search(r"(?:--require|-r|--import|--loader|--experimental-loader)[=\s]", f"{text} ")
    return NestedCode((), frozenset({LIBRARY}) if loads else frozenset())


def _java_options(text: str) -> NestedCode:
    parts = [m[1].strip("\"'") for m in re.finditer(r"-XX:On(?:Error|OutOfMemoryError)=(\"[^\"]*\"|'[^']*'|\S+)", text)]
    loads = re.search(r"-(?:javaagent|agentpath|agentlib):|-Xbootclasspath", text)
    return NestedCode(tuple(parts), frozenset({LIBRARY}) if loads else frozenset())


def _go_flags(text: str) -> NestedCode:
    return NestedCode(tuple(match[1] for match in re.finditer(r"-(?:toolexec|exec|vettool)=(\S+)", text)))


def _substitutions(text: str) -> NestedCode:
    """Read a prompt, which is expanded like a text in double quotes."""
    escaped = text.replace('"', '\\"')
    return NestedCode((f'echo "{escaped}"',)) if "$(" in text or "`" in text else NestedCode()


def _m4(text: str) -> NestedCode:
    runs = re.search(r"\b(?:esyscmd|syscmd)\b", text)
    parts = [m[1].strip("`'") for m in re.finditer(r"\b(?:esyscmd|syscmd)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)", text)]
    return NestedCode(tuple(parts), _UNTOLD if runs and not parts else frozenset())


def _dc(text: str) -> NestedCode:
    return NestedCode(tuple(m[1] for m in re.finditer(r"(?m)(?<![<>=])!([^<>=\n].*)$", text)))


def _rpm(text: str) -> NestedCode:
    parts = [m[1] for m in re.finditer(r"%\((.+)\)", text[: text.rfind(")") + 1], re.DOTALL)]
    lua = re.search(r"%\{lua:(.*)\}", text[: text.rfind("}") + 1], re.DOTALL)
    return NestedCode(tuple(parts)) + (code.read("lua", lua[1]) if lua else NestedCode())


def _tcl(text: str) -> NestedCode:
    """Read Tcl: the commands of `exec` and `spawn`."""
    parts = [
        m[1].strip("\"'{}[]")
        for m in re.finditer(r"(?:^|[\[;{\n]|\b)[ \t]*(?:spawn|exec|open\s+[\"{]?\|)\s*(?:-\w+\s+)*([^;\n\]]+)", text)
    ]
    plain = re.fullmatch(
        r"(?:\s*(?:spawn|exec|expect|send|interact|set|puts|sleep|wait|exit|eof|timeout)\b[^;\n\[]*[;\n]?)*", text
    )
    known = bool(plain) or (not parts and code.read("tcl", text) == NestedCode())
    return NestedCode((*parts, *(() if known else code.texts(text))), frozenset() if known else _UNTOLD)


def _tex(text: str) -> NestedCode:
    parts = [m[1] for m in re.finditer(r"\\write18\s*\{([^}]*)\}|\\input\s*\|\s*\"([^\"]*)\"", text) if m[1]]
    lua = re.search(r"\\directlua\s*\{(.*)\}", text, re.DOTALL)
    runs = re.search(r"write18|\|\s*\"|ShellEscape|special", text)
    return NestedCode(tuple(parts), _UNTOLD if runs else frozenset()) + (
        code.read("lua", lua[1]) if lua else NestedCode()
    )


def _yaml(text: str) -> NestedCode:
    parts = [m[1].strip("'\"") for m in re.finditer(r"(?:shell|command|raw|script|cmd):\s*([^\n\]}]+)", text)]
    return NestedCode(tuple(parts), _UNTOLD)


READERS: dict[str, Callable[[str], NestedCode]] = {
    "awk": _awk,
    "sed": _sed,
    "sql": _sql,
    "make": _make,
    "build": _build,
    "just": _just,
    "hcl": _hcl,
    "nodeoptions": _node_options,
    "goflags": _go_flags,
    "javaoptions": _java_options,
    "substitutions": _substitutions,
    "m4": _m4,
    "built": build_commands,
    "dc": _dc,
    "rpm": _rpm,
    "tcl": _tcl,
    "tex": _tex,
    "yaml": _yaml,
    "cmake": lambda text: (
        NestedCode()
        if all(map(_DECLARES.match, filter(str.strip, text.splitlines())))
        else NestedCode(
            tuple(m[1].strip("\"'") for m in re.finditer(r"(?s)execute_process\s*\(\s*COMMAND\s+([^)]*)\)", text)),
            _UNTOLD,
        )
    ),
    "scripts": lambda text: NestedCode(
        tuple(m[1] for m in re.finditer(r'"[\w:.-]+"\s*:\s*"((?:\\.|[^"\\])*\s[^"]*|/[^"]+)"', text))
    ),
    "go": lambda text: (
        code.read("go", text) if re.search(r'"(?:os/exec|net|net/http|syscall|unsafe|plugin)"', text) else NestedCode()
    ),
}


_WRITES = ("e", "edit", "w", "write", "sav", "saveas", "x", "wq", "W", "up", "update")


@functools.cache
def line_languages() -> frozenset[str]:
    """Return the names of the line languages."""
    return frozenset(name for name, row in code.table().items() if "shell" in row or name in ("mongo", "redis"))


def read_line_language(language: str, text: str) -> NestedCode:
    """Return the commands that the lines of a text run."""
    if language == "mongo":
        runs = re.search(
            r"\b(?:require|import|eval|load|process|Function|constructor|child_process|fs|run\w*Program)\b", text
        )
        return NestedCode(marks=frozenset({UNDETERMINED}) if runs else frozenset())  # rules judge changes of data
    row = code.table()[language]
    strip = r"[\d" + re.escape("".join(row.get("strip", ()))) + r"\s]*" if "strip" in row else r"\s*"
    found = NestedCode()
    splits = "|".join([r"\n", *(re.escape(mark) for mark in row.get("split", ()))])
    at = 0
    while at <= len(text):  # a command for a shell extends to the end of the line
        end = re.compile(splits).search(text, at)
        line, rest = text[at : end.start() if end else len(text)], text[at:].partition("\n")[0]
        given = re.sub(rf"^:?{strip}:*\s*(?:sil(?:ent)?!?\s+)?", "", line)
        whole = rest[len(line) - len(given) :]
        step, more = _command(language, given, whole, row)
        found += more
        at += len(rest) + 1 if step else len(line) + 1
    return found


def _command(language: str, given: str, whole: str, row: dict[str, tuple[str, ...]]) -> tuple[bool, NestedCode]:
    """Return whether the rest of the line belongs to a command, and the code that it runs."""
    if not given.strip() or given.startswith(("#", '"')):
        return False, NestedCode()
    for word in sorted(row.get("shell", ()), key=len, reverse=True):
        ends = "" if word.endswith(("!", "|")) else r"\b"
        if match := re.match(rf"{re.escape(word.replace('_', ' '))}{ends}\s*(.*)", whole, re.DOTALL):
            return True, NestedCode(
                (match[1],) if match[1].strip() else (),
                frozenset({UNDETERMINED}) if not match[1].strip() else frozenset(),
            )
    if match := re.match(r"(?:r(?:ead)?\s*|w(?:rite)?\s+)!\s*(.+)|[gv]/.*?/.*?!(.+)", whole):
        return True, NestedCode((match[1] or match[2],))
    match = re.match(r"([^\s!/]*)[!\s]*(.*)$", given, re.DOTALL)
    name, argument = (match[1], match[2]) if match else ("", "")
    for inside in ("python", "lua", "perl", "ruby", "tcl"):
        if name in row.get(f"{inside}:", ()):
            return True, python.read(argument or "") if inside == "python" else code.read(inside, argument or "")
    target = (argument or "").split()[-1:] if language in ("vim", "ed") and name in _WRITES else []
    written = NestedCode((f": >> {target[0]}",)) if target and not target[0].startswith("+") else NestedCode()
    calls = re.search(
        r"\b(?:system|systemlist|execute|exe|termopen|jobstart|luaeval|py3?eval|call|eval|shell|makeprg|grepprg)\b|=\s*`",
        given,
    )
    plain = name in row.get("words", ()) or not re.match(r"[A-Za-z!]", name)
    plain = plain or (re.match(r"[A-Za-z]", name) is not None and language == "redis" and name.lower() in row["words"])
    letter = language in ("vim", "ed") and re.match(r"[sgvydpmtk]\W", given) is not None
    if (plain or letter) and not calls:
        return False, written
    return False, NestedCode(tuple(code.texts(given)), frozenset({UNDETERMINED})) + written
