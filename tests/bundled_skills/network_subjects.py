"""Faults of the network, of names, certificates and logins."""

from __future__ import annotations

from pathlib import Path

from bundled_skills.trial import Subject, has

__all__ = ["SUBJECTS"]

TIMERS = "systemctl list-timers --all --no-pager"
RESOLVED = {"systemd-resolved.service": Path("lib/systemd/system/systemd-resolved.service")}
SERVED = (
    "openssl s_client -connect HOST:443 -servername HOST </dev/null 2>/dev/null | openssl x509 -noout -enddate -serial"
)
DAYS_5 = r"^notAfter=.* GMT$"

SUBJECTS = [
    Subject(
        "network",
        "network.sh",
        {
            "ip -brief address": has(r"^cable1@peer1 +LOWERLAYERDOWN", r"^lan0@peer0 +UP +192\.0\.2\.7/24"),
            "ip route": has(r"^192\.0\.2\.0/24 dev lan0", lacks=(r"^default",)),
            "ip -s link": has(r"lan0@peer0: .*\n.*\n +RX: .*dropped.*\n +\d+ +\d+ +0 +(?:2[5-9]|[3-9]\d) "),
            "ss -tulpn": has(r"0\.0\.0\.0:8080 .*python3", r"127\.0\.0\.1:8081 .*python3"),
            "ss -s": has(r"^TCP\s+2\s"),
            "cat /etc/resolv.conf": has(r"^nameserver 192\.0\.2\.53$"),
        },
    ),
    Subject(
        "dns",
        "dns.sh",
        {
            "getent ahosts localhost": has(r"^127\.0\.0\.1 +STREAM localhost"),
            "getent hosts HOST": has(r"^198\.51\.100\.66 +app\.example$"),
            "cat /etc/resolv.conf": has(r"^nameserver 127\.0\.0\.3$"),
            "grep -v '^#' /etc/nsswitch.conf": has(r"^hosts: +files"),
            "resolvectl status --no-pager": has(r"DNS Servers:? 127\.0\.0\.3"),
            "resolvectl query HOST": has(r"app\.example: 198\.51\.100\.66"),
            "dig +noall +comments +answer HOST": has(
                r"status: NOERROR", r"^app\.example\.\s+\d+\s+IN\s+A\s+192\.0\.2\.10$"
            ),
            "dig +trace +time=2 +tries=1 HOST": has(
                r"^\.\s+\d+\s+IN\s+NS\s+a\.root\.", r"^example\.\s+3600\s+IN\s+NS\s+ns\.example\.", r"\s192\.0\.2\.10$"
            ),
        },
        names={"HOST": "app.example"},
        units=RESOLVED,
    ),
    Subject(
        "dns",
        "dns-down.sh",
        {
            "getent ahosts localhost": has(r"^127\.0\.0\.1 +STREAM localhost"),
            "getent hosts HOST": has(status=2),
            "cat /etc/resolv.conf": has(r"^nameserver 192\.0\.2\.53$"),
            "grep -v '^#' /etc/nsswitch.conf": has(r"^hosts: +files"),
            "resolvectl status --no-pager": has(r"DNS Servers:? 192\.0\.2\.53"),
            "resolvectl query HOST": has(r"resolve call failed", status=1),
            "dig +noall +comments +answer HOST": has(
                r"no servers could be reached|timed out|host unreachable", status=9
            ),
            "dig +trace +time=2 +tries=1 HOST": has(r"no servers could be reached", status=9),
        },
        names={"HOST": "app.example"},
        units=RESOLVED,
    ),
    Subject(
        "tls-expiry",
        "tls-expiring.sh",
        {
            "openssl x509 -in CERT -noout -subject -issuer -enddate -ext subjectAltName": has(
                r"^issuer=CN = Test Authority$", DAYS_5, r"DNS:localhost, DNS:shop\.example"
            ),
            "openssl x509 -in CERT -noout -checkend 2592000": has(r"^Certificate will expire$", status=1),
            "openssl verify -untrusted CERT CERT": has(r"unable to get local issuer certificate", status=2),
            "openssl s_client -connect HOST:443 -servername HOST -verify_hostname HOST -brief </dev/null": has(
                r"^CONNECTION ESTABLISHED$", r"^Verification error: unable to (verify|get)"
            ),
            SERVED: has(DAYS_5, r"^serial="),
            TIMERS: has(r"timers listed"),
        },
        names={"CERT": "/etc/tls/shop.crt", "HOST": "localhost"},
    ),
    Subject(
        "tls-expiry",
        "tls-renewed.sh",
        {
            "openssl x509 -in CERT -noout -subject -issuer -enddate -ext subjectAltName": has(DAYS_5),
            "openssl x509 -in CERT -noout -checkend 2592000": has(r"^Certificate will not expire$"),
            "openssl verify -untrusted CERT CERT": has(r"^/etc/tls/shop\.chain: OK$"),
            "openssl s_client -connect HOST:443 -servername HOST -verify_hostname HOST -brief </dev/null": has(
                r"^Verification: OK$", r"^Verified peername: localhost$"
            ),
            SERVED: has(DAYS_5, r"^serial="),
            TIMERS: has(r"renew\.timer +renew\.service"),
        },
        names={"CERT": "/etc/tls/shop.chain", "HOST": "localhost"},
    ),
    Subject(
        "ssh",
        "ssh.sh",
        {
            "ssh -V": has(r"^OpenSSH_"),
            "ssh -G HOST": has(r"^hostname localhost$", r"^user root$", r"^identityfile ~/\.ssh/id_ed25519$"),
            "ssh-keygen -lf KEY.pub": has(r"^256 SHA256:\S+ root@shop \(ED25519\)$"),
            "namei -l ~/.ssh/authorized_keys": has(
                r"^drwxrwxrwx root root \.ssh$", r"^-rw------- root root authorized_keys$"
            ),
            "sshd -T": has(r"^strictmodes yes$", r"^maxauthtries 6$"),
            "journalctl -u ssh -u sshd -b --no-pager -n 50": has(
                r"Authentication refused: bad ownership or modes for directory /root/\.ssh"
            ),
            "ssh-add -l": has(r"(?:^256 SHA256:\S+ key-\d \(ED25519\)\n?){7}"),
        },
        names={"HOST": "shop", "KEY": "/root/.ssh/id_ed25519"},
        environ={"SSH_AUTH_SOCK": "/run/agent"},
    ),
]
