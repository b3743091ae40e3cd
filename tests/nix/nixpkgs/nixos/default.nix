# nixosSystem { modules; } -> { config, options }: evalModules over the few options of NixOS that
# our module writes to. `system.build.toplevel` is what nixos-rebuild would build: it refuses
# assertions that do not hold, builds `system.checks`, and lays the unit files out.
{ lib, legacyPackages }:
{
  modules,
  specialArgs ? { },
}:
lib.evalModules {
  inherit specialArgs;
  modules = [
    ./options.nix
    { _module.args.utils = import ./utils.nix { inherit lib; }; }
    ({ config, ... }: {
      _module.args.pkgs = lib.mkDefault legacyPackages.${config.nixpkgs.hostPlatform};
    })
  ]
  ++ modules;
}
