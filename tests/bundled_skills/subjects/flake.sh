# a flake with a file that git does not know, a build that failed, and a store path that nothing needs
. /opt/nix.sh
mkdir -p /srv/demo
cd /srv/demo
cat >flake.nix <<'NIX'
{
  outputs = { self }:
    let
      sh = name: script: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" script ]; };
    in {
      packages.x86_64-linux = {
        default = sh "report" "echo compiling; echo 'undefined reference to main'; exit 1";
        good = sh "good" "echo good > $out";
        old = sh "old-and-unneeded" "echo old > $out";
        extra = import ./extra.nix sh;
      };
    };
}
NIX
echo 'sh: sh "extra" "echo extra > $out"' >extra.nix
echo result >.gitignore
git init -q
git add flake.nix .gitignore
git -c user.name=Ada -c user.email=ada@shop.example commit -qm "Make the report"
nix build .#old --no-link 2>/dev/null
nix build .#good 2>/dev/null
! nix build . 2>/dev/null
nix flake metadata --no-write-lock-file . >/dev/null 2>&1
cd /
