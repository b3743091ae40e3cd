# two generations of a system: a kernel was updated and is not booted yet, and a service failed after the switch
. /opt/nix.sh
system() { # KERNEL NGINX: builds a system
  nix-build --no-out-link -E "
    let sh = name: script: derivation { inherit name; system = \"x86_64-linux\"; builder = \"/bin/sh\"; args = [ \"-c\" script ]; };
    in sh \"nixos-system-shop-$1\" \"echo \${sh \"linux-$1\" \"echo kernel > \\\$out\"} \${sh \"nginx-$2\" \"echo web > \\\$out\"} > \\\$out\"" \
    2>/dev/null
}
old=$(system 6.1.50 1.24.0)
new=$(system 6.1.99 1.24.0)
nix-env --profile /nix/var/nix/profiles/system --set "$old"
nix-env --profile /nix/var/nix/profiles/system --set "$new"
ln -s "$old" /run/booted-system
ln -s "$new" /run/current-system
printf '[Service]\nExecStart=/run/current-system/sw/bin/shop\n[Install]\nWantedBy=multi-user.target\n' \
  >/etc/systemd/system/shop.service
systemctl daemon-reload
systemctl enable -q shop
systemctl start shop || true
until_ "systemctl is-failed -q shop"
