# nix-build tests/nix -A systems.calculator.toplevel --option substitute false --option sandbox false
#
# Everything that the tests build, on the host's own Python: no nixpkgs, no network.
#   --arg lib 'import /path/to/nixpkgs/lib'    the real library instead of the stand-in
#   --argstr hostSite DIR                      site-packages of a virtual environment with the agent's dependencies
{
  lib ? import ./nixpkgs/minilib,
  hostSite ?
    let
      named = builtins.getEnv "HERMES_TEST_SITE";
    in
    if named != "" then named else toString ../../.venv/lib/python3.11/site-packages,
  # A file that test_corpus.py writes: where published plugins are installed.
  corpusFile ? "",
  # A file of the tests of published plugins: { files, sites }, what there is of them and of what they import.
  publishedFile ? "",
  # nixpkgs' `lib/services/lib.nix`, for the modular service.
  servicesBase ? "",
}:
let
  system = builtins.currentSystem;
  # Asked while evaluating, and again when what is installed changes.
  plain = lib.importJSON (derivation {
    name = "host.json";
    inherit system hostSite;
    installed = lib.attrNames (builtins.readDir hostSite);
    builder = "/bin/bash";
    args = [
      "-c"
      "/usr/bin/python3 ${./nixpkgs/host.py} $hostSite/../../../bin/python $hostSite > $out"
    ];
  });
  host =
    if publishedFile == "" then
      plain
    else
      import ./published.nix {
        inherit lib;
        host = plain;
        file = publishedFile;
      };
  pkgs = import ./nixpkgs/minipkgs { inherit lib host system; };
  nixosSystem = import ./nixpkgs/nixos {
    inherit lib;
    legacyPackages.${system} = pkgs;
  };

  # A host with the module; `configuration.nix` is the file that error messages name.
  host' =
    {
      services ? { },
      extra ? { },
    }:
    let
      evaluated = nixosSystem {
        modules = [
          ../../modules/hermes-agent
          { nixpkgs.hostPlatform = system; }
          {
            _file = "configuration.nix";
            services.hermes-agent = {
              enable = true;
            }
            // services;
          }
          extra
        ];
      };
    in
    rec {
      inherit (evaluated) config options;
      # What follows from the options of the instance `default`.
      derived = import ../../modules/hermes-agent/derived.nix {
        config = evaluated.config.services.hermes-agent;
        host = evaluated.config;
        instance = (import ../../modules/hermes-agent/names.nix { inherit lib; }).default;
        inherit lib pkgs;
      };
      inherit (derived) startCheck;
      inherit (evaluated.config.system.build) sw toplevel;
      unit = evaluated.config.systemd.units."hermes-agent.service".unit;
      unitNames = lib.attrNames evaluated.config.systemd.units;
      package = evaluated.config.services.hermes-agent.finalPackage;
    };

  # The options of `settings` by the names of their keys; `<name>` is a name of one's own.
  settingsOptions =
    let
      own =
        type: type.name == "attrsOf" || (type.nestedTypes ? elemType && own type.nestedTypes.elemType);
      walk =
        path: tree:
        lib.concatMap (
          name:
          let
            it = tree.${name};
            loc = path ++ [ name ] ++ lib.optional (own it.type) "<name>";
            below = builtins.removeAttrs (it.type.getSubOptions loc) [
              "_module"
              "_freeformOptions"
            ];
          in
          [
            {
              key = path ++ [ name ];
              inherit (it) description;
              type = it.type.description;
              default = it.defaultText.text or it.default;
              example = it.example or null;
              inner = below != { };
            }
          ]
          ++ walk loc below
        ) (lib.attrNames tree);
    in
    walk [ ] (
      builtins.removeAttrs ((host' { }).options.services.hermes-agent.settings.type.getSubOptions [ ]) [
        "_module"
        "_freeformOptions"
      ]
    );

  hosts =
    file:
    lib.mapAttrs (_: services: host' { inherit services; }) (
      import file { inherit lib pkgs fixtures; }
    );
  evaluated = hosts ./refused-evaluated.nix;
  good = hosts ./accepted.nix;
  started = hosts ./refused-started.nix;
  fixtures = import ./fixtures.nix { inherit lib pkgs; };
  # What nixpkgs' testers would be given.
  testers = {
    runNixOSTest = test: test;
    testVersion = test: test;
  };
  e2e = import ./e2e/vm.nix {
    pkgs = pkgs // {
      inherit testers;
    };
  };
  forNixpkgs = (pkgs.callPackage ../../nix/package.nix { inherit testers; }).tests;
  hermes-agent = pkgs.callPackage ../../nix/package.nix { };
  hermesPlugins = pkgs.callPackage ../../nix/plugins { };
in
{
  inherit
    lib
    pkgs
    fixtures
    settingsOptions
    ;
  inherit hermes-agent;
  extras = lib.attrNames hermes-agent.optional-dependencies;
  withPluginsTwice = (hermes-agent.withPlugins { python = ps: [ fixtures.weather ]; }).withPlugins {
    directories = [ (fixtures.plugin "hello") ];
  };
  systems = lib.mapAttrs (_: services: host' { inherit services; }) (
    import ./systems.nix { inherit lib pkgs fixtures; }
  );
  # Which units isolated plugins have.
  isolatedUnits =
    lib.mapAttrs
      (_: services: lib.filter (lib.hasPrefix "hermes-plugin") (host' { inherit services; }).unitNames)
      {
        byEntry.settings.plugins.entries.hello.isolation = "host";
        byAll.settings.plugins = {
          isolation = "host";
          enabled = [
            "hello"
            "other"
          ];
          entries.other.isolation = "in_process";
        };
        launcher.settings.plugins = {
          host.launcher = [ "env" ];
          entries.hello.isolation = "host";
        };
        instance.instances.alice.plugins.isolated = [ "hello" ];
      };
  # The memory of a plugin's unit, by `plugins.host.memory_mb`.
  isolatedMemory =
    lib.mapAttrs
      (
        _: host:
        (host' {
          services.settings.plugins = {
            entries.hello.isolation = "host";
            inherit host;
          };
        }).config.systemd.services."hermes-plugin-hello@".serviceConfig.MemoryMax
      )
      {
        unset = { };
        more.memory_mb = 2048;
        none.memory_mb = 0;
      };
  warned = host' { services.environment.TELEGRAM_BOT_TOKEN = "in the keyring"; };
  # Generations of one host.
  changed = lib.mapAttrs (_: settings: host' { services = { inherit settings; }; }) {
    before = {
      model.default = "one";
      agent.max_turns = 20;
    };
    same = {
      agent.max_turns = 20;
      model = "one";
    };
    model = {
      model.default = "two";
      agent.max_turns = 20;
    };
    turns = {
      model.default = "one";
      agent.max_turns = 21;
    };
  };
  generations = lib.mapAttrs (_: services: host' { inherit services; }) (
    import ./generations.nix { inherit fixtures; }
  );
  optionReference = import ../../nix/option-reference.nix { inherit lib pkgs; };
  homes = lib.mapAttrs (_: import ./homes.nix { inherit lib pkgs; }) {
    plain = { };
    full = {
      settings.model.default = "test/model";
      extraPlugins = [ (fixtures.plugin "hello") ];
      mcpServers.wiki.command = "git";
      hermesHomeFiles."SOUL.md" = "You are terse.";
      credentials.OPENROUTER_API_KEY = "/home/someone/.secrets/openrouter";
      environment.PERCENT = "100%";
    };
    # Two more services of the user.
    several = {
      settings.model.default = "test/model";
      instances.notes = {
        settings.model.default = "test/model";
        settings.server.port = 8650;
      };
      profiles.drafts = { };
    };
    onePort = {
      instances.notes = {
        settings.server.port = 8642;
        hermesHome = "/home/someone/.hermes";
      };
    };
    broken = {
      settings.modle = "x";
    };
    warned = {
      settings.my_plugin.level = 3;
    };
    # For booting it.
    booted = {
      settings.model = {
        provider = "custom";
        default = "scripted";
        base_url = "http://127.0.0.1:8643/v1";
      };
      extraPlugins = [ fixtures.calculator ];
      credentials.OPENAI_API_KEY = "/home/someone/.secrets/openai";
      hermesHomeFiles."SOUL.md" = "You are terse.";
    };
  };
  # What commands may run in.
  sandboxed = lib.genAttrs [ "strict" "workspace" "host" ] (
    sandbox: host' { services.tools = { inherit sandbox; }; }
  );
  atHome = host' {
    services = {
      workingDirectory = "/home/owner/project";
      tools.sandbox = "strict";
    };
  };
  limited = host' {
    services.tools = {
      memoryMax = "8G";
      tasksMax = 4096;
      readWritePaths = [ "/srv/data" ];
    };
    services.settings.terminal.sandbox_paths = [
      "/srv/manuals"
      "~/of-the-agent"
    ];
  };
  # A host whose settings are the examples of the options.
  examples =
    let
      given = lib.filter (option: option.example != null) settingsOptions;
      host = host' {
        services.settings = lib.foldl' (
          all: option: lib.recursiveUpdate all (lib.setAttrByPath option.key option.example)
        ) { } given;
      };
    in
    {
      inherit (host.derived) declaredSettings;
      check = host.startCheck;
    };
  # A host whose unit is less strict than that of the module.
  relaxed = host' {
    extra.systemd.services.hermes-agent.serviceConfig = {
      MemoryDenyWriteExecute = false;
      SystemCallFilter = lib.mkForce [ "@system-service" ];
    };
  };
  # Options that a plugin brings.
  optionsOfPlugins =
    let
      below =
        option:
        builtins.removeAttrs (option.type.getSubOptions [ ]) [
          "_module"
          "_freeformOptions"
        ];
      host = host' { services.extraPlugins = [ fixtures.typed ]; };
    in
    lib.mapAttrs (
      _: plugin:
      lib.mapAttrs (_: option: {
        inherit (option) description;
        type = option.type.description;
        default = option.defaultText.text;
      }) (below plugin)
    ) (below host.options.services.hermes-agent.plugins.settings);
  # Several agents, for booting them.
  agents =
    lib.mapAttrs (_: count: host' (import ./instances.nix { inherit fixtures lib pkgs; } count))
      {
        three = 3;
        ten = 10;
      };
  # No agent but one that has a name.
  named = host' {
    services = {
      enable = false;
      instances.alice.addToSystemPackages = true;
    };
  };
  # Written for upstream's module.
  upstream = lib.mapAttrs (
    _: module:
    host' {
      extra = {
        imports = [ module ];
        sops.secrets = lib.genAttrs [ "hermes-env" "hermes/auth.json" ] (name: {
          path = "/run/secrets/${name}";
        });
      };
    }
  ) (import ./upstream.nix { inherit lib; });
  refused = lib.mapAttrs (_: services: (host' { inherit services; }).toplevel) (
    import ./refused.nix { inherit lib pkgs fixtures; }
  );
  refusedUnits = lib.mapAttrs (
    _: serviceConfig:
    (host' { extra.systemd.services.hermes-agent = { inherit serviceConfig; }; }).toplevel
  ) (import ./refused-units.nix);
  refusedEvaluated = lib.mapAttrs (_: host: host.toplevel) evaluated;
  # Their assertions at once; null where evaluation ends before it comes to them.
  refusedMessages = lib.mapAttrs (
    _: host:
    let
      failed = map (each: each.message) (lib.filter (each: !each.assertion) host.config.assertions);
      found = builtins.tryEval (builtins.deepSeq failed failed);
    in
    if found.success && found.value != [ ] then found.value else null
  ) evaluated;
  refusedStarts = import ./starts.nix { inherit lib pkgs; } started;
  accepted = lib.mapAttrs (_: host: host.toplevel) good;
  acceptedStarts = import ./starts.nix { inherit lib pkgs; } good;
  acceptedMessages = lib.mapAttrs (_: host: {
    failed = map (each: each.message) (lib.filter (each: !each.assertion) host.config.assertions);
    inherit (host.config) warnings;
  }) good;
  refusedStarted = lib.mapAttrs (_: host: host.toplevel) started;
  # The example with a model of its own, of the file that the test brings.
  localModel = host' {
    extra.imports = [ ../../examples/nixos/local-model.nix ];
    services = {
      localModel = {
        model = "/srv/model.gguf";
        contextLength = 4096;
      };
      # Little for it to read.
      settings.toolsets = [ "todo" ];
      settings.platform_toolsets.cli = [ ];
      settings.model.max_tokens = 24;
    };
  };
  # The machine of e2e/script.py, which is the one that `runNixOSTest` is given.
  e2e = host' { extra = e2e.nodes.machine; };
  vm = { inherit (e2e) name testScript; };
  container = {
    inherit (forNixpkgs.container) name testScript;
    machines = lib.attrNames forNixpkgs.container.containers;
  };
  versionTest = {
    inherit (forNixpkgs.version) command;
    package = forNixpkgs.version.package.pname;
  };
  # The modular service, with the options that a service manager declares; `systemd` is there or not.
  modularService = import ./modular-service.nix {
    inherit lib pkgs hermes-agent;
    base = if servicesBase == "" then null else servicesBase;
  };
  # Plugins that are tried while they are built: those that are good, and those that are not.
  tried = import ./tried.nix { inherit pkgs fixtures host'; };
  # What the checks of many plugins cost.
  fifty = host' { services.extraPlugins = lib.genList (i: fixtures.numbered (toString i)) 50; };
  # Published plugins, as packages.
  inherit hermesPlugins;
  hermesPluginsTogether = pkgs.callPackage ../../nix/plugins/together.nix { };
  # Published plugins of each kind; jovaltus brings a library.
  publishedHost = host' {
    services.extraPlugins = with hermesPlugins; [
      agentguard-hermes-plugin
      jovaltus
      memorylake-hermes
    ];
  };
  corpus = import ./corpus.nix {
    inherit
      lib
      pkgs
      fixtures
      host'
      ;
    sites = lib.importJSON corpusFile;
  };
  configGate = import ./config-gate.nix { inherit lib pkgs; };
}
