# sourced: Nix as NixOS sets it up, without a network
mkdir -p /etc/nix
printf '%s\n' 'experimental-features = nix-command flakes' 'sandbox = false' 'substitute = false' \
  'build-users-group =' 'flake-registry =' >/etc/nix/nix.conf
export HOME=/root
