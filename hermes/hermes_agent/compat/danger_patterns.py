"""Upstream's lists of regular expressions, for plugins that look a command up by themselves. Source: contract §10.4.

Nothing of ours judges by them: `policy.shell` reads the grammar. Each finds the plain form of what it describes.
"""

from __future__ import annotations

__all__ = ["DANGEROUS_PATTERNS", "HARDLINE_PATTERNS"]

_END = r"(?:\s|$|[;&|\"'`)])"
_RM = r"(?is)\brm\s+(?:-\S+\s+)*"
_SYSTEM = r"[\"']?/(?:etc|usr|bin|sbin|lib\w*|boot|sys|var/lib|System|Library)\b"
_SENSITIVE = (
    r"(?:~|\$\{?HOME\}?|/root|/home/[^/\s]+)/\.(?:ssh|gnupg|aws|kube|docker|netrc|pgpass|npmrc|pypirc|bashrc|bash_\w+"
    r"|profile|zsh\w+|zprofile|kshrc)\b"
)
_HERMES = r"(?:~|\$\{?HOME\}?|/root|/home/[^/\s]+)/\.hermes/(?:config\.yaml|\.env|auth\.json)"
_PROJECT = r"(?:[\w./~$-]*/)?(?:\.env(?:\.(?!example|sample|template|dist)\w+)?|\.envrc|config\.ya?ml)" + _END
_DEVICE = r"[\"']?/dev/(?!null|zero|full|u?random|tty|std|fd/|shm|pts|ptmx)\w"
_SHELL = r"\b(?:ba|z|da|k|a)?sh\b"
_RUNNER = rf"(?:{_SHELL}|python[\d.]*\b|perl\b|ruby\b|node\b|xargs\b.*\b(?:ba)?sh\s+-c)"
_TO_SHELL = rf"[^;&]*\|\s*(?:sudo\s+(?:-\S+\s+)*)?(?:env\s+\S*\s*)?{_RUNNER}"
_FETCH = r"\b(?:curl|wget|fetch|nc|ncat|aria2c)\b"
_WRITABLE = r"(?:[0-7]{0,2}[0-7][0-7][2367]\b|(?:[ug]*[oa][ugoa]*|)[+=][rx]*w)"
_BOMB = r"(?:([\w:.]{1,40})\s{0,9}\(\)|function\s{1,9}(\S{1,40}))\s{0,9}\{\s{0,9}(?:\1|\2)\s{0,9}[|&]"
_OBFUSCATION = "(possible command obfuscation)"
_PATH = "sensitive credential/SSH/shell-rc path"
_START = "start gateway outside systemd (use 'systemctl --user restart hermes-gateway')"
_GIT = r"(?is)\bgit\s+(?:-[cC]\s+\S+\s+|--?\S+\s+)*"

DANGEROUS_PATTERNS: list[tuple[str, str]] = [
    (r"(?is)\b(?:rm|shred)\s+(?:-\S+\s+)*[\"']?/(?!(?:var/)?tmp/\w)", "delete in root path"),
    (r"(?s)\brm\s[^;&|\n]{0,300}?(?<=\s)-[a-zA-Z]*[rR]", "recursive delete"),
    (r"(?is)\brm\s[^;&|\n]{0,300}?--recursive\b", "recursive delete (long flag)"),
    (r"(?is)\b(?:del|erase|rd|rmdir)\b.*\s/[sqf]\b", "Windows cmd destructive delete"),
    (r"(?is)\b(?:remove-item|ri)\b.*\s-(?:recurse|force|r|fo)\b", "Windows PowerShell destructive delete"),
    (r"(?is)\b(?:powershell|pwsh)(?:\.exe)?\s.*-e(?:nc?|c|ncodedcommand)\s", "PowerShell encoded command execution"),
    (rf"(?s)\bchmod\s+(?:-[a-zA-Z]+\s+)*{_WRITABLE}", "world/other-writable permissions"),
    (rf"(?s)\bchmod\s+--recursive\s+{_WRITABLE}", "recursive world/other-writable (long flag)"),
    (r"(?s)\bchown\s+(?:-\w+\s+)*-\w*R\w*\s+(?:root|0)\b", "recursive chown to root"),
    (r"(?s)\bchown\s+(?:\S+\s+)*--recursive\s+(?:\S+\s+)*(?:root|0)\b", "recursive chown to root (long flag)"),
    (r"(?is)\b(?:mkfs(?:\.\w+)?|mke2fs|mkswap|wipefs)\s+(?!--(?:help|version))\S", "format filesystem"),
    (rf"(?is)\bdd\b.*\b[io]f={_DEVICE}", "disk copy"),
    (
        rf"(?is)(?:>\|?\s*|\btee\s+(?:-\S+\s+)*|\bcp\s+\S+\s+|\b(?:shred|parted|blkdiscard)\s+(?:-\S+\s+)*){_DEVICE}",
        "write to block device",
    ),
    (r"(?is)\bdrop\s+(?:table|database|schema|view|index|user|role)\b", "SQL DROP"),
    (r"(?is)\bdelete\s+from\s+(?:(?!\bwhere\b)[^;])*(?:;|$)", "SQL DELETE without WHERE"),
    (r"(?is)\btruncate\s+(?:table\s+)?(?!-)[a-z_\"]\w*", "SQL TRUNCATE"),
    (r"(?s)>{1,2}\s*[\"']?/etc/", "overwrite system config"),
    (r"(?is)\b(?:systemctl|service|rc-service)\b.*\b(?:stop|restart|disable|mask)\b", "stop/restart system service"),
    (r"(?s)\bkill\s+(?:-\S+\s+|\w+\s+)*-1\b|\bkillall5\b", "kill all processes"),
    (
        r"(?is)\b(?:kill|pkill|killall)\s+(?:-9|-(?:SIG)?KILL|-s\s+(?:SIG)?KILL|--signal[ =]\w+)\b",
        "force kill processes",
    ),
    (r"(?is)\bkillall\s+(?:-\S+\s+)*-(?:SIG)?KILL\b", "force kill processes (killall -KILL)"),
    (
        r"(?is)\bkillall\s+(?:-\S+\s+)*(?:-s|--signal)[ =]?\s*(?:SIG)?(?:KILL|9)\b",
        "force kill processes (killall -s KILL)",
    ),
    (r"(?s)\bkillall\s+(?:\S+\s+)*(?:-\w*r\w*\b|--regexp\b)", "kill processes by regex (killall -r)"),
    (_BOMB, "fork bomb"),
    (rf"(?is){_FETCH}{_TO_SHELL}", "pipe remote content to shell"),
    (rf"(?is)(?:{_SHELL}|\bsource|(?:^|\s)\.)\s+<\(\s*{_FETCH}", "execute remote script via process substitution"),
    (
        rf"(?is)(?:(?:{_SHELL}\s+-c|\beval)\s+[\"']?|^\s*)(?:\$\(|`)\s*{_FETCH}",
        "execute remote content via command substitution",
    ),
    (
        rf"(?is)\bbase(?:64|32)\s+(?:\S+\s+)*?(?:-\w*[dD]|--decode){_TO_SHELL}|(?:\s-c|\beval)\s+[\"']?\$\([^)]*base64\s+-\w*d",
        f"pipe decoded content to shell {_OBFUSCATION}",
    ),
    (rf"(?is)\bxxd\s+(?:\S+\s+)*?-\w*r{_TO_SHELL}", f"pipe xxd-decoded content to shell {_OBFUSCATION}"),
    (rf"(?is)\b(?:tr|rev)\b{_TO_SHELL}", f"pipe tr-transformed output to shell {_OBFUSCATION}"),
    (rf"(?is)\bopenssl\b{_TO_SHELL}", f"pipe openssl-decoded content to shell {_OBFUSCATION}"),
    (rf"(?is)\btee\s+(?:-\S+\s+)*(?:{_SYSTEM}|{_SENSITIVE})", "overwrite system file via tee"),
    (
        rf"(?is)>{{1,2}}\s*[\"']?(?:{_SENSITIVE}|/(?:usr|bin|sbin|lib|boot|sys|proc/sys)\b)",
        "overwrite system file via redirection",
    ),
    (rf"(?is)\btee\s+(?:-\S+\s+)*{_PROJECT}", "overwrite project env/config via tee"),
    (rf"(?is)>{{1,2}}\s*[\"']?{_PROJECT}", "overwrite project env/config via redirection"),
    (r"(?is)\bxargs\s+(?:-\S+\s+(?:\d+\s+)?)*rm\b", "xargs with rm"),
    (r"(?is)\bfind\b.*-exec(?:dir)?\s+(?:\S*/)?rm\b", "find -exec/-execdir rm"),
    (r"(?is)\bfind\b.*\s-delete\b", "find -delete"),
    (r"(?is)\bhermes\s+gateway\s+(?:stop|restart)\b", "stop/restart hermes gateway (kills running agents)"),
    (r"(?is)\bhermes\s+update\b", "hermes update (restarts gateway, kills running agents)"),
    (
        r"(?is)\b(?:docker|podman)[ -]compose\s+(?:-\S+\s+(?:\S+\.ya?ml\s+)?)*(?:restart|stop|kill|down)\b",
        "docker compose restart/stop/kill/down (container lifecycle)",
    ),
    (
        r"(?is)\b(?:docker|podman)\s+(?:container\s+)?(?:restart|stop|kill)\b",
        "docker restart/stop/kill (container lifecycle)",
    ),
    (r"(?is)\b(?:nohup|setsid)\b.*\bhermes\s+gateway\s+(?:run|start)\b", _START),
    (r"(?is)\bhermes\s+gateway\s+(?:run|start)\b.*(?:&\s*$|\bdisown\b)", _START),
    (r"(?is)\b(?:pkill|killall)\b.*\b(?:hermes|gateway)\b", "kill hermes/gateway process (self-termination)"),
    (
        r"(?is)\bkill\b.*\$\(\s*(?:pgrep|pidof)\b|\b(?:pgrep|pidof)\b.*\|\s*xargs\s.*\bkill\b",
        "kill process via pgrep/pidof expansion (self-termination)",
    ),
    (r"(?is)\bkill\b.*`\s*(?:pgrep|pidof)\b", "kill process via backtick pgrep/pidof expansion (self-termination)"),
    (
        r"(?is)\blaunchctl\s+(?:stop|kickstart|unload|bootout|kill|remove)\b.*hermes",
        "stop/restart hermes launchd service (kills running agents)",
    ),
    (
        rf"(?is)\b(?:cp|mv|install|ln)\b(?:.*\s-t\s+{_SYSTEM}|.*\s{_SYSTEM}\S*[\"']?\s*(?:$|[;&|]))",
        "copy/move file into system config path",
    ),
    (rf"(?is)\b(?:cp|mv|install)\b.*\s{_PROJECT}\s*(?:$|[;&|])", "overwrite project env/config file"),
    (rf"(?is)\b(?:cp|mv|install|ln)\b.*\s{_SENSITIVE}\S*\s*(?:$|[;&|])", f"copy/move file into {_PATH}"),
    (rf"(?s)\bsed\s+(?:\S+\s+)*?-[nErsz]*i.*{_SENSITIVE}", f"in-place edit of {_PATH}"),
    (rf"(?s)\bsed\s+.*--in-place.*{_SENSITIVE}", f"in-place edit of {_PATH} (long flag)"),
    (rf"(?s)\b(?:perl|ruby)\s+-\w*i.*{_SENSITIVE}", f"in-place edit of {_PATH} (perl/ruby)"),
    (rf"(?s)\bsed\s+(?:\S+\s+)*?-[nErsz]*i.*{_SYSTEM}", "in-place edit of system config"),
    (rf"(?s)\bsed\s+.*--in-place.*{_SYSTEM}", "in-place edit of system config (long flag)"),
    (rf"(?s)\bsed\s+(?:\S+\s+)*?-[nErsz]*i.*{_HERMES}", "in-place edit of Hermes config/env"),
    (rf"(?s)\bsed\s+.*--in-place.*{_HERMES}", "in-place edit of Hermes config/env (long flag)"),
    (rf"(?s)\b(?:perl|ruby)\s+-\w*i.*{_HERMES}", "in-place edit of Hermes config/env (perl/ruby)"),
    (rf"(?s){_SHELL}(?:\s+-\w+)*\s*<<(?!<)", "shell execution via heredoc"),
    (_GIT + r"reset\s+(?:\S+\s+)*--hard\b", "git reset --hard (destroys uncommitted changes)"),
    (_GIT + r"push\b.*(?:--force\b|--force-with-lease|\s\+\w)", "git force push (rewrites remote history)"),
    (_GIT + r"push\s+(?:\S+\s+)*-[a-z]*f", "git force push short flag (rewrites remote history)"),
    (
        _GIT + r"clean\s+(?:-\S+\s+)*(?:-[a-mo-z]*f[a-mo-z]*\b|--force\b)",
        "git clean with force (deletes untracked files)",
    ),
    (
        _GIT.replace("(?is)", "(?s)") + r"branch\s+(?:\S+\s+)*(?:-D\b|-d\s+-f\b|-f\s+-d\b|-df\b|-fd\b)",
        "git branch force delete",
    ),
    (_GIT + r"branch\s+.*--delete\b.*--force\b", "git branch force delete (long flags)"),
    (_GIT + r"branch\s+.*--force\b.*--delete\b", "git branch force delete (long flags, force-first)"),
    (
        r"(?is)\bchmod\s+(?:\S*\+\w*x|[0-7]*[1357][0-7]*)\s+(?:\./)?(\S+?)\s*(?:;|&&)\s*(?:(?:ba)?sh\s+(?:\./)?\1|\./\1)",
        "chmod +x followed by immediate execution",
    ),
    (
        r"(?s)\bsudo\s+(?:-[SAsil]\b|--(?:stdin|askpass|shell|list|login)\b)",
        "sudo with privilege flag (stdin/askpass/shell/list)",
    ),
    (r"(?s)\bsudo\s+-(?=\w*[SAsil])\w{2,}\b", "sudo with combined-flag privilege escalation"),
]
"""`(regex, description)`, to be searched for."""

HARDLINE_PATTERNS: list[tuple[str, str]] = [
    (_RM + rf"[\"']?/+(?:\.?/?\*?)?[\"']?{_END}", "recursive delete of root filesystem"),
    (
        _RM + rf"[\"']?/(?:bin|boot|dev|etc|home|lib\w*|nix|opt|proc|root|run|s?bin|srv|sys|usr|var)/?\*?[\"']?{_END}",
        "recursive delete of system directory",
    ),
    (_RM + rf"[\"']?(?:~|\$\{{?HOME\}}?|/home/[\w.-]+)/?\*?[\"']?{_END}", "recursive delete of home directory"),
    (rf"(?is)\bmk(?:fs(?:\.\w+)?|e2fs)\s+(?:\S+\s+)*{_DEVICE}", "format filesystem (mkfs)"),
    (rf"(?is)\bdd\b.*\bof={_DEVICE}", "dd to raw block device"),
    (rf"(?is)>\|?\s*{_DEVICE}", "redirect to raw block device"),
    (_BOMB, "fork bomb"),
    (r"(?s)\bkill\s+(?:-\S+\s+|\w+\s+)*-1\b|\bkillall5\b", "kill all processes"),
    (
        r"(?is)(?:^|[;&|(]\s*|\bsudo\s+(?:-\S+\s+)*)(?:\S*/)?"
        r"(?:shutdown(?!\s+-c)|reboot|halt|poweroff)\b(?!\s+--help)",
        "system shutdown/reboot",
    ),
    (r"(?is)\binit\s+[06]\b", "init 0/6 (shutdown/reboot)"),
    (r"(?is)\bsystemctl\s+(?:-\S+\s+)*(?:poweroff|reboot|halt|kexec)\b(?!\.)", "systemctl poweroff/reboot"),
    (r"(?is)\btelinit\s+[06]\b", "telinit 0/6 (shutdown/reboot)"),
]
"""The same of what never runs (§10.3)."""
