# a repository of security updates, a package that is held, an update of this morning, a service with deleted code
package() { # NAME VERSION
  mkdir -p "/run/build/$1/DEBIAN" "/run/build/$1/usr/share/$1"
  printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: Shop <a@shop.example>\nDescription: %s\n' "$1" "$2" "$1" \
    >"/run/build/$1/DEBIAN/control"
  echo "$2" >"/run/build/$1/usr/share/$1/version"
  dpkg-deb -Znone --build "/run/build/$1" "$3"
}
mkdir -p /srv/repo
for name in libdemo shopd ledgerd; do
  package $name 1.0 /run/$name.deb >/dev/null
  dpkg -i /run/$name.deb >/dev/null
  package $name 1.1 /srv/repo/${name}_1.1_all.deb >/dev/null
done
package libdemo 1.0.5 /run/libdemo.deb >/dev/null
dpkg -i /run/libdemo.deb >/dev/null
(
  cd /srv/repo
  for deb in *.deb; do
    dpkg-deb -f "$deb"
    printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$deb" "$(stat -c %s "$deb")" "$(sha256sum "$deb" | cut -d' ' -f1)"
  done >Packages
  printf 'Origin: Debian\nLabel: Debian-Security\nSuite: stable-security\nCodename: bookworm-security\nDate: %s\nSHA256:\n %s %s Packages\n' \
    "$(date -Ru)" "$(sha256sum Packages | cut -d' ' -f1)" "$(stat -c %s Packages)" >Release
)
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* /var/lib/apt/lists/*
echo 'deb [trusted=yes] file:/srv/repo ./' >/etc/apt/sources.list
apt-get update -qq
apt-mark hold ledgerd >/dev/null
cp /bin/sleep /usr/local/bin/shop-server
printf '[Service]\nExecStart=/usr/local/bin/shop-server infinity\n' >/etc/systemd/system/shop.service
systemctl daemon-reload
systemctl start shop
cp /bin/sleep /usr/local/bin/.new
mv /usr/local/bin/.new /usr/local/bin/shop-server
echo '*** System restart required ***' >/var/run/reboot-required
apt list --upgradable >/dev/null 2>&1 # what apt keeps in a cache is there before
apt-get --simulate upgrade >/dev/null
