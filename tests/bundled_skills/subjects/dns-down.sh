# the name server of /etc/resolv.conf does not answer: there is no way to it
rm -f /etc/resolv.conf
printf 'nameserver 192.0.2.53\noptions timeout:1 attempts:1\n' >/etc/resolv.conf
echo '127.0.0.1 localhost' >/etc/hosts
ip link add lan0 type veth peer name peer0
ip address add 192.0.2.7/24 dev lan0
ip link set lan0 up
ip link set peer0 up
mkdir -p /etc/systemd/resolved.conf.d
printf '[Resolve]\nDNS=192.0.2.53\nDNSStubListener=no\n' >/etc/systemd/resolved.conf.d/own.conf
systemctl start systemd-resolved
