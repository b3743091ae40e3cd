# a repository of dnf and one of pacman with an update each
mkdir -p /run/rpm/SPECS /srv/repo
spec() {
  cat >/run/rpm/SPECS/demo.spec <<SPEC
Name: demo
Version: $1
Release: 1
Summary: demo
License: MIT
BuildArch: noarch
%description
demo
%files
SPEC
  rpmbuild -bb --quiet --define "_topdir /run/rpm" /run/rpm/SPECS/demo.spec >/dev/null 2>&1
}
spec 1.0
rpm -i --nodeps /run/rpm/RPMS/noarch/demo-1.0-1.noarch.rpm
spec 1.1
cp /run/rpm/RPMS/noarch/demo-1.1-1.noarch.rpm /srv/repo/
createrepo_c -q /srv/repo
mkdir -p /etc/yum.repos.d /etc/dnf
printf '[demo]\nname=demo\nbaseurl=file:///srv/repo\ngpgcheck=0\nenabled=1\n' >/etc/yum.repos.d/demo.repo
dnf -q makecache >/dev/null 2>&1
mkdir -p /run/pac/demo-1.1-1 /srv/pacman /var/lib/pacman /etc/pacman.d
printf 'pkgname = demo\npkgbase = demo\npkgver = 1.0-1\nbuilddate = 1\npackager = x\nsize = 1\narch = any\n' >/run/pac/.PKGINFO
tar -C /run/pac -cf /run/pac/demo-1.0-1-any.pkg.tar .PKGINFO
printf '[options]\nArchitecture = auto\nSigLevel = Never\n[own]\nServer = file:///srv/pacman\n' >/etc/pacman.conf
printf '%%FILENAME%%\ndemo-1.1-1-any.pkg.tar\n\n%%NAME%%\ndemo\n\n%%VERSION%%\n1.1-1\n\n%%ARCH%%\nany\n' >/run/pac/demo-1.1-1/desc
tar -C /run/pac -cf /srv/pacman/own.db demo-1.1-1
pacman -U --noconfirm -dd /run/pac/demo-1.0-1-any.pkg.tar >/dev/null 2>&1
pacman -Sy >/dev/null
