# The agent with the largest set of published plugins that has no conflict, as `nix/plugins/table` found it.
{
  callPackage,
  lib,
}:
let
  plugins = callPackage ./default.nix { };
in
(callPackage ../package.nix { }).withPlugins {
  directories = lib.attrVals (lib.importJSON ./together.json) plugins;
}
