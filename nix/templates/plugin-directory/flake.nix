{
  description = "A plugin of hermes-agent";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";
    # Where you have hermes-agent from.
    hermes-agent.url = "path:/path/to/hermes-agent";
    hermes-agent.inputs.nixpkgs.follows = "nixpkgs";
  };

  # `nix build` loads the plugin and runs its tests; `nix flake check` does the same.
  # On a host: services.hermes-agent.extraPlugins = [ inputs.my-plugin.packages.${system}.default ];
  outputs =
    {
      self,
      nixpkgs,
      hermes-agent,
    }:
    let
      forEachSystem =
        f:
        nixpkgs.lib.genAttrs [ "x86_64-linux" "aarch64-linux" ] (
          system: f nixpkgs.legacyPackages.${system}
        );
    in
    {
      packages = forEachSystem (pkgs: {
        default = hermes-agent.lib.mkPlugin pkgs {
          pname = "my-plugin";
          version = "0.1.0";
          src = ./.;
          # dependencies = ps: [ ps.redis ];
        };
      });
      checks = forEachSystem (pkgs: {
        plugin = self.packages.${pkgs.stdenv.hostPlatform.system}.default;
      });
    };
}
