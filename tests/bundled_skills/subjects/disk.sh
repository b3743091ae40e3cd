# a file system without space and inodes, a large log, and a process that holds a deleted file
mkdir -p /srv/shop
mount -t tmpfs -o size=12m,nr_inodes=400 tmpfs /srv/shop
mkdir -p /srv/shop/mails /srv/shop/uploads
! (for n in $(seq 500); do : >"/srv/shop/mails/$n" || exit; done) 2>/dev/null
rm /srv/shop/mails/1
! head -c 20m /dev/zero >/srv/shop/uploads/photo.raw 2>/dev/null
head -c 101m /dev/zero >/var/log/shop.log
mkfifo /run/never
(exec 7>/var/tmp/held.tmp && head -c 30m /dev/zero >&7 && rm /var/tmp/held.tmp && echo held >/run/held && cat /run/never) &
until_ "test -s /run/held"
