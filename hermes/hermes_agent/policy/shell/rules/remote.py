"""Rules about code that is not judged: unknown, downloaded, decoded, or computed at run time."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterator

from hermes_agent.policy.shell.outputs import output_of
from hermes_agent.policy.shell.paths import is_project_env, is_sensitive, resolve_place
from hermes_agent.policy.shell.programs import is_a, is_undecided, subcommand_args, unknown_label
from hermes_agent.policy.shell.rules.files import write_targets
from hermes_agent.policy.shell.script import (
    LIBRARY,
    MOST_PARTS,
    NETWORK,
    UNDETERMINED,
    UNKNOWN,
    UNLISTED,
    ShellCommand,
    ShellRule,
    word_set,
)

PROGRAM = "unknown program"
_CODE = (
    ShellRule("code that is not analysed", lambda command: UNDETERMINED in command.marks),
    ShellRule("load a library into a program", lambda command: LIBRARY in command.marks),
)
UNKNOWN_CODE_RULES = (*_CODE, ShellRule(PROGRAM, lambda command: UNLISTED in command.marks, unknown_label))
UNKNOWN_KEYS = frozenset(rule.key for rule in _CODE)
"""Keys of commands for which the text does not show what runs."""


def is_unknown(key: str) -> bool:
    """Return whether a key means that a command is not known, and not that it is dangerous."""
    return key in UNKNOWN_KEYS or key.startswith(f"{PROGRAM}: ")


WELL_KNOWN = word_set("shell-setup")
"""Programs with output for `eval`."""
SOURCING = frozenset({"source", ".", "eval"})


def _runs_stdin(command: ShellCommand) -> bool:
    """Return whether a command runs its input."""
    runner = is_a(command.name, "shell") or is_a(command.name, "interpreter")
    if not runner:
        return command.name in ("source", ".") and command.operands[:1] in (("/dev/stdin",), ("-",))
    if is_a(command.name, "shell") and command.has_flag("c"):
        return "xargs" in command.via and any(UNKNOWN in arg for arg in command.args)
    operands = [o for o in command.operands if o not in ("-", "/dev/stdin")]
    return not operands or (is_a(command.name, "shell") and command.has_flag("s")) or "-" in command.args


def _piped_from(command: ShellCommand, *names: str) -> bool:
    return _runs_stdin(command) and any(c.name in names for c in command.before)


def _piped_download(command: ShellCommand) -> bool:
    return _runs_stdin(command) and any(is_a(c.name, "downloader") for c in command.before)


def _decoder(command: ShellCommand, name: str, letters: str, *long: str) -> bool:
    return _runs_stdin(command) and any(c.name == name and c.has_flag(letters, *long) for c in command.before)


def _runner(command: ShellCommand) -> bool:
    return command.name in SOURCING or is_a(command.name, "shell") or is_a(command.name, "interpreter")


def _sourced(command: ShellCommand) -> bool:
    words = (*command.words[1:], *(r.target for r in command.redirects))
    return _runner(command) and any(is_a(c.name, "downloader") for word in words for c in word.sources)


def _from_substitution(command: ShellCommand) -> bool:
    remote = [i for i, word in enumerate(command.words) if any(is_a(c.name, "downloader") for c in word.substituted)]
    return remote[:1] == [0] or (
        bool(remote) and _runner(command) and (command.name in SOURCING or command.has_flag("ce"))
    )


def _decoded(command: ShellCommand) -> bool:
    if _decoder(command, "base64", "dD", "--decode") or _decoder(command, "base32", "d", "--decode"):
        return True
    substituted = [c for word in command.words for c in word.substituted]
    runs = _runner(command) or (command.words and command.words[0].substituted)
    return bool(runs) and any(c.name in ("base64", "base32") and c.has_flag("dD", "--decode") for c in substituted)


_HIDDEN = re.compile(
    r"\b(?:b(?:16|32|64|85)decode|a2b_\w+|fromhex|unhexlify|decompress|codecs\s*\.\s*decode|rot_?13|atob|(?:en|de)code_base64|decode64"
    r"|base64_decode|gzinflate|gzuncompress|str_rot13|pack|unpack1?|chr|fromCharCode|Buffer\s*\.\s*from)\s*[(\s\"']"
)
"""Functions that turn an encoded text into code."""
_EVALUATES = re.compile(r"\b(?:exec|eval|compile|system|popen|instance_eval|Function|load(?:string)?)\b|\bexec\s*\(")
_ESCAPED = re.compile(r"\\(?:x[0-9a-fA-F]{2}|0?[0-7]{3}|u[0-9a-fA-F]{4})")


def _evaluates_hidden(command: ShellCommand) -> bool:
    """Return whether code in another language evaluates a text that it decodes first."""
    text = command.text if command.stdin is None else f"{command.text}\n{command.stdin}"
    return is_a(command.name, "interpreter") and bool(_EVALUATES.search(text)) and bool(_HIDDEN.search(text))


def _named_by_escapes(command: ShellCommand) -> bool:
    """Return whether the name of a program, or a text for `eval`, is written in escapes."""
    words = command.words if command.name == "eval" else command.words[:1]
    made = (c for word in words for c in word.substituted)
    return any(c.name in ("printf", "echo") and any(map(_ESCAPED.search, c.args)) for c in made)


def _encoded_powershell(command: ShellCommand) -> bool:
    known = command.name.lower().removesuffix(".exe") in ("powershell", "pwsh")
    return known and any(
        re.match(r"-e(?:nc?|c|ncodedcommand)?\w*$", a.lower()) and not a.lower().startswith("-ex") for a in command.args
    )


def download_targets(command: ShellCommand) -> Iterator[str]:
    """Yield the files and directories to which a download is written."""
    if is_a(command.name, "downloader"):
        yield from write_targets(command)
        if command.name == "wget" or command.has_flag("O", "--remote-name"):
            yield from (resolve_place(command, posixpath.basename(operand)) for operand in command.operands)
    elif command.name == "git" and subcommand_args(command)[:1] == ("clone",):
        words = [arg for arg in subcommand_args(command) if not arg.startswith("-")]
        yield from (resolve_place(command, posixpath.basename(word).removesuffix(".git")) for word in words[1:])
    elif command.name == "tee" and any(is_a(c.name, "downloader") for c in command.before):
        yield from (resolve_place(command, operand) for operand in command.operands)


def _evaluates_download(command: ShellCommand) -> bool:
    fetch = r"urlopen|requests\.(?:get|post)|httpx\.|urllib|https?\.get|LWP|open-uri|file_get_contents\(.http|fetch\("
    runs = re.search(r"\b(?:exec|eval|system|popen|compile)\b", command.text)
    return is_a(command.name, "interpreter") and bool(runs) and bool(re.search(fetch, command.text))


def _opens_shell(command: ShellCommand) -> bool:
    """Return whether input and output of a shell are connected to another machine."""
    if command.name in ("nc", "ncat", "netcat"):
        fed = any(is_a(c.name, "shell") for c in command.before)
        return fed or command.has_flag("e", "--exec", "--sh-exec") or (command.name == "ncat" and command.has_flag("c"))
    if command.name == "socat":
        return any(re.match(r"(?i)(?:exec|system|shell):", operand) for operand in command.operands)
    if command.name == "openssl" and "s_client" in command.args:
        return any(is_a(c.name, "shell") for c in command.before)
    if command.name in ("ssh", "autossh") and _forwards(command):
        return True
    return any(r.target.text.startswith(("/dev/tcp/", "/dev/udp/")) for r in command.redirects)


def _forwards(command: ShellCommand) -> bool:
    """Return whether a connection forwards a port to this machine, or stays open in the background."""
    options = "".join(a[1:] for a in command.args if re.fullmatch(r"-[46AfgNnTqvCRLDk]+\d*", a))
    return "R" in options or ("f" in options and bool({"L", "D"} & set(options)))


_SECRETS = re.compile(
    r"(?:^|/)(?:\.(?:aws|gnupg|kube|docker)|id_(?:rsa|ed25519|ecdsa|dsa))$|^/etc/(?:shadow|passwd|gshadow)$"
)
_SENT = re.compile(r"-d|-F|-T|--(?:data|form|upload-file|post|body|json)")


def _is_secret(command: ShellCommand, text: str) -> bool:
    path = resolve_place(command, re.sub(r"^(?:[\w-]+=)?[@<]", "", text))
    held = is_sensitive(path) or is_project_env(path) or _SECRETS.search(path) is not None
    return held and not path.endswith((".yaml", ".yml", ".pub", "rc"))


def _shows_secrets(command: ShellCommand) -> bool:
    """Return whether the output of a command is secret."""
    if command.name in ("env", "printenv", "set") and not command.operands:
        return True
    exports = any(arg.startswith("--export-secret") for arg in command.args)
    return exports or any(_is_secret(command, operand) for operand in command.operands)


def _sends_secrets(command: ShellCommand) -> bool:
    if NETWORK not in command.marks:
        return False
    if any(map(_shows_secrets, command.before)):
        return True
    if any(_is_secret(command, r.target.text) for r in command.redirects if r.operator == "<"):
        return True
    if command.name in ("scp", "rsync", "sftp", "aws", "gsutil", "rclone", "s3cmd", "gcloud", "az", "mc"):
        sent = command.operands[:-1] if command.operands and re.search(r":(?!\\)", command.operands[-1]) else ()
        valued = {value for option, value in itertools.pairwise(command.args) if option in ("-i", "-F", "-e")}
        return any(_is_secret(command, operand) for operand in sent if operand not in valued)
    if not is_a(command.name, "downloader"):
        return False
    pairs = itertools.pairwise(command.args)
    given = [b for a, b in pairs if _SENT.match(a)] + [a.partition("=")[2] for a in command.args if _SENT.match(a)]
    given += [a[2:] for a in command.args if re.match(r"-[dFT].", a)]
    return any(_is_secret(command, text) for text in given)


_FED = re.compile(r"(?:python|perl|ruby|node|php|lua|deno|bun|pypy)[\d.]*$")
"""Interpreters that run their input."""


def _piped_unknown(command: ShellCommand) -> bool:
    """Return whether a shell runs the unknown output of another command."""
    if not (is_a(command.name, "shell") or command.name in ("source", ".") or _FED.match(command.name)):
        return False
    sources = [
        word.sources[-1] for word in (*command.words[1:], *(r.target for r in command.redirects)) if word.sources
    ]
    if command.before and command.stdin is None and _runs_stdin(command) and command.before[-1].name != "cat":
        sources.append(command.before[-1])
    return any(
        output_of(c) is None and c.name not in WELL_KNOWN and not any("completion" in a for a in c.args)
        for c in sources
    )


def _computed(command: ShellCommand) -> bool:
    """Return whether the running command decides what runs."""
    if _piped_unknown(command):
        return True
    programs = {c.name for word in command.words[1:] for c in word.substituted}
    if command.name == "eval" and programs and programs <= WELL_KNOWN:
        return False
    name = command.words[0].text if command.words else ""
    many = len(re.findall(f"{UNKNOWN}+", name)) > MOST_PARTS and command.words[0].splits
    if re.search(r"[*?]|\[.+\]", name) or UNKNOWN in name.rpartition("/")[2] or many or is_undecided(command):
        return True
    texts = command.args if command.name == "eval" else _scripts(command)
    return any(text.replace(UNKNOWN, "").strip() == "" and UNKNOWN in text for text in texts)


def _scripts(command: ShellCommand) -> list[str]:
    flagged = is_a(command.name, "shell")
    return [b for a, b in zip(command.args, command.args[1:], strict=False) if flagged and re.fullmatch(r"-[a-z]*c", a)]


COMPUTED = "a command that is made up while it runs"
DOWNLOADED = "pipe remote content to shell"
OBFUSCATION = "(possible command obfuscation)"

RULES = (
    ShellRule(DOWNLOADED, _piped_download),
    ShellRule("execute remote script via process substitution", _sourced),
    ShellRule(
        "execute remote content via command substitution", lambda c: _from_substitution(c) or _evaluates_download(c)
    ),
    ShellRule("open a shell to another machine", _opens_shell),
    ShellRule("send credentials to another machine", _sends_secrets),
    ShellRule(
        f"pipe decoded content to shell {OBFUSCATION}",
        lambda c: _decoded(c) or _evaluates_hidden(c) or _named_by_escapes(c),
    ),
    ShellRule(f"pipe xxd-decoded content to shell {OBFUSCATION}", lambda c: _decoder(c, "xxd", "r", "-revert")),
    ShellRule(f"pipe tr-transformed output to shell {OBFUSCATION}", lambda c: _piped_from(c, "tr", "rev", "rot13")),
    ShellRule(
        f"pipe openssl-decoded content to shell {OBFUSCATION}", lambda c: _piped_from(c, "openssl", "gpg", "uudecode")
    ),
    ShellRule("shell execution via heredoc", lambda c: is_a(c.name, "shell") and c.heredoc and _runs_stdin(c)),
    ShellRule("PowerShell encoded command execution", _encoded_powershell),
    ShellRule(COMPUTED, _computed),
)
