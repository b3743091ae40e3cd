{
  description = "A plugin of hermes-agent, as a Python package";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";
    # Where you have hermes-agent from.
    hermes-agent.url = "path:/path/to/hermes-agent";
    hermes-agent.inputs.nixpkgs.follows = "nixpkgs";
  };

  # On a host: services.hermes-agent.extraPythonPackages = ps: [ (ps.callPackage inputs.my-plugin.lib.package { }) ];
  outputs =
    { nixpkgs, hermes-agent, ... }:
    let
      forEachSystem =
        f:
        nixpkgs.lib.genAttrs [ "x86_64-linux" "aarch64-linux" ] (
          system: f nixpkgs.legacyPackages.${system}
        );
      package =
        { buildPythonPackage, setuptools }:
        buildPythonPackage {
          pname = "my-plugin";
          version = "0.1.0";
          pyproject = true;
          src = ./.;
          build-system = [ setuptools ];
          dependencies = [ ];
          pythonImportsCheck = [ "my_plugin" ];
        };
    in
    {
      lib = { inherit package; };
      # The agent with the plugin, once every check of it has passed.
      checks = forEachSystem (pkgs: {
        agent = hermes-agent.packages.${pkgs.stdenv.hostPlatform.system}.default.withPlugins {
          python = ps: [ (ps.callPackage package { }) ];
        };
      });
    };
}
