# Options that other hermes-agent modules have, each with where its purpose went, so that a configuration
# that is moved over says what to change.
{ lib, ... }:
let
  gone = name: advice: lib.mkRemovedOptionModule [ "services" "hermes-agent" name ] advice;
  serviceConfig = key: "Set systemd.services.hermes-agent.serviceConfig.${key}.";
in
{
  imports = lib.mapAttrsToList gone {
    addToSystemPackages = "Add config.services.hermes-agent.finalPackage to environment.systemPackages, and see docs/nix.md for sharing a home.";
    configFile = "Write the same keys into services.hermes-agent.settings, which the build checks.";
    container = "The agent runs as a hardened systemd service; there is no container to manage.";
    createUser = "The user `hermes` is created; set services.hermes-agent.user to one of your own instead.";
    extraArgs = serviceConfig "ExecStart";
    extraDependencyGroups = "Add the Python packages themselves: services.hermes-agent.extraPythonPackages = ps: [ … ].";
    mcpServers = "Write them into services.hermes-agent.settings.mcp_servers.";
    restart = serviceConfig "Restart";
    restartSec = serviceConfig "RestartSec";
  };
}
