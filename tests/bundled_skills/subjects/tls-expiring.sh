# a server with a certificate that ends in five days, and a chain that lacks the authority in between
. /opt/authority.sh
issue 5 shop
openssl s_server -accept 443 -cert shop.crt -key shop.key -www >/dev/null 2>&1 </dev/null &
until_ "ss -Htln | grep -q :443"
cd /
