# three name servers: the root, the zone, and a resolver; an entry of the hosts file hides what they say
mkdir -p /etc/bind /var/cache/bind /run/named
chown bind /var/cache/bind /run/named
cat >/etc/bind/named.conf <<'CONF'
options {
  directory "/var/cache/bind"; dnssec-validation no; listen-on-v6 { none; };
  listen-on { 127.0.0.1; 127.0.0.2; 127.0.0.3; };
};
controls { };
view root {
  match-destinations { 127.0.0.1; }; recursion no; zone "." { type primary; file "/etc/bind/root"; };
};
view zone {
  match-destinations { 127.0.0.2; }; recursion no; zone "example" { type primary; file "/etc/bind/example"; };
};
view resolver {
  match-destinations { 127.0.0.3; }; recursion yes; zone "." { type hint; file "/etc/bind/hints"; };
};
CONF
cat >/etc/bind/root <<'ZONE'
$TTL 3600
. SOA a.root. hostmaster.root. 1 3600 600 86400 60
. NS a.root.
a.root. A 127.0.0.1
example. NS ns.example.
ns.example. A 127.0.0.2
ZONE
cat >/etc/bind/example <<'ZONE'
$TTL 300
@ SOA ns.example. hostmaster.example. 1 3600 600 86400 60
@ NS ns
ns A 127.0.0.2
app A 192.0.2.10
ZONE
printf '. 3600 NS a.root.\na.root. 3600 A 127.0.0.1\n' >/etc/bind/hints
for n in 2 3; do ip address add 127.0.0.$n/8 dev lo; done
systemctl start named
rm -f /etc/resolv.conf
echo "nameserver 127.0.0.3" >/etc/resolv.conf
printf '127.0.0.1 localhost\n198.51.100.66 app.example\n' >/etc/hosts
mkdir -p /etc/systemd/resolved.conf.d
printf '[Resolve]\nDNS=127.0.0.3\nDNSStubListener=no\n' >/etc/systemd/resolved.conf.d/own.conf
systemctl start systemd-resolved
until_ "dig +short app.example | grep -q 192.0.2.10"
until_ "resolvectl query app.example"
