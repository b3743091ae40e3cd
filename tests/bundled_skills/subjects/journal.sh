# a service that cannot read its key and restarts until it may no more; a disk with errors in the kernel's log
cat >/usr/local/bin/ledger <<'SH'
#!/bin/sh
echo "cannot open /etc/ledger.key: Permission denied" >&2
exit 1
SH
chmod +x /usr/local/bin/ledger
cat >/etc/systemd/system/ledger.service <<'UNIT'
[Unit]
StartLimitIntervalSec=60
StartLimitBurst=4
[Service]
ExecStart=/usr/local/bin/ledger
Restart=on-failure
RestartSec=300ms
[Install]
WantedBy=multi-user.target
UNIT
systemctl daemon-reload
systemctl enable -q ledger
systemctl start ledger
until_ "systemctl is-failed -q ledger"
# journald takes kernel messages from the kernel alone, so these come as from another machine's journal, for this boot
boot=$(tr -d - </proc/sys/kernel/random/boot_id)
machine=$(cat /etc/machine-id)
now=$(date +%s%6N)
mkdir -p "/var/log/journal/$machine"
printf '%s\n' "__REALTIME_TIMESTAMP=$now" "__MONOTONIC_TIMESTAMP=1000000" "_BOOT_ID=$boot" "_TRANSPORT=kernel" \
  "PRIORITY=3" "SYSLOG_IDENTIFIER=kernel" "_MACHINE_ID=$machine" "_HOSTNAME=disk" \
  "MESSAGE=blk_update_request: I/O error, dev sda, sector 204800" "" |
  /lib/systemd/systemd-journal-remote -o "/var/log/journal/$machine/kernel.journal" -
journalctl --sync
