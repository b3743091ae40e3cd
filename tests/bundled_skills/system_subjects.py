"""Faults of the system itself: units, journal, boot, space, users, packages, and what security asks about."""

from __future__ import annotations

from pathlib import Path

from bundled_skills.trial import Subject, has

__all__ = ["HARDWARE", "SUBJECTS"]

TIMERS = "systemctl list-timers --all --no-pager"
FAILED = "systemctl --failed --no-pager"
SLOW_CACHE = "[Service]\nType=oneshot\nExecStart=/bin/sleep 2\n[Install]\nWantedBy=multi-user.target\n"
SLOW_DATABASE = (
    "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sleep 3\n[Install]\nWantedBy=multi-user.target\n"
)
WAIT_ONLINE = """\
[Unit]
After=systemd-networkd.service
Requires=systemd-networkd.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/lib/systemd/systemd-networkd-wait-online --timeout=3
[Install]
WantedBy=multi-user.target
"""

SUBJECTS = [
    Subject(
        "journal-analysis",
        "journal.sh",
        {
            "journalctl --list-boots --no-pager": has(r"^\s*0 [0-9a-f]{32} "),
            "journalctl -b -p err --no-pager -n 100": has(r"Failed to start ledger", r"I/O error, dev sda"),
            "journalctl -u UNIT -b --no-pager -n 100 -o short-precise": has(
                r"\d\d:\d\d:\d\d\.\d{6} .*cannot open /etc/ledger\.key: Permission denied",
                r"restart counter is at 3",
                r"Start request repeated too quickly",
            ),
            "journalctl -k -b -p warning --no-pager -n 50": has(r"kernel: blk_update_request: I/O error, dev sda"),
            "journalctl --disk-usage": has(r"take up [\d.]+M"),
        },
        names={"UNIT": "ledger.service"},
    ),
    Subject(
        "systemd-units",
        "unit.sh",
        {
            FAILED: has(r"mailer\.service +loaded failed", r"report\.service +loaded failed failed nightly report"),
            "systemctl status UNIT --no-pager -l": has(
                r"Active: failed \(Result: exit-code\)", r"status=203/EXEC", r"TriggeredBy: .*report\.timer", status=3
            ),
            "systemctl cat UNIT --no-pager": has(r"^# /etc/systemd/system/report\.service", r"^ExecStart=/usr/local"),
            "systemctl show UNIT -p Result,ExecMainStatus,NRestarts,MemoryMax --no-pager": has(
                r"^Result=exit-code$", r"^ExecMainStatus=203$", r"^NRestarts=0$", r"^MemoryMax=67108864$"
            ),
            "journalctl -u UNIT -b --no-pager -n 50": has(r"Main process exited, code=exited, status=203/EXEC"),
            "systemctl list-dependencies UNIT --no-pager": has(r"report-data\.target"),
            TIMERS: has(r"report\.timer +report\.service"),
            "systemd-analyze verify UNIT_FILE": has(r"report-generator is not executable", status=1),
            "systemd-analyze security UNIT --no-pager": has(
                r"Overall exposure level for report\.service: 9\.\d UNSAFE"
            ),
        },
        names={"UNIT": "report.service", "UNIT_FILE": "/etc/systemd/system/report.service"},
        quick=True,
    ),
    Subject(
        "slow-boot",
        "slow-boot.sh",
        {
            "systemd-analyze time": has(r"Startup finished in [3-9]\.\d+s \(userspace\)"),
            "systemd-analyze blame --no-pager": has(
                r"^ *3\.\d+s slow-database\.service", r"^ *2\.\d+s slow-cache\.service"
            ),
            "systemd-analyze critical-chain --no-pager": has(
                r"slow-database\.service @\d+ms \+3\.\d+s", lacks=("slow-cache",)
            ),
            "systemctl list-jobs --no-pager": has(r"No jobs running|JOB UNIT"),
            "journalctl -b -u systemd-networkd-wait-online.service --no-pager -n 20": has(
                r"Timeout occurred while waiting for network connectivity"
            ),
        },
        units={
            "slow-cache.service": SLOW_CACHE,
            "slow-database.service": SLOW_DATABASE,
            "systemd-networkd-wait-online.service": WAIT_ONLINE,
            "systemd-networkd.service": Path("lib/systemd/system/systemd-networkd.service"),
        },
        enable=("slow-cache.service", "slow-database.service", "systemd-networkd-wait-online.service"),
    ),
    Subject(
        "disk-pressure",
        "disk.sh",
        {
            "df -hT": has(r"^tmpfs +tmpfs +12M +12M +0 +100% /srv/shop$"),
            "df -iT": has(r"^tmpfs +tmpfs +400 +400 +0 +100% /srv/shop$"),
            "du -xh --max-depth=2 FOLDER | sort -h | tail -n 20": has(r"^12M\s+/srv/shop/uploads$"),
            "du -x --inodes --max-depth=2 FOLDER | sort -n | tail -n 20": has(r"^39\d\s+/srv/shop/mails$"),
            "find /var/log -xdev -type f -size +100M -printf '%s %p\\n'": has(r"^105906176 /var/log/shop\.log$"),
            "find -L /proc/[0-9]*/fd -maxdepth 1 -type f -links 0 -size +1M -printf '%s %p\\n' 2>/dev/null": has(
                r"^31457280 /proc/\d+/fd/7$", status=(0, 1)
            ),
            "journalctl --disk-usage": has(r"take up [\d.]+M"),
        },
        names={"FOLDER": "/srv/shop"},
        quick=True,
    ),
    Subject(
        "users-permissions",
        "users.sh",
        {
            "id USER": has(r"^uid=\d+\(bob\) gid=\d+\(bob\) groups=\d+\(bob\)$", lacks=("projects",)),
            "getent passwd": has(r"^carol:"),
            "getent group": has(r"^projects:x:\d+:carol$"),
            "namei -l PATH": has(r"^drwxr-x--- root projects projects$", r"^ +plans - Permission denied$", status=1),
            "stat -c '%A %U:%G %n' PATH": has(r"Permission denied", status=1),
            "getfacl -p PATH": has(r"Permission denied", status=1),
            "sudo -n -l": has(r"\(root\) NOPASSWD: /usr/bin/systemctl restart shop"),
            "find /etc -xdev -perm -o+w -not -type l 2>/dev/null": has(r"^/etc/shop\.conf$", status=1),
            "last -n 20": has(r"^carol +pts/0 +192\.0\.2\.44 "),
        },
        names={"PATH": "/srv/projects/plans/plan.txt", "USER": "bob"},
        user="bob",
    ),
    Subject(
        "users-permissions",
        "users.sh",
        {
            "id USER": has(r"\(carol\) groups=\d+\(carol\),\d+\(projects\)$"),
            "getent passwd": has(r"^bob:"),
            "getent group": has(r"^projects:x:\d+:carol$"),
            "namei -l PATH": has(r"^drwxr-x--- root projects projects$", r"^-rw-rw---- root projects plan\.txt$"),
            "stat -c '%A %U:%G %n' PATH": has(r"^-rw-rw---- root:projects /srv/projects/plans/plan\.txt$"),
            "getfacl -p PATH": has(r"^user:bob:rw-$"),
            "sudo -n -l": has(r"may run the following commands"),
            "find /etc -xdev -perm -o+w -not -type l 2>/dev/null": has(r"^/etc/shop\.conf$"),
            "last -n 20": has(r"^carol +pts/0 "),
        },
        names={"PATH": "/srv/projects/plans/plan.txt", "USER": "carol"},
    ),
    Subject(
        "security-review",
        "security.sh",
        {
            "ss -tulpn": has(r"0\.0\.0\.0:5432 .*python3", r"0\.0\.0\.0:22 .*sshd"),
            "last -n 20": has(r"^carol +pts/0 +192\.0\.2\.44 "),
            "lastb -n 20": has(r"(?:^admin +ssh:notty +203\.0\.113\.9 .*\n){5}"),
            "getent passwd": has(r"^toor:x:0:0:"),
            "find / -xdev -type f -perm -4000": has(r"^/usr/local/bin/\.helper$", r"^/usr/bin/sudo$"),
            "find /tmp /dev/shm /var/tmp -xdev -type f -perm -u+x": has(r"^/tmp/\.x$"),
            "crontab -l": has(r"^\*/5 \* \* \* \* /tmp/\.x$"),
            "find /var/spool/cron -type f": has(r"^/var/spool/cron/crontabs/root$"),
            TIMERS: has(r"beacon\.timer +beacon\.service"),
            "ls -l /root/.ssh/authorized_keys /home/*/.ssh/authorized_keys": has(
                r"^-rw-r--r-- 1 root root +\d+ .* /root/\.ssh/authorized_keys$", status=2
            ),
            "systemctl list-unit-files --state=enabled --no-pager": has(r"^cron\.service +enabled"),
            "systemd-analyze security --no-pager": has(r"^ssh\.service +9\.\d UNSAFE"),
            "sshd -T": has(r"^permitrootlogin yes$", r"^passwordauthentication yes$"),
        },
    ),
    Subject(
        "package-update",
        "packages.sh",
        {
            "apt list --upgradable": has(
                r"^shopd/stable-security 1\.1 all \[upgradable from: 1\.0\]$", r"^ledgerd/stable-security 1\.1"
            ),
            "apt-get --simulate upgrade": has(
                r"kept back:\n +ledgerd$",
                r"^Inst shopd \[1\.0\] \(1\.1 Debian-Security:stable-security",
                r"0 to remove",
            ),
            "apt-mark showhold": has(r"^ledgerd$"),
            "grep -h 'upgrade ' /var/log/dpkg.log": has(
                r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d upgrade libdemo:all 1\.0 1\.0\.5$"
            ),
            "dnf check-update --cacheonly": None,
            "pacman -Qu": None,
            "needrestart -b -r l": has(r"^NEEDRESTART-SVC: shop\.service$"),
            "cat /var/run/reboot-required": has(r"System restart required"),
        },
        restless=(r"/var/log/apt(/eipp.*)?$",),  # apt leaves its last plan there, also a simulated one
    ),
    Subject(
        "package-update",
        "packages-rpm.sh",
        {
            "apt list --upgradable": None,
            "apt-get --simulate upgrade": None,
            "apt-mark showhold": None,
            "grep -h 'upgrade ' /var/log/dpkg.log": None,
            "dnf check-update --cacheonly": has(r"^demo\.noarch +1\.1-1 +demo", status=100),
            "pacman -Qu": has(r"^demo 1\.0-1 -> 1\.1-1$"),
            "needrestart -b -r l": None,
            "cat /var/run/reboot-required": None,
        },
        # dnf writes its logs, and opens the database of rpm, which Debian has in root's home
        restless=(r"/var/log/(dnf|hawkey)", r"^/var/log$", r"\.rpmdb", r"^/root$", r"^/var/cache(/dnf.*)?$"),
    ),
    Subject(
        "incident-report",
        "incident.sh",
        {
            "date -u": has(r"UTC"),
            "uptime": has(r"load average: "),
            "last -x -F -n 10": has(r"^reboot +system boot .* \d\d:\d\d:\d\d \d{4} "),
            "journalctl -b -p warning --no-pager -n 100 -o short-iso --utc": has(
                r"^\d{4}-\d\d-\d\dT[\d:]+(\+0000|Z) .*shop\.service: Failed with result 'exit-code'"
            ),
            "journalctl -u UNIT -b --no-pager -n 50 -o short-iso --utc": has(
                r"^\d{4}-\d\d-\d\dT[\d:]+(\+0000|Z) .*cannot start 4 workers"
            ),
            FAILED: has(r"shop\.service +loaded failed"),
            "git log --since='2 days ago' --format='%cI %h %s'": has(
                r"^\d{4}-\S+T\S+ [0-9a-f]{7} Raise the workers to 4$"
            ),
            "grep -h 'upgrade ' /var/log/dpkg.log": has(r"^\d{4}-\S+ [\d:]+ upgrade shopd:all 1\.0 1\.1$"),
        },
        names={"UNIT": "shop.service"},
        environ={"TZ": "Europe/Berlin"},
        cwd="/srv/config",
    ),
]

HARDWARE = Subject(
    "hardware-health",
    "hardware.sh",
    {
        "lscpu": has(r"^CPU\(s\): +2$", r"^Model name: "),
        "free -h": has(r"^Mem: +1\.\dGi "),
        "lsblk -o NAME,SIZE,TYPE,FSTYPE,MOUNTPOINTS,MODEL": has(
            r"^nvme0n1 +64M disk .*QEMU NVMe Ctrl", r"^└─md0 +\d+M raid1"
        ),
        "smartctl --scan": has(r"^/dev/nvme0 -d nvme"),
        "smartctl -H -A DISK": has(
            r"test result: FAILED!", r"reliability has been degraded", r"^Critical Warning: +0x04$", status=8
        ),
        "sensors": has(r"No sensors found", status=1),
        "dmesg --level=err,warn": has(r"critical medium error, dev nvme0n1, sector 2048"),
        "cat /proc/mdstat": has(r"^md0 : active raid1 nvme1n1\[0\]", r"\[2/1\] \[U_\]"),
        "uptime": has(r"load average: "),
    },
    names={"DISK": "/dev/nvme0"},
)
