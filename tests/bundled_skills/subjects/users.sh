# bob has an ACL for a file in a folder that he may not enter; everyone may write a file of /etc
groupadd -f projects
useradd -m bob
useradd -m -G projects carol
mkdir -p /srv/projects/plans
echo plan >/srv/projects/plans/plan.txt
chgrp -R projects /srv/projects
chmod 750 /srv/projects
chmod 640 /srv/projects/plans/plan.txt
setfacl -m u:bob:rw /srv/projects/plans/plan.txt
echo 'bob ALL=(root) NOPASSWD: /usr/bin/systemctl restart shop' >/etc/sudoers.d/bob
chmod 440 /etc/sudoers.d/bob
echo key=1 >/etc/shop.conf
chmod 666 /etc/shop.conf
python3 /opt/logins.py
