# an admin page open to every network, a link without a carrier, no default route, and packets that are dropped
ip link add lan0 type veth peer name peer0
ip link add cable1 type veth peer name peer1
ip address add 192.0.2.7/24 dev lan0
ip link set lan0 up
ip link set peer0 up
ip link set cable1 up
echo "nameserver 192.0.2.53" >/etc/resolv.conf.new
rm -f /etc/resolv.conf
mv /etc/resolv.conf.new /etc/resolv.conf
mkdir -p /srv/admin
python3 -m http.server 8080 --bind 0.0.0.0 --directory /srv/admin >/dev/null 2>&1 &
python3 -m http.server 8081 --bind 127.0.0.1 --directory /srv/admin >/dev/null 2>&1 &
python3 - <<'PY' # a frame of no known protocol is dropped where it arrives
import socket
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as link:
    link.bind(("peer0", 0))
    for _ in range(25):
        link.send(b"\xff" * 6 + b"\x02\0\0\0\0\x01" + b"\x88\xb5" + b"x" * 46)
PY
until_ "ss -Htln | grep -q :8081 && ss -Htln | grep -q :8080"
