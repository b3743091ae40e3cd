"""Rules about services, containers, version control, users, and what leaves the machine.

`PUBLISHING_RULES` are about packages, images, objects and servers that others reach, and commands on many machines.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from hermes_agent.policy.shell.paths import is_home, is_root, is_system_directory, resolve_place
from hermes_agent.policy.shell.programs import is_a, subcommand_args
from hermes_agent.policy.shell.script import CHANGES, ShellCommand, ShellRule, word_set

STOPPING = frozenset(["stop", "restart", "disable", "mask", "kill", "try-restart", "reload-or-restart", "isolate"])
LIFECYCLE = frozenset({"restart", "stop", "kill", "down", "rm"})
ACCOUNTS = word_set("account-programs")
_RIGHTS = re.compile(
    r"--privileged$|--cap-add[= ]?(?:ALL|SYS_\w+)|--pid[= ]?host|--security-opt[= ]?(?:apparmor|seccomp)[=:]unconfined"
    r"|(?:--volume=|-v)?(?:/|/etc|/root|/dev|/proc|/sys|/boot|(?:/var)?/run/docker\.sock)/?:|.*(?:source|src)=/(?:,|$)"
)
"""Options that give a container control over the machine."""
_CLUSTERS = word_set("cluster-programs")
_ENDS = frozenset({"delete", "drain", "uninstall", "destroy", "down", "apps:destroy", "rm", "stop"})
ENGINES = ("docker", "podman", "nerdctl")


def _service(command: ShellCommand) -> bool:
    if command.name == "systemctl":
        return command.operands[:1] != () and command.operands[0] in STOPPING
    if command.name in ("service", "rc-service", "invoke-rc.d"):
        return any(o in ("stop", "restart", "force-reload") for o in command.operands[1:])
    if command.words and command.words[0].text.startswith(("/etc/init.d/", "/etc/rc.d/")):
        return bool({"stop", "restart", "force-reload"} & set(command.operands[:1]))
    return command.name in ("sv", "s6-svc") and command.operands[:1] in (("stop",), ("restart",), ("down",))


def _compose(command: ShellCommand) -> bool:
    operands = () if "--help" in command.args else command.operands
    if command.name in ENGINES and operands[:1] == ("compose",):
        operands = operands[1:]
    elif command.name not in ("docker-compose", "podman-compose"):
        return False
    return bool(set(operands[:3]) & LIFECYCLE)


def _container(command: ShellCommand) -> bool:
    operands = command.operands[1:] if command.operands[:1] == ("container",) else command.operands
    return command.name in ENGINES and operands[:1] in (("restart",), ("stop",), ("kill",))


def _git(command: ShellCommand) -> tuple[str, ...]:
    """Return the subcommand of git with its arguments; empty for other programs."""
    if command.name != "git":
        return ()
    return subcommand_args(command)


def _letters(args: tuple[str, ...]) -> Iterator[str]:
    for arg in args:
        if arg == "--":
            return
        if re.match(r"-[^-]", arg):
            yield from arg[1:]


def _push(command: ShellCommand) -> tuple[str, ...]:
    args = _git(command)
    return args[1:] if args[:1] == ("push",) and "--dry-run" not in args else ()


def _force_push(command: ShellCommand) -> bool:
    return any(
        a.startswith("--force") or a in ("--mirror", "--delete") or re.match(r"\+[\w/]|:\w", a) for a in _push(command)
    )


_ADDRESS = re.compile(r"(?:\w+(?:\+\w+)?://|[\w.-]+@[\w.-]+:|[\w-]+\.[\w.-]+:)")
_REMOTE_SETTING = re.compile(r"(?:remote\..+\.(?:push)?url|url\..+\.(?:push)?insteadof)$", re.IGNORECASE)


def _pushes_elsewhere(command: ShellCommand) -> bool:
    """Return whether git pushes all branches or to an address, or changes the address of a remote."""
    operands = [arg for arg in _git(command) if not arg.startswith("-")]
    if operands[:2] == ["remote", "set-url"]:
        return True
    if operands[:1] == ["config"] and len(operands) > 2:
        return any(map(_REMOTE_SETTING.match, operands[1:-1]))
    return "--all" in _push(command) or any(_ADDRESS.match(a) for a in _push(command) if not a.startswith("-"))


def _clean(command: ShellCommand) -> bool:
    args = _git(command)
    forced = "--force" in args or "f" in set(_letters(args[1:]))
    return args[:1] == ("clean",) and forced and not ("n" in set(_letters(args[1:])) or "--dry-run" in args)


def _branch(command: ShellCommand) -> tuple[str, ...]:
    args = _git(command)
    return args[1:] if args[:1] == ("branch",) else ()


def _deletes_branch(command: ShellCommand) -> bool:
    letters = set(_letters(_branch(command)))
    return "D" in letters or {"d", "f"} <= letters


def _long_branch(command: ShellCommand, *order: str) -> bool:
    given = [a for a in _branch(command) if a in ("--delete", "--force", "-d", "-f")]
    return tuple("--delete" if a in ("--delete", "-d") else "--force" for a in given[:2]) == order and any(
        a.startswith("--") for a in given
    )


def _discards(command: ShellCommand) -> bool:
    args = _git(command)
    verb, rest = args[:1], args[1:]
    if verb == ("checkout",):
        named = "--" in rest and rest[-1] != "--"
        return named or rest[-1:] in ((".",), (":/",)) or "--force" in rest or "f" in set(_letters(rest))
    if verb == ("restore",):
        return rest[-1:] in ((".",), (":/",)) and "--staged" not in rest
    if verb == ("stash",):
        return rest[:1] in (("clear",), ("drop",))
    if verb == ("reflog",):
        return rest[:1] in (("expire",), ("delete",))
    if verb == ("update-ref",):
        return "-d" in rest
    if verb in (("worktree",), ("submodule",)):
        return rest[:1] in (("remove",), ("deinit",)) and ("--force" in rest or "f" in set(_letters(rest)))
    return verb in (("filter-branch",), ("filter-repo",)) or (verb == ("gc",) and "--prune=now" in rest)


def _removes_containers(command: ShellCommand) -> bool:
    operands = command.operands
    if command.name not in ENGINES or not operands:
        return False
    forced = operands[0] in ("rm", "rmi") and command.has_flag("f", "--force")
    return (
        forced
        or operands[1:2] == ("prune",)
        or operands[:2] in (("volume", "rm"), ("network", "rm"), ("container", "rm"))
    )


def _destroys_resources(command: ShellCommand) -> bool:
    operands = command.operands
    if any(o in command.args for o in ("--dry-run", "--dry-run=client", "--dry-run=server", "--dryrun")):
        return False
    if {"-auto-approve", "--auto-approve", "--replicas=0"} & set(command.args):
        return True
    if command.name in _CLUSTERS:
        return bool(
            {"delete", "drain", "uninstall", "destroy", "down", "apps:destroy", "rm", "stop"} & set(operands[:3])
        )
    if command.name == "kubectx":
        return command.has_flag("d")
    if command.name == "aws" and operands[:2] == ("s3", "sync") and "--delete" in command.args:
        return True
    if command.name == "aws":
        verbs = r"(?:delete|terminate|remove|destroy|purge|deregister)-.+|rb"
        return any(re.fullmatch(verbs, o) for o in operands[:3]) or (operands[:2] == ("s3", "rm"))
    return command.name in ("gcloud", "az", "doctl", "gsutil") and bool({"delete", "rm", "rb"} & set(operands[:5]))


def _owns_machine(command: ShellCommand) -> bool:
    """Return whether a container gets the rights or the files of the machine."""
    if command.name not in ENGINES or command.operands[:1] not in (("run",), ("create",)):
        return False
    pairs = [*command.args, *(" ".join(pair) for pair in itertools.pairwise(command.args))]
    return any(_RIGHTS.match(text) for text in pairs)


def _changes_users(command: ShellCommand) -> bool:
    name = command.name
    if name in ("vi", "vim", "nvim", "nano", "ed", "emacs"):
        return any(o.startswith(("/etc/sudoers", "/etc/passwd", "/etc/shadow", "/etc/group")) for o in command.operands)
    return (
        name in ACCOUNTS
        and not command.has_flag("", "--help", "--version", "--list-shells", "--status", "--check")
        and not (name == "visudo" and command.has_flag("c"))
        and not (name == "passwd" and command.has_flag("S"))
        and not (name == "chsh" and command.has_flag("l"))
    )


def _lowers_guard(command: ShellCommand) -> bool:
    args, operands = set(command.args), command.operands[:1]
    if command.name in ("iptables", "ip6tables", "ebtables"):
        return bool({"-F", "-X", "-D", "-P", "--flush", "--delete", "--policy"} & args)
    if command.name == "nft":
        return bool({"flush", "delete"} & set(operands))
    if command.name == "ufw":
        return operands in (("disable",), ("reset",), ("delete",))
    if command.name == "auditctl":
        return command.has_flag("eD")
    return (command.name == "setenforce" and operands in (("0",), ("Permissive",))) or command.name in (
        "aa-disable",
        "aa-teardown",
    )


def _sudo_shell(command: ShellCommand) -> bool:
    """Return whether sudo opens an interactive shell."""
    return "sudo" in command.via[-1:] and (
        (command.name == "su" and not command.has_flag("c", "--command"))
        or (is_a(command.name, "shell") and not command.args and command.stdin is None and not command.before)
    )


def _schedules(command: ShellCommand) -> bool:
    if command.name == "systemctl" and command.has_flag("", "--user"):
        return bool({"enable", "start", "link", "reenable"} & set(command.operands[:1]))
    return command.name == "crontab" and not command.has_flag("l") and not command.has_flag("", "--help")


def _sudo_options(command: ShellCommand) -> Iterator[str]:
    """Yield the options of sudo before its command."""
    args = list(command.args) if command.name == "sudo" else []
    while args and args[0].startswith("-") and args[0] != "--":
        option = args.pop(0)
        yield option
        if option in ("-u", "-g", "-p", "-C", "-h", "-r", "-t", "-D", "-R", "-T", "-U") and args:
            args.pop(0)


def _sudo_flags(command: ShellCommand) -> str:
    """Return the short options of sudo before its command."""
    return "".join(option[1:] for option in _sudo_options(command) if not option.startswith("--"))


def _sudo_long(command: ShellCommand) -> bool:
    """Return whether sudo gets one of these options, which it also takes abbreviated (`--a`)."""
    names = ("--stdin", "--askpass", "--shell", "--list", "--login")
    given = [option for option in _sudo_options(command) if option.startswith("--")]
    return any(name.startswith(option) for option in given for name in names)


GIT_DELETE = "git branch force delete"

NEW_REMOTE = "git push to a new place, or of everything"


def git_remotes(command: ShellCommand) -> tuple[str, str]:
    """Return the remote that a command adds, and the one to which it pushes; "" for none."""
    operands = [arg for arg in _git(command) if not arg.startswith("-")]
    added = operands[2] if operands[:2] == ["remote", "add"] and len(operands) > 3 else ""
    return added, operands[1] if operands[:1] == ["push"] and len(operands) > 1 and _push(command) else ""


RULES = (
    ShellRule("stop/restart system service", _service),
    ShellRule("docker compose restart/stop/kill/down (container lifecycle)", _compose),
    ShellRule("docker restart/stop/kill (container lifecycle)", _container),
    ShellRule(
        "git reset --hard (destroys uncommitted changes)",
        lambda c: _git(c)[:1] == ("reset",) and any(a.startswith("--h") and a != "--help" for a in _git(c)),
    ),
    ShellRule("git force push (rewrites remote history)", _force_push),
    ShellRule("git force push short flag (rewrites remote history)", lambda c: "f" in set(_letters(_push(c)))),
    ShellRule(NEW_REMOTE, _pushes_elsewhere),
    ShellRule("git clean with force (deletes untracked files)", _clean),
    ShellRule("git throws work or history away", _discards),
    ShellRule("remove containers, images or volumes", _removes_containers),
    ShellRule("destroy resources of a cluster or cloud", _destroys_resources),
    ShellRule("change disks, packages or settings of the system", lambda c: CHANGES in c.marks),
    ShellRule("give a container this machine's rights or files", _owns_machine),
    ShellRule("change users, groups or passwords", _changes_users),
    ShellRule("lower the firewall or a guard of the system", _lowers_guard),
    ShellRule("change scheduled commands", _schedules),
    ShellRule(GIT_DELETE, _deletes_branch),
    ShellRule(f"{GIT_DELETE} (long flags)", lambda c: _long_branch(c, "--delete", "--force")),
    ShellRule(f"{GIT_DELETE} (long flags, force-first)", lambda c: _long_branch(c, "--force", "--delete")),
    ShellRule(
        "sudo with privilege flag (stdin/askpass/shell/list)",
        lambda c: _sudo_long(c) or _sudo_shell(c) or (len(_sudo_flags(c)) == 1 and _sudo_flags(c) in "SAsil"),
    ),
    ShellRule(
        "sudo with combined-flag privilege escalation",
        lambda c: (
            len(_sudo_flags(c)) > 1 and bool((letters := set(_sudo_flags(c))) & set("SAsil")) and letters != {*"nl"}
        ),
    ),
)


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
    "vercel now": r"(?:deploy\b|$)",
    "netlify firebase wrangler ng hexo kamal mike fly flyctl railway": r"(?:pages )?(?:deploy|publish)\b",
    "serverless sls sam cdk amplify sst": r"(?:deploy|publish)\b",
    "eas expo": r"(?:submit|publish|update)\b",
    "quarto": r"publish\b",
    "mkdocs": r"gh-deploy\b",
    "asciinema": r"upload\b",
    "dvc": r"push\b",
    "hub": r"(?:create|delete|release|gist create)\b",
    "surge gh-pages": r"",
    "b2 b2v4": r"(?:rm|delete[-_]\w+|file (?:hide|upload)|sync|upload(?:[-_]file|-unbound-stream)?)\b",
    "mc": r"(?:(?:cp|mv|mirror|put|pipe)\b|(?:anonymous|policy) set\b)",
    "s3cmd": r"(?:put|sync|setacl)\b(?!.* s3://\S+ [^s]\S*$)",
    "s5cmd": r"(?:cp|mv|sync)\b.* s3://\S*$",
    "azcopy": r"(?:copy|cp|sync)\b",
}
"""Arguments with which programs publish something, matched from the first that is not an option."""
_NAMED = {name: re.compile(pattern) for names, pattern in _PUSHES.items() for name in names.split()}
_DRY = ("--dry-run", "--dryrun", "-n", "--help", "-h", "--version")
_HOSTS = word_set("parallel-shells")
_ONLY_SHOWS = ("--syntax-check", "--check", "-C", "--version", "--help", "-h", "--list", "-l")
_SERVERS = word_set("file-servers")
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
    """Return whether a command runs on several machines at once."""
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
    """Return whether a request to the socket of a container engine changes something."""
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
    """Return whether a server offers a home, the root or a system directory to other machines."""
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
