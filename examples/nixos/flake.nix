{
  description = "A host on which hermes-agent lives";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";
    hermes-agent.url = "path:../..";
    # One nixpkgs, so that the agent and what its plugins want are built from one Python.
    hermes-agent.inputs.nixpkgs.follows = "nixpkgs";
  };

  outputs =
    { nixpkgs, hermes-agent, ... }:
    let
      hostOf =
        configuration:
        nixpkgs.lib.nixosSystem {
          modules = [
            hermes-agent.nixosModules.default
            configuration
            {
              nixpkgs.hostPlatform = "x86_64-linux";
              # A source tree of an input: its lock file pins the plugin.
              services.hermes-agent.extraPlugins = [ "${hermes-agent}/examples/plugins/calculator" ];
            }
          ];
        };
    in
    {
      nixosConfigurations.agent = hostOf ./configuration.nix;
      # Without a key.
      nixosConfigurations.local = hostOf ./local-model.nix;
    };
}
