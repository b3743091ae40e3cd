# What evaluation alone can tell, each with what to do instead.
{
  config,
  derived,
  instance,
  lib,
  options,
  ...
}:
let
  inherit (lib)
    attrNames
    concatMapStringsSep
    filter
    filterAttrs
    hasPrefix
    length
    unique
    ;
  cfg = config;
  inherit (instance) option;

  # By shape, anywhere in a text: keys of well-known services, JSON web tokens, private keys, credentials of a header
  # and the password of an address. The check of the start knows more of them; what evaluation sees is in no store yet.
  shapes = [
    "(sk_live_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA|AIza|hf_|eyJ[A-Za-z0-9_-]+\\.eyJ)[A-Za-z0-9_./+=-]{8,}"
    "sk-[A-Za-z0-9_-]{16,}"
    "[0-9]{8,10}:[A-Za-z0-9_-]{35}"
    "-----BEGIN [A-Z ]*PRIVATE KEY-----"
    "(Bearer|Basic) [A-Za-z0-9._~+/=-]{8,}"
  ];
  password = "[a-z][a-z0-9+.-]*://[^][/@: \"'$]*:[^][/@ \"'$]+@";
  holds =
    shape: text:
    builtins.match "(.*[^A-Za-z0-9])?(${shape}).*" (lib.replaceStrings [ "\n" ] [ " " ] text) != null;
  isSecret = text: lib.isString text && lib.any (shape: holds shape text) (shapes ++ [ password ]);
  soundsSecret =
    name: builtins.match ".*(TOKEN|SECRET|PASSWORD|PASSWD|API_KEY|PRIVATE_KEY)" name != null;
  names = concatMapStringsSep ", " (n: "`${n}`");

  # Defaults of modules do not count.
  configured = options.settings.highestPrio <= 100;

  secretVariables = attrNames (filterAttrs (_: isSecret) cfg.environment);
  secretSettings =
    keysOf "settings" cfg.settings
    ++ keysOf "extraArgs" cfg.extraArgs
    ++ keysOf "localModel.extraArgs" (cfg.localModel.extraArgs or [ ]);
  keysOf =
    path: value:
    if isSecret value then
      [ path ]
    else if lib.isDerivation value then
      [ ]
    else if lib.isAttrs value then
      lib.concatLists (lib.mapAttrsToList (n: keysOf "${path}.${n}") value)
    else if lib.isList value then
      lib.concatMap (keysOf path) value
    else
      [ ];

  plugins = map toString cfg.extraPlugins;
  twice = unique (filter (p: length (filter (q: q == p) plugins) > 1) plugins);
  listed = names: if names == null then [ ] else names;
  onAndOff = lib.intersectLists (listed cfg.settings.plugins.enabled) (
    listed cfg.settings.plugins.disabled
  );
  tooBroad =
    path:
    path == "/nix"
    || hasPrefix "/nix/" path
    || builtins.match "/(bin|boot|dev|etc|home|proc|root|run|sys|tmp|usr|var|var/lib)?" path != null;
  tooBroadFor = filter tooBroad (
    [ (cfg.stateDir or derived.home) ]
    ++ lib.optional (cfg.workingDirectory != null) cfg.workingDirectory
  );
  # systemd splits at a blank and reads the others as something else; what lies below some paths is not the daemon's.
  places = lib.unique (
    [ (cfg.stateDir or derived.home) ]
    ++ lib.optional (cfg.workingDirectory != null) cfg.workingDirectory
  );
  oddPlaces = filter (path: builtins.match "[^]['\"\\:%[:space:]*?]*" path == null) places;
  hidden = filter (
    path: builtins.match "/(dev|nix|proc|sys|tmp|run/user|var/tmp)/.*" path != null
  ) places;
  inState =
    cfg.workingDirectory != null
    && (cfg.workingDirectory == derived.home || hasPrefix "${derived.home}/" cfg.workingDirectory)
    && cfg.workingDirectory != "${derived.home}/workspace";
  credentialName = name: builtins.match "[A-Za-z_][A-Za-z0-9_]*" name != null;
  badNames = filter (n: !(credentialName n)) (attrNames cfg.credentials);
  twiceGiven = lib.intersectLists (attrNames cfg.credentials) (attrNames cfg.environment);
  ownVariables = filter (
    n:
    lib.elem n [
      "HERMES_HOME"
      "HERMES_DECLARED_CONFIG"
      "HERMES_BUNDLED_PLUGINS"
      "HERMES_PLUGIN_INDEX"
      "PATH"
      "HOME"
    ]
  ) (attrNames cfg.environment);

  servers = lib.mapAttrsToList (name: server: server // { inherit name; }) cfg.mcpServers;
  serverNames = test: map (server: server.name) (filter test servers);
  withBoth = serverNames (server: server.command != null && server.url != null);
  withNeither = serverNames (server: server.command == null && server.url == null);
  argumentsOfNothing = serverNames (
    server: server.url != null && (server.args != [ ] || server.env != { })
  );
  headersOfNothing = serverNames (
    server: server.command != null && (server.headers != { } || server.auth != null)
  );
  includedAndExcluded = serverNames (
    server: server.tools != null && lib.intersectLists server.tools.include server.tools.exclude != [ ]
  );

  outside = filter (
    name:
    builtins.match "[A-Za-z0-9_.@+ -]+(/[A-Za-z0-9_.@+ -]+)*" name == null
    || lib.elem ".." (lib.splitString "/" name)
  );
  remedyOf = {
    "config.yaml" = "settings or configFile";
    "config.local.yaml" = "settings";
    ".env" = "environmentFiles";
    "auth.json" = "authFile";
  };
  owned = filter (
    name:
    remedyOf ? ${name}
    ||
      builtins.match "(state\\.db.*|gateway.*|api_server\\.key|plugins_trust\\.json|\\.hermes-agent-.*)" name
      != null
  ) (attrNames cfg.hermesHomeFiles);
  remedyText =
    let
      known = filter (name: remedyOf ? ${name}) owned;
    in
    if known == [ ] then
      "It is written while it runs; drop it."
    else
      "Use ${concatMapStringsSep ", " (name: "${option}.${remedyOf.${name}}") known}.";
  viaPlugins = filter (hasPrefix "plugins/") (attrNames cfg.hermesHomeFiles);
in
{
  config = {
    assertions = [
      {
        assertion = cfg.configFile == null || !configured;
        message = "${option}: `configFile` is the whole configuration, and `settings` or `mcpServers` is there as well. Move the settings into the file, or drop configFile.";
      }
      {
        assertion = withBoth == [ ];
        message = "${option}.mcpServers: ${names withBoth} has both `command` and `url`; drop the one that is not meant.";
      }
      {
        assertion = withNeither == [ ];
        message = "${option}.mcpServers: ${names withNeither} has neither `command` (a program to start) nor `url` (a server to ask); set one.";
      }
      {
        assertion = argumentsOfNothing == [ ];
        message = "${option}.mcpServers: ${names argumentsOfNothing} is asked at a `url`, so that `args` and `env` reach nobody; drop them, or set `command`.";
      }
      {
        assertion = headersOfNothing == [ ];
        message = "${option}.mcpServers: ${names headersOfNothing} is a program, so that `headers` and `auth` reach nobody; give it secrets in `env`, or set `url`.";
      }
      {
        assertion = includedAndExcluded == [ ];
        message = "${option}.mcpServers: ${names includedAndExcluded} both includes and excludes one tool; take it out of one of the lists.";
      }
      {
        assertion = outside (attrNames cfg.documents ++ attrNames cfg.hermesHomeFiles) == [ ];
        message = "${option}: ${
          names (outside (attrNames cfg.documents ++ attrNames cfg.hermesHomeFiles))
        } is no path below a directory. Names of `documents` and `hermesHomeFiles` are relative, such as \"notes/oncall.md\", of letters, digits, spaces and . _ - @ +.";
      }
      {
        assertion = owned == [ ];
        message = "${option}.hermesHomeFiles: ${names owned} is the agent's own file. ${remedyText}";
      }
      {
        assertion = viaPlugins == [ ];
        message = "${option}.hermesHomeFiles: ${names viaPlugins} would be a plugin that nobody checked; add its directory to ${option}.extraPlugins.";
      }
      {
        assertion = twiceGiven == [ ];
        message = "${option}: ${names twiceGiven} is in both `credentials` and `environment`; drop it from `environment`, which is world-readable.";
      }
      {
        assertion = ownVariables == [ ];
        message = "${option}.environment: ${names ownVariables} is set by the module. The home follows stateDir, PATH is extraPackages, plugins are extraPlugins, the configuration is settings.";
      }
      {
        assertion = !cfg.authFileForceOverwrite || cfg.authFile != null;
        message = "${option}.authFileForceOverwrite: there is no `authFile` to write; set it, or drop this line.";
      }
      {
        assertion = cfg.package ? withPlugins;
        message = "${option}.package: `${cfg.package.name}` has no `withPlugins`; take the package of this flake, or leave the option alone.";
      }
      {
        assertion = secretVariables == [ ];
        message = "${option}.environment: the value of ${names secretVariables} is a secret, and would be in the world-readable Nix store. Use ${option}.credentials or ${option}.environmentFiles, and revoke what was written here.";
      }
      {
        assertion = secretSettings == [ ];
        message = "${option}: the value of ${names secretSettings} is a secret, and would be in the world-readable Nix store. Use ${option}.credentials or ${option}.environmentFiles, and revoke what was written here.";
      }
      {
        assertion = badNames == [ ];
        message = "${option}.credentials: ${names badNames} cannot be the name of a variable. Name it as the provider or plugin asks for it, such as OPENROUTER_API_KEY.";
      }
      {
        assertion = twice == [ ];
        message = "${option}.extraPlugins: the same plugin is there twice: ${names twice}. Drop one; two modules may both bring it.";
      }
      {
        assertion = tooBroadFor == [ ];
        message = "${option}: ${names tooBroadFor} is opened for writing and must be a directory of the agent's own. Set stateDir and workingDirectory to such as /var/lib/hermes and /var/lib/hermes/workspace.";
      }
      {
        assertion = oddPlaces == [ ];
        message = "${option}: ${names oddPlaces} (stateDir, workingDirectory) has a blank, a quotation mark or one of \\ : % [ ] * ?, which means something to systemd. Choose another directory.";
      }
      {
        assertion = hidden == [ ];
        message = "${option}: the daemon cannot reach ${names hidden}: its /tmp, /var/tmp and /dev are its own, and the others are no place for files. Set stateDir and workingDirectory to such as /var/lib/hermes and /srv/work.";
      }
      {
        assertion = !inState;
        message = "${option}.workingDirectory: ${names [ cfg.workingDirectory ]} is in `${derived.home}`, where the agent's keys and state are, and its commands would see them. Set it to a directory beside it, such as the default.";
      }
      {
        assertion = onAndOff == [ ];
        message = "${option}.settings.plugins: ${names onAndOff} is both enabled and disabled; drop one.";
      }
    ];

    warnings =
      let
        suspicious = filter soundsSecret (attrNames cfg.environment);
      in
      lib.optional (suspicious != [ ] && secretVariables == [ ])
        "${option}.environment: ${names suspicious} sounds like a secret; what is written here is in the world-readable Nix store. For secrets there is ${option}.credentials."
      ++
        lib.optional (derived.foreignSettings != [ ])
          "${option}.settings: ${names derived.foreignSettings} is no setting of the agent; it is kept for plugins.";
  };
}
