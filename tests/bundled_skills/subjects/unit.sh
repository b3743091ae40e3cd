# a unit with a program that is not there, one with a user that is not there, and a timer
cat >/etc/systemd/system/report.service <<'UNIT'
[Unit]
Description=nightly report
Wants=report-data.target
[Service]
ExecStart=/usr/local/bin/report-generator --all
MemoryMax=64M
[Install]
WantedBy=multi-user.target
UNIT
echo '[Unit]' >/etc/systemd/system/report-data.target
printf '[Timer]\nOnCalendar=daily\n' >/etc/systemd/system/report.timer
printf '[Service]\nUser=nobody-of-that-name\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n' \
  >/etc/systemd/system/mailer.service
systemctl daemon-reload
systemctl enable -q report.service mailer.service
systemctl start report.timer
systemctl start report.service mailer.service || true
until_ "systemctl is-failed -q report && systemctl is-failed -q mailer"
