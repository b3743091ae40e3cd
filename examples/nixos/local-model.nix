# The same host with a model on the machine: it answers without a key.
{ lib, ... }:
{
  imports = [ ./configuration.nix ];

  services.hermes-agent = {
    localModel = {
      enable = true;
      # A file in the format GGUF: beside this one, of pkgs.fetchurl, or where the machine has it.
      model = lib.mkDefault "/var/lib/models/model.gguf";
    };
    # Instead of the provider and the key of ./configuration.nix.
    settings.model.provider = lib.mkForce "custom";
    settings.model.default = lib.mkForce "local-model";
    credentials = lib.mkForce { };
  };
}
