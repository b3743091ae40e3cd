# Hosts that must build.
{
  lib,
  pkgs,
  fixtures,
}:
{
  minimal = { };

  # For booting it: the calculator, a key, a watchdog that a test can wait for.
  calculator = {
    extraPlugins = [ fixtures.calculator ];
    watchdogSec = 5;
    environmentFiles = [ "/etc/hermes-agent/environment" ];
    settings.model.provider = "custom";
    settings.model.default = "scripted";
    settings.model.base_url = "http://127.0.0.1:8643/v1";
  };

  # A plugin in a unit of its own, with paths that the operator grants.
  isolated = {
    extraPlugins = [ fixtures.calculator ];
    plugins.isolated = [ "calculator" ];
    environmentFiles = [ "/etc/hermes-agent/environment" ];
    settings = {
      model.provider = "custom";
      model.default = "scripted";
      model.base_url = "http://127.0.0.1:8643/v1";
      plugins.entries.calculator.granted_capabilities = [
        "files.read:/srv/tables"
        "files.write:/srv/results"
      ];
    };
  };

  full = {
    settings = {
      model.default = "test/model";
      model.context_length = 65536;
      agent.max_turns = 40;
      approvals.mode = "manual";
      # Nothing of it is declared.
      memory.provider = null;
      display = null;
      providers.gone = null;
      server.port = 8700;
    };
    extraPlugins = [ (fixtures.plugin "hello") ];
    extraPythonPackages = ps: [
      fixtures.weather
      ps.pyyaml
    ];
    extraPackages = [ pkgs.jq ];
    addToSystemPackages = true;
    documents."notes/first.md" = "Begin here.\n";
    environment.PERCENT = "100% of $HOME";
    credentials.OPENROUTER_API_KEY = "/run/secrets/openrouter";
    environmentFiles = [ "/run/secrets/hermes-agent.env" ];
  };

  # A program that compiles while it runs, which the strict unit would end.
  compiling = {
    mcpServers.everything = {
      command = "/run/current-system/sw/bin/npx";
      args = [ "server-everything" ];
    };
  };

  elsewhere = {
    stateDir = "/srv/hermes";
    workingDirectory = "/home/owner/project";
    user = "owner";
    group = "users";
  };

  # Names that plugins alone bring, one of them with a variable that only the machine has.
  namesOfPlugins = {
    extraPlugins = [
      (fixtures.plugin "hello")
      (fixtures.plugin "needs-key")
    ];
    environmentFiles = [ "/run/secrets/hermes-agent.env" ];
    settings.plugins.enabled = [
      "hello"
      "needs-key"
    ];
    settings.platform_toolsets.irc = [
      "hello"
      "needs-key"
    ];
  };

  # Answers without any key.
  localModel.localModel = {
    enable = true;
    model = ./README.md;
  };

  # A plugin may take the agent's own tool over once the host says so.
  takesOver = {
    extraPlugins = [ (fixtures.plugin "takes-over") ];
    plugins.allowToolOverride = [ "terminal" ];
  };

  listOfPackages = {
    extraPythonPackages = [ fixtures.weather ];
  };

  # All packages of another interpreter: the agent is built with that one.
  otherInterpreter = {
    extraPythonPackages = [ (fixtures.pythonPackageOf pkgs.python3MinimalPackages "leaf" "1.0.0" [ ]) ];
  };

  # A name that the plugin requires may be in a file that only the machine has.
  needsKey = {
    extraPlugins = [ (fixtures.plugin "needs-key") ];
    environmentFiles = [ "/run/secrets/hermes-agent.env" ];
  };

  # Several agents, one with a server, plugins and a model of its own.
  several = {
    credentials.OPENROUTER_API_KEY = "/run/secrets/openrouter";
    instances.alice = {
      addToSystemPackages = true;
      credentials.OPENROUTER_API_KEY = "/run/secrets/alice-openrouter";
      extraPlugins = [ (fixtures.plugin "hello") ];
      documents."AGENTS.md" = "Of Alice.\n";
    };
    instances.with-a-very-long-name-for-a-user = {
      settings.server.port = 8650;
      localModel = {
        enable = true;
        model = ./README.md;
        port = 8651;
      };
      tools.sandbox = null;
      stateDir = "/srv/long";
    };
    profiles.research = {
      gateway.enable = true;
      tools.sandbox = "workspace";
    };
  };

  # A plugin that cannot be imported while building.
  withoutImports = {
    extraPlugins = [ (fixtures.plugin "imports-missing") ];
    plugins.checkImports = false;
  };
}
