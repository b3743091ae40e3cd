# nginx still serves the certificate from before the renewal
. /opt/authority.sh
issue 5 shop
cat >/etc/nginx/nginx.conf <<'CONF'
events { }
http {
  access_log off;
  server { listen 443 ssl; ssl_certificate /etc/tls/shop.chain; ssl_certificate_key /etc/tls/shop.key; }
}
CONF
systemctl start nginx
issue 90 shop
until_ "ss -Htln | grep -q :443"
printf '[Timer]\nOnCalendar=weekly\n' >/etc/systemd/system/renew.timer
printf '[Service]\nType=oneshot\nExecStart=/bin/true\n' >/etc/systemd/system/renew.service
systemctl daemon-reload
systemctl start renew.timer renew.service
cd /
