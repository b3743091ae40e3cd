"""Code in languages that are not parsed: harmless when every name in it is known to be harmless.

Other code is unknown. The texts in it that it may pass to a shell are judged, so that hard-line commands are found.
"""

from __future__ import annotations

import base64
import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.policy.shell.paths import is_credential, is_home, is_system_directory, is_vital
from hermes_agent.policy.shell.script import NETWORK, UNDETERMINED, UNKNOWN, NestedCode, PossibleScript, word_set

MOST_TEXTS = 40
LONGEST = 10_000
"""Most characters of code in which names are checked."""
RISKY = word_set("risky-names")
"""Names that run something in some language; code that binds them or uses them as members is unknown."""
_CHANGES = re.compile(
    r"(?:write|append|create|delete|remove|unlink|rmdir|rmtree|rimraf|rm|rename|move|copy|cp|symlink|link|chmod|chown|truncate|mkdir|touch"
    r"|install|mv|ln|utimes|lchown|open|put|outputStream)(?:[A-Z_]\w*|Sync|File|_[a-z]\w*|[rf]+|p_r|tree|dir|s|dirs)?$"
)
"""Names of file functions; the file decides whether they are harmless."""
_FILES = re.compile(
    r"\b(?:File|Dir|FileUtils|Pathname|IO|fs|Deno|Bun|promises|Path)\b|['\"](?:node:)?fs(?:/promises)?['\"]"
)
_BINDS = re.compile(
    r"\bimport\s+(?:\*\s+as\s+)?([\w ,{}]{1,200}?)\s+from\b"
    r"|\b(?:const|let|var|def|function|fn|sub|local|for|class|using|catch|fun)\s+([\w\s,{}\[\]:$*.]{1,200}?)"
    r"(?=[=(;)|\n]|\bin\b|\bof\b)"
    r"|\|([\w\s,*&()]{1,80})\||\(([\w\s,{}\[\].=]{0,200})\)\s*=>|\b(\w+)\s*=>"
    r"|\b([\w ,]{1,60}?)(?:<-|:=|(?:[-+*/.|&]|\|\|)?=(?![=~>]))"
)
_R_POWER = re.compile(r"source|unlink|get$|mget|match|parse|eval|assign|load|download|url|shell|sys|file|remove|rename")
"""Functions of R that may be passed to others; any other name that is not called is data."""
_OBJECTS = ("perl", "ruby", "javascript", "php", "lua")
"""Languages in which the names before a member decide what it does."""
_OPENS = re.compile(r"(?:https?|ftp|php|data|phar|expect):|\|")
"""Names of files that open functions treat as an address or a program."""
_OPENS_TO_WRITE = re.compile(r"['\"](?:\+?[|>]|-\||\+<)|['\"].*\|['\"]$")
_NAMES = re.compile(
    r"(?:(\.{1,2}|->|::|&\.|\?\.)\s*([A-Za-z_]\w*[!?]?)|(?<![\w$@%])([A-Za-z_]\w*[!?]?))(\s*[:=]>?(?!:)|\s*\})?"
)
_DYNAMIC = re.compile(
    r"\]\s*\(|&\s*[{$]|->\s*\$|->\s*\(|\$\$|\$\{\s*['\"]|\$\w+\s*\(|\*\{|\)\s*\(\s*['\"]|<<<|%x\W|\bqx\b"
)
_HARD = re.compile(
    r"(?:sudo\s+)?(?:/\w+){0,8}\b(?:rm\s+-[^'\"`)\]};|]*|mkfs[^'\"`)\]};|]+|dd\s+\w+=[^'\"`)\]};|]+|shutdown\s[^'\"`)\]};|]+"
    r"|(?:reboot|poweroff|halt)\b|kill\s+-\w+\s+-1|wipefs\s[^'\"`)\]};|]+|shred\s[^'\"`)\]};|]+|systemctl\s[^'\"`)\]};|]+)"
)
_DELETES = re.compile(
    r"\b(?:rmtree|remove_tree|removedirs|rm_rf|rm_r|rmSync|rmdirSync|rm|removeSync|rimraf|remove_dir_all|remove_entry_secure"
    r"|delete-directory|removeDirectoryRecursive|deleteDirectory|unlink|rmdir|rimrafSync|remove_dir|finddepth|rmrf"
    r"|delete(?=\s*\(\s*[\"'][^\"']*[\"']\s*,\s*[\"']rf))\b"
    r"!?\s*\(?\s*(?:[\w.:]+[(\s]\s*)?(?:\[\s*)?([\"'])(.*?)\1"
)
_DELETES_OTHERWISE = re.compile(
    r"\bfile\s+delete\s+(?:-force\s+)?(?:--\s+)?[\"{]?(?P<tcl>[/~][^\s\"}\];]*)"
    r"|\bfind(?:depth)?\b.{0,200}?\b(?:unlink|rmdir|rmtree)\b.{0,80}?[\"'](?P<perl>[/~][^\"']*)[\"']"
    r"|\b(?:File|Files?Path|Paths?|Pathname|Dir|FileInfo|DirectoryInfo)\b[\w.]{0,80}\s*[(\[]\s*[\"'](?P<object>[^\"']+)[\"']\s*[)\]]"
    r"\s*\.\s*(?:deleteDir|deleteRecursively|rmtree|rm_rf|delete|Delete|unlink)\b"
)
"""Deletions with the function after the path, or without quotes."""
_DELETER = re.compile(
    r"(?i)\b(?:rm_rf?|rmtree|remove_?tree|remove_?all|remove_dir_all|remove_?item|(?:rm|rmdir|unlink|remove)(?:Sync)?|rimraf"
    r"|file\.delete|delete_?(?:file|dir\w*|recursively|tree)|os\.remove)\b"
)
"""Functions that delete files."""
_ON_TREE = re.compile(
    r"(?i)(?:\b(?:rm_rf?|rmtree|remove_?tree|remove_?all|remove_dir_all|remove_?item|(?:rm|rmdir|unlink|remove)Sync"
    r"|readdir\w*|read_?dir|opendir|glob|listdir|scandir|walk\w*|dir\.\w+|listfiles|children|os\.remove)\b!?\s*[(\[ ]?"
    r"|\bunlink\s*\(?\s*<|\bDir\[)([^;\n]{0,120})"
)
"""Calls that take, or list, a tree; the group is the rest of the statement."""
_HOMES = re.compile(
    r"\bDir\.home\b(?:\(\))?|\bENV(?:\[|\.fetch\()\s*['\"]HOME['\"]\s*[\])]|\$ENV\{['\"]?HOME['\"]?\}|\bprocess\.env\.HOME\b"
    r"|(?:\brequire\s*\(\s*['\"](?:node:)?os['\"]\s*\)\.|\bos\.)?\bhomedir\s*\(\s*\)|\bgetenv\s*\(?\s*['\"]HOME['\"]\s*\)?"
    r"|\bSystem\.getProperty\(\s*['\"]user\.home['\"]\s*\)|\b(?:Path|System)\.(?:home|user_home!?)(?:\(\))?"
    r"|\bDeno\.env\.get\(\s*['\"]HOME['\"]\s*\)|\bENV\[['\"]HOME['\"]\]|\bhomedir\(\)"
)
"""Expressions for the home directory."""
_FORK_FOR_EACH = re.compile(
    r"\bfork\b[^;\n]{0,80}?\bfor\b[^;\n]{0,80}?\b(?:iter\s*\(\s*int\b|(?:count|cycle|repeat)\s*\()"
)
"""A fork for each item of an endless iterator."""
_ITSELF = re.compile(
    r"\b(?:spawn|fork|exec|execFile|Popen|popen|system)\w*\s*\(\s*\[?\s*(?:process\.(?:argv\[|argv0|execPath)|__filename"
    r"|sys\.(?:executable|argv)|__FILE__|\$0\b)"
)
"""Calls that start the running program again."""
_CALLBACK = re.compile(
    r"\b(?:array_(?:map|walk\w*|filter|reduce)|usort|u[ak]sort|iterator_apply|\w*callback\w*|register_\w+)\b"
)
_WRITES = re.compile(r"\b(?:write|append)\w*\s*\(?\s*([\"'])(.*?)\1")
_KILLS = re.compile(r"\bkill\b\W*[-\w]*\W*,?\s*-1\b")
_DISK = re.compile(r"[\"'](/dev/(?!null|zero|u?random|tty|std|fd/|shm)[\w/.-]+)[\"']")


class _Language(LazyNamedTuple):
    """The rows of a language in `languages.txt`."""

    words: frozenset[str]
    modules: frozenset[str]
    network: frozenset[str]
    quotes: str
    comments: tuple[str, ...]
    packages: frozenset[str]


@functools.cache
def table() -> dict[str, dict[str, tuple[str, ...]]]:
    """Return `languages.txt`: the words of each kind by language."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for line in Path(__file__).with_name("languages.txt").read_text("utf-8").splitlines():
        names, separator, rest = line.partition(" | ")
        if not separator or line.startswith("#"):
            continue
        for name in names.split():
            for part in rest.split(" ; ") if not rest.startswith("words ") else [rest]:
                kind, _, words = part.strip().partition(" ")
                row = found.setdefault(name, {})
                row[kind] = row.get(kind, ()) + tuple(words.split())
    return found


@functools.cache
def _language(name: str) -> _Language:
    row = table().get(name, {})
    return _Language(
        frozenset(row.get("words", ())),
        frozenset(row.get("modules", ())),
        frozenset(row.get("network", ())),
        "".join(row.get("quotes", ("\"'",))),
        row.get("comments", ("#",)),
        frozenset(row.get("packages", ())),
    )


def read(name: str, text: str) -> NestedCode:
    """Return the commands that code runs; `UNDETERMINED` when a name is not known to be harmless."""
    language = _language(name)
    if name in ("prolog", "lisp", "scheme") and re.fullmatch(r"[a-z][a-z_]*", text) and text not in RISKY:
        return NestedCode()  # calls a definition of a file
    if name == "javascript":
        text = re.sub(r"(?<![.\w])constructor(?=\s*\([^)]*\)\s*\{)", "", text)
    if name == "lua":
        text = re.sub(r"([\w)\]\"']):(?=[a-z]\w*\s*[(\"'{])", r"\1.", text)
    bare, literals = _split_literals(text, language)
    problem = len(text) > LONGEST or _unknown_name(name, bare, literals, language) or UNKNOWN in text.strip()
    if not problem and not _DYNAMIC.search(bare):
        read = (shlex.quote(path[1:-1]) for path in literals if is_credential(path[1:-1]))
        return NestedCode(
            (*(f": > {shlex.quote(m[2])}" for m in _WRITES.finditer(text)), *(f"cat {path}" for path in read))
        )
    marks = {UNDETERMINED}
    if re.search(r"(?i)socket|http|\bnet\b|\btcp\b|download|\burl\b|ftp|fetch", text):
        marks.add(NETWORK)
    return NestedCode(tuple(texts(text, literals)), frozenset(marks))


def texts(text: str, literals: list[str] | None = None) -> Iterator[str]:
    """Yield the texts in code that may be commands: literals, lists of literals, likely commands."""
    text = _HOMES.sub('"~"', text)
    quotes = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`(?:\\.|[^`\\])*`"""
    found: list[str] = []
    for run in re.finditer(
        rf"(?:{quotes})(?:\s*(?:,|\.\.?|\+|<>|(?:\s+nil)+|\s)\s*(?:\{{?\s*\w+\s*:\s*)?(?:c?[\[({{]\s*)?(?:{quotes}))*",
        _without_open(text, "'\"`"),
        re.DOTALL,
    ):
        parts = [_unescaped(part[1:-1]) for part in re.findall(quotes, run[0], re.DOTALL)]
        found += parts[:1] if len(parts) == 1 else [shlex.join(parts), "".join(parts), *parts]
    found += [
        match[1]
        for match in re.finditer(r"(?:qw|qx|q|qq|%w|%W|%x|%q|%Q)\s*[({\[<|/]([^)}\]>|/]+(?:/[^)}\]>|]*)?)", text)
    ]
    found += [match[0] for match in _HARD.finditer(text)]
    found += [f"rm -rf {shlex.quote(match[2])}" for match in _DELETES.finditer(text)]
    found += [f"rm -rf {shlex.quote(match[match.lastgroup or 0])}" for match in _DELETES_OTHERWISE.finditer(text)]
    found += [f"rm -rf {shlex.quote(path)}" for path in emptied(text)]
    found += ["kill -9 -1"] if _KILLS.search(text) else []
    changes = re.search(r"(?i)write|append|>|['\"][wa]b?\+?['\"]|copy|truncate|O_WRONLY|O_RDWR|dump|put|open", text)
    found += [f": > {shlex.quote(match[1])}" for match in _DISK.finditer(text) if changes]
    if _ends_machine(text):
        found.append("busctl call org.freedesktop.login1 /x org.freedesktop.login1.Manager PowerOff")
    if forks_for_ever(text):
        found.append(":(){ :|:& };:")
    found += [decoded for text in found[:MOST_TEXTS] if (decoded := _decoded(text))]
    for candidate in dict.fromkeys(found[: MOST_TEXTS * 5]):
        if len(candidate.strip()) > 3 and _may_be_script(candidate):
            yield PossibleScript(candidate)


def _without_open(text: str, quotes: str) -> str:
    """Return the text with spaces for quotes that nothing closes: each would be searched to the end."""
    for quote in quotes:
        last = -1
        for found in re.finditer(rf"(?<!\\)(?:\\\\)*{quote}", text):
            last = found.end()
        text = text[: last + 1] + text[last + 1 :].replace(quote, " ")
    return text


def _has_in_order(text: str, first: str, then: str) -> bool:
    """Return whether a match of one pattern comes after one of another, in time linear in the text."""
    found = re.search(first, text)
    return found is not None and re.compile(then).search(text, found.end()) is not None


def _ends_machine(text: str) -> bool:
    """Return whether code asks services of the bus to end the machine or to format a disk."""
    ends = r"\b(?:PowerOff|Reboot|Halt|Suspend|Hibernate)\b"
    return _has_in_order(text, "login1", ends) or _has_in_order(text, "UDisks2", r"\bFormat\b")


def forks_for_ever(text: str) -> bool:
    """Return whether code forks in an endless loop."""
    if re.search(r"fork\s*(?:\(\)\s*)?while|loop\s*(?:\{|do)\s*\w*\.?fork", text):
        return True
    if _FORK_FOR_EACH.search(text):
        return True
    if _ITSELF.search(text) and ("setInterval" in text or re.search(r"\b(?:while|for)\s*\(\s*(?:1|true|;\s*;)", text)):
        return True
    return _has_in_order(text, r"while\s*(?:\(\s*)?(?:1|True|true)", r"\bfork\b")


def _decoded(text: str) -> str:
    """Return the text that a literal has in hexadecimal digits or base64; empty for other literals."""
    try:
        if re.fullmatch(r"(?:[0-9a-fA-F]{2}){4,}", text):
            return bytes.fromhex(text).decode("ascii")
        if len(text) % 4 == 0 and re.fullmatch(r"[A-Za-z0-9+/]{8,}={0,2}", text):
            found = base64.b64decode(text).decode("ascii")
            return found if found.isprintable() else ""
    except ValueError:
        return ""
    return ""


def emptied(text: str) -> Iterator[str]:
    """Yield the system directories that code deletes, or lists in order to delete what is in them."""
    if not _DELETER.search(text):
        return
    for call in _ON_TREE.finditer(text):
        for literal in re.findall(r"[\w/~.*-]+", call[1]):
            path = literal if literal == "/" else literal.rstrip("/")
            if path[:1] in ("/", "~") and (is_vital(path) or is_system_directory(path) or is_home(path)):
                yield path


def _may_be_script(text: str) -> bool:
    """Return whether a text is read as a script: it has a letter and is not too long."""
    return not re.fullmatch(r"[\W\d_]*", text) and len(text) < 10_000


def _unescaped(text: str) -> str:
    def convert(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return {"n": "\n", "t": "\t", "r": "\r"}.get(match[2], match[2])

    return re.sub(r"\\(?:x([0-9a-fA-F]{2})|(.))", convert, text, flags=re.DOTALL)


def _split_literals(text: str, language: _Language) -> tuple[str, list[str]]:
    """Return the code without literals and comments but with code in `#{…}`, and the literals."""
    comments = "|".join(re.escape(mark) + r"[^\n]*" for mark in language.comments)
    quotes = "|".join(
        rf"{re.escape(q)}(?:\\.|[^{re.escape(q)}\\])*{re.escape(q)}" for q in language.quotes if q not in "[`"
    )
    ticks = r"|`(?:\\.|[^`\\])*`" if "`" in language.quotes else ""
    regex = r"|(?:(?<=[=(,~!&|{;:])|(?<=^)|(?<=[=(,~!&|{;:\s]\s))/(?![*/\s])(?:\\.|\[[^\]]*\]|[^/\\\n])+/[a-z]*"
    perlish = (
        r"|\b(?:s|tr|y)([/|#!{,])(?:\\.|(?!\1)[^\\])*(?:\1|\}\{)((?:\\.|(?!\1)[^\\}])*)(?:\1|\})([a-z]*)"
        r"|\bm([/|#!{])(?:\\.|(?!\4)[^\\])*(?:\4|\})[a-z]*"
    )
    pattern = re.compile(f"{quotes}{ticks}{perlish}{regex}|(?:^|(?<=[\\s;{{}}()]))(?:{comments})", re.DOTALL)
    literals: list[str] = []
    text = _without_open(text, "".join(set(language.quotes) & set("'\"`")))
    text = re.sub(r"\b(if|unless|and|or|not|when|while|until|return|split|grep|print)\s+(?=/)", r"\1 (", text)

    def convert(match: re.Match[str]) -> str:
        found = match[0]
        literals.append(found)
        inside = " ; ".join(re.findall(r"[#$@]\{\[?(.*?)\]?\}", found, re.DOTALL)) if found[0] in '"`/s' else ""
        if match[3] and "e" in match[3]:  # s/…/CODE/e
            inside += f" ; {match[2]}"
        return f" {inside} " if inside else ' "" '

    return pattern.sub(convert, text), literals


def _literal_writes(bare: str) -> set[str]:
    """Return the functions that write files for which each call names its file in a literal."""
    names = re.findall(r"\b((?:write|append|mkdir|touch)\w*)\b", bare)
    literal = re.findall(r'\b((?:write|append|mkdir|touch)\w*)\s*\(?\s*""', bare)
    return {name for name in names if names.count(name) == literal.count(name)}


def _packaged(bare: str, match: re.Match[str], language: _Language) -> bool:
    """Return whether a name of R is a harmless package or a function of one: `testthat::test_dir`."""
    word = match[2] or match[3]
    if word in language.packages and bare[match.start(3 if match[3] else 2) + len(word) :].lstrip().startswith("::"):
        return True
    before = re.search(r"([\w.]+)\s*:::?\s*(?:[\w.]*\.)?$", bare[: match.start(3 if match[3] else 2)])
    power = _R_POWER.match(word) or word.startswith(
        ("install", "publish", "release", "deploy", "submit", "use_", "run")
    )
    return before is not None and before[1] in language.packages and not power


def _calls_by_text(name: str, bare: str, literals: list[str]) -> bool:
    """Return whether a literal is the name of a function, an address or a program that the code opens."""
    named = {word.strip("'\"") for word in literals}
    if name == "php" and _CALLBACK.search(bare) and any(word in RISKY or _CHANGES.match(word) for word in named):
        return True
    if name in ("php", "ruby", "perl") and any(map(_OPENS.match, named)):
        return True
    return name == "perl" and bool(re.search(r"\bopen\b", bare)) and any(map(_OPENS_TO_WRITE.match, literals))


def _is_called(bare: str, match: re.Match[str]) -> bool:
    """Return whether a name without an object before it is called."""
    return bare[match.end(3) :].lstrip().startswith("(") and not re.search(r"\bfunction\s*$", bare[: match.start(3)])


def _unknown_name(name: str, bare: str, literals: list[str], language: _Language) -> bool:
    """Return whether a name in the code is not known to be harmless."""
    if not language.words or "`" in bare:
        return True
    loaded = {word.strip("'\"").removeprefix("node:") for word in literals}
    if loaded & (language.modules | language.network) and re.search(r"\b(?:require|import|from|use)\b", bare):
        return True
    if _calls_by_text(name, bare, literals):
        return True
    written = _literal_writes(bare)
    bound = {
        w for m in _BINDS.finditer(bare) for group in m.groups() if group for w in re.findall(r"\w+", group)
    } - RISKY
    files = _FILES.search(bare + " ".join(literals)) is not None
    for match in _NAMES.finditer(bare):
        dot, word, after = match[1], match[2] or match[3], match[4]
        if word.rstrip("!?") in RISKY or word in RISKY or word in language.modules:
            return True
        if dot and dot != ".." and name in _OBJECTS:
            if files and _CHANGES.match(word) and word not in written:
                return True
            continue
        if name == "r" and _packaged(bare, match, language):
            continue
        if name == "javascript" and files and _is_called(bare, match) and _CHANGES.match(word) and word not in written:
            return True
        key = after is not None and (after.strip() in (":", "=>") or "{" + word + "}" in bare.replace(" ", ""))
        key = key and name in _OBJECTS
        known = word in language.words or word.rstrip("!?") in language.words
        column = name == "r" and not bare[match.end() :].lstrip().startswith(("(", ":")) and not _R_POWER.match(word)
        if not (known or word in bound or key or column or len(word) == 1):
            return True
    return (
        name == "lua"
        and re.search(r"\bos\s*\.\s*(?!time|date|clock|getenv|difftime)\w+|\bio\s*\.\s*(?!write|read|lines)\w+", bare)
        is not None
    )
