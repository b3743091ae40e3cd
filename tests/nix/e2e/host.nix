# The machine of script.py: both kinds of plugins, a key by systemd's hands, a model on loopback, and people.
{
  module,
  plugin,
  package,
}:
{ pkgs, ... }:
{
  imports = [ module ];

  services.hermes-agent = {
    enable = true;
    addToSystemPackages = true;
    extraPlugins = [ plugin ];
    extraPythonPackages = package;
    environmentFiles = [ "/etc/hermes-agent/environment" ];
    settings.model = {
      provider = "custom";
      default = "scripted";
      base_url = "http://127.0.0.1:8643/v1";
    };
    restartSec = 1;
  };

  environment.etc."hermes-agent/environment".source =
    pkgs.writeText "environment" "OPENAI_API_KEY=only-for-this-test\n";

  # Does what it is told to: `say WORDS`, `run COMMAND`, …
  systemd.services.scripted-model = {
    wantedBy = [ "multi-user.target" ];
    before = [ "hermes-agent.service" ];
    serviceConfig = {
      ExecStart = "${pkgs.python3}/bin/python3 ${./model.py}";
      RuntimeDirectory = "scripted-model";
    };
  };

  # Two in the daemon's group, and one who is not.
  users.users.alice = {
    isNormalUser = true;
    extraGroups = [ "hermes" ];
  };
  users.users.carol = {
    isNormalUser = true;
    extraGroups = [ "hermes" ];
  };
  users.users.bob = {
    isNormalUser = true;
  };
}
