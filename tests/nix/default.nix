# nix-build tests/nix -A systems.calculator.toplevel --option substitute false --option sandbox false
#
# Everything that the tests build, on the host's own Python: no nixpkgs, no network.
#   --arg lib 'import /path/to/nixpkgs/lib'    the real library instead of the stand-in
#   --argstr hostSite DIR                      site-packages of a virtual environment with the agent's dependencies
{
  lib ? import ./nixpkgs/minilib,
  hostSite ?
    let named = builtins.getEnv "HERMES_TEST_SITE"; in
    if named != "" then named else toString ../../.venv/lib/python3.11/site-packages,
}:
let
  system = builtins.currentSystem;
  # Asked at evaluation, and again when what is installed changes.
  host = lib.importJSON (derivation {
    name = "host.json";
    inherit system hostSite;
    builder = "/bin/bash";
    installed = builtins.attrNames (builtins.readDir hostSite);
    args = [ "-c" "/usr/bin/python3 ${./nixpkgs/host.py} $hostSite/../../../bin/python $hostSite > $out" ];
  });
  pkgs = import ./nixpkgs/minipkgs { inherit lib host system; };
  nixosSystem = import ./nixpkgs/nixos { inherit lib; legacyPackages.${system} = pkgs; };
in
{
  inherit lib pkgs;
  hermes-agent = pkgs.callPackage ../../nix/package.nix { };
}
