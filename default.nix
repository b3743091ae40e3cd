# For a host without flakes:
#   nix-build -A hermes-agent
#   imports = [ /path/to/hermes-agent/modules/hermes-agent ];
{
  pkgs ? import <nixpkgs> { },
}:
{
  hermes-agent = pkgs.callPackage ./nix/package.nix { };
  buildHermesPlugin = pkgs.callPackage ./nix/build-plugin.nix { };
  hermesPlugins = pkgs.callPackage ./nix/plugins { };
  hermesPluginsTogether = pkgs.callPackage ./nix/plugins/together.nix { };
  nixosModules.default = ./modules/hermes-agent;
  homeManagerModules.default = ./modules/home-manager.nix;
  overlays.default = final: _: {
    hermes-agent = final.callPackage ./nix/package.nix { };
    buildHermesPlugin = final.callPackage ./nix/build-plugin.nix { };
    hermesPlugins = final.callPackage ./nix/plugins { };
  };
}
