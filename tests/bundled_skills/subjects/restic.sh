# two snapshots, the newest some days old; a pack of the repository is lost; the timer's last run failed
mkdir -p /srv/data /root/restore
export RESTIC_REPOSITORY=/srv/backup RESTIC_PASSWORD_FILE=/etc/restic.password HOME=/root
echo secret-of-the-backup >$RESTIC_PASSWORD_FILE
chmod 600 $RESTIC_PASSWORD_FILE
restic init -q
head -c 300k /dev/urandom >/srv/data/photos.bin
restic backup -q --host shop --time "2024-01-05 03:00:00" /srv/data
head -c 200k /dev/urandom >/srv/data/letters.bin
restic backup -q --host shop --time "2024-01-06 03:00:00" /srv/data
restic snapshots --json | python3 -c '
import json, sys
for n, each in enumerate(json.load(sys.stdin), 1): print("SNAPSHOT%d=%s" % (n, each["short_id"]))' >>/run/names
largest=$(find $RESTIC_REPOSITORY/data -type f -printf '%s %p\n' | sort -n | tail -n 1 | cut -d' ' -f2)
rm -f "$largest"
printf '[Timer]\nOnCalendar=daily\n' >/etc/systemd/system/backup.timer
printf '[Service]\nType=oneshot\nExecStart=/bin/false\n' >/etc/systemd/system/backup.service
systemctl daemon-reload
systemctl start backup.timer
systemctl start backup.service || true
