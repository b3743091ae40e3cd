"""What leaves the machine for everybody, or reaches many machines: packages, images, objects, servers."""

from __future__ import annotations

import itertools
import re

from hermes_agent.policy.shell.paths import is_home, is_root, is_system_directory, resolve_place
from hermes_agent.policy.shell.rules.rule import ShellRule
from hermes_agent.policy.shell.script import ShellCommand

__all__ = ["PUBLISHING_RULES"]

_PUSHES = {
    "docker podman nerdctl buildah": r"(?:(?:image|manifest|compose)(?: -\S+(?: \S+)?)* )?push\b"
    r"|buildx (?:build|bake)\b.* (?:--push\b|(?:-o|--output)[= ]\S*(?:type=registry|push=true))|build\b.* --push\b",
    "docker-compose podman-compose": r"(?:-\S+(?: \S+)? )*push\b",
    "skopeo": r"copy .*(?<!:)\b(?:docker|oci)://\S+$|sync .*--dest[= ]docker\b",
    "helm": r"(?:cm-)?push\b",
    "oras crane regctl": r"(?:push|copy|cp|append|mutate|tag|attach|image copy)\b",
    "mvn mvnw": r"(?:.* )?(?:\S*:)?(?:deploy|deploy-file|release:perform)(?: |$)",
    "gradle gradlew": r"(?:.* )?\S*(?:publish(?!\w*ToMavenLocal)\w*|uploadArchives|closeAndRelease\w*)(?: |$)",
    "sbt mill": r"(?:.* )?\S*(?:\+?publish(?!Local|M2)\w*|sonatype\w+|release)(?: |$)",
    "lein boot": r"(?:.* )?(?:deploy|push)\b",
    "mix": r"hex\.publish",
    "rebar3": r"hex publish",
    "dotnet nuget": r"(?:nuget )?push\b",
    "stack cabal conan": r"upload\b",
    "dart flutter": r"pub publish",
    "lerna nx rush changeset semantic-release np release-it": r"(?:.* )?(?:publish|release)\b",
    "melos": "publish",
    "aws": r"s3api put-object\b|.*(?:--acl[= ]public|put-bucket-(?:acl|policy))",
    "gcloud": r"storage (?:cp|mv|rsync)\b.* gs://\S*$|(?:app|run|functions) deploy\b",
    "gsutil": r"(?:-\w+ )*(?:acl|iam|defacl)\b.*all(?:Authenticated)?Users",
    "az": r"storage (?:blob|file|fs) (?:.* )?(?:upload|sync|copy)",
    "b2 b2v4": r"(?:upload|sync|file upload|upload-file|upload-unbound-stream)\b",
    "mc": r"(?:(?:cp|mv|mirror|put|pipe)\b|(?:anonymous|policy) set\b)",
    "s3cmd": r"(?:put|sync|setacl)\b(?!.* s3://\S+ [^s]\S*$)",
    "s5cmd": r"(?:cp|mv|sync)\b.* s3://\S*$",
    "azcopy": r"(?:copy|cp|sync)\b",
}
"""What programs are told to put where others have it; arguments are matched from the first that is no option."""
_NAMED = {name: re.compile(pattern) for names, pattern in _PUSHES.items() for name in names.split()}
_DRY = ("--dry-run", "--dryrun", "-n", "--help", "-h", "--version")
_HOSTS = frozenset(
    """
    parallel-ssh pssh pdsh clush dsh mussh cssh csshx clusterssh
    prsync pnuke parallel-scp parallel-rsync gsh taktuk
    """.split()  # noqa: SIM905 - a table
)
_ONLY_SHOWS = ("--syntax-check", "--check", "-C", "--version", "--help", "-h", "--list", "-l")
_SERVERS = frozenset(
    """
    serve http-server live-server browser-sync darkhttpd webfsd webfs
    miniserve httpd thttpd twistd caddy ruby rclone dufs sfz updog
    droopy gohttpserver simple-http-server static-web-server lighttpd
    """.split()  # noqa: SIM905 - a table
)
_ENGINE = re.compile(
    r"(?:docker|podman|containerd|crio|lxd|incus|unix\.socket)[\w./-]*\.sock(?:et)?|/(?:lxd|incus)/unix\.socket"
)


def _publishes(command: ShellCommand) -> bool:
    if _uploads_packages(command):
        return True
    pattern = _NAMED.get(command.name)
    if pattern is None or set(_DRY) & set(command.args):
        return False
    rest = " ".join(itertools.dropwhile(lambda a: a.startswith("-"), command.args))
    whole = command.name in ("mvn", "mvnw", "gradle", "gradlew", "lerna", "nx")
    return pattern.match(" ".join(command.args) if whole else rest) is not None


def _uploads_packages(command: ShellCommand) -> bool:
    operands, dry = command.operands, {"--dry-run", "-n"} & set(command.args)
    if command.name == "gh":
        return operands[1:2] == ("delete",) or operands[:2] == ("release", "create")
    names = (
        "npm",
        "pnpm",
        "yarn",
        "bun",
        "cargo",
        "poetry",
        "uv",
        "flit",
        "gem",
        "twine",
        "vsce",
        "hatch",
        "pdm",
        "maturin",
        "ovsx",
    )
    verbs = (("publish",), ("unpublish",), ("push",), ("upload",), ("yank",))
    return command.name in names and operands[:1] in verbs and not dry


def _many_hosts(command: ShellCommand) -> bool:
    """Say whether a command runs on several machines at once."""
    if command.name in _HOSTS:
        return bool(command.operands) and not {"--help", "--version", "-V"} & set(command.args)
    if command.name in ("ansible", "ansible-playbook"):
        shows = any(a in _ONLY_SHOWS or a.startswith("--list-") for a in command.args)
        here = re.search(r"(?:^|\s)localhost\b|(?:-c|--connection)[= ]local\b", " ".join(command.args))
        looks = re.search(r"(?:-m|--module-name)[= ]?(?:ping|setup|debug|gather_facts)\b", " ".join(command.args))
        return bool(command.operands) and not shows and not here and not looks
    if command.name == "fab":
        return command.has_flag("H", "--hosts") and not set(_ONLY_SHOWS) & set(command.args)
    if command.name == "knife":
        return command.operands[:1] == ("ssh",)
    return command.name == "salt" and len(command.operands) > 1 and "test.ping" not in command.operands


def _drives_engine(command: ShellCommand) -> bool:
    """Say whether a container engine is told over its socket to change something."""
    text = command.text
    if command.name in ("nc", "ncat", "socat", "nc.openbsd"):
        return _ENGINE.search(text) is not None
    if not re.search(r"--(?:abstract-)?unix-socket[= ]", text) or not _ENGINE.search(text):
        return False
    method = re.search(r"(?:^|\s)(?:-[A-Za-z]*X|--request)[= ]?(\w+)", text)
    if method is not None:
        return method[1].upper() not in ("GET", "HEAD", "OPTIONS")
    return re.search(r"\s(?:-[a-zA-Z]*[dFT]|--data\S*|--json|--form\S*|--upload-file)(?=\s|=|\S)", text) is not None


def _serves_home(command: ShellCommand) -> bool:
    """Say whether a server shows a home, the root or a directory of the system to other machines."""
    args, text = command.args, command.text
    if re.search(r"(?:localhost|127\.0\.0\.1|\[?::1\]?)(?=[:\s]|$)", text):
        return False
    pairs = dict(itertools.pairwise(args))
    if re.match(r"python[\d.]*$", command.name):
        if pairs.get("-m") != "http.server":
            return False
        named = pairs.get("--directory") or pairs.get("-d")
        named = named or next((a.partition("=")[2] for a in args if a.startswith("--directory=")), ".")
        return _wide(resolve_place(command, named))
    if command.name == "php":
        return "-S" in args and _wide(resolve_place(command, pairs.get("-t", ".")))
    if command.name == "git":
        return "daemon" in args and any(
            _wide(resolve_place(command, a.rpartition("=")[2])) for a in args if "path=" in a
        )
    if command.name not in _SERVERS or (command.name == "ruby" and "httpd" not in text):
        return False
    if (command.name, *args[:1]) in (("rclone", "ls"), ("caddy", "run")) or (
        command.name == "rclone" and args[:1] != ("serve",)
    ):
        return False
    named_all = [
        resolve_place(command, arg.rpartition("=")[2]) for arg in args if not arg.startswith("-") or "=" in arg
    ]
    return any(map(_wide, named_all)) or (command.cwd != "" and _wide(command.cwd) and not any("/" in a for a in args))


def _wide(path: str) -> bool:
    return is_root(path) or is_home(path) or is_system_directory(path)


PUBLISHING_RULES = (
    ShellRule("publish, or delete what is published", _publishes),
    ShellRule("run something on several machines", _many_hosts),
    ShellRule("change containers over the engine's socket", _drives_engine),
    ShellRule("show a home or the system to other machines", _serves_home),
)
