# an update, then a service that fails because of it; the configuration is in a git repository
echo "$(date '+%F %T') upgrade shopd:all 1.0 1.1" >>/var/log/dpkg.log
mkdir -p /srv/config
cd /srv/config
git init -q
echo 'workers=4' >shop.conf
git add .
git -c user.name=Ada -c user.email=ada@shop.example commit -qm "Raise the workers to 4"
cd /
printf '[Service]\nExecStart=/bin/sh -c "echo cannot start 4 workers >&2; exit 3"\n[Install]\nWantedBy=multi-user.target\n' \
  >/etc/systemd/system/shop.service
systemctl daemon-reload
systemctl enable -q shop
systemctl start shop
until_ "systemctl is-failed -q shop"
python3 /opt/logins.py
journalctl --sync
