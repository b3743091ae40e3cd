# What evaluation alone can tell, each with what to do instead.
{ config, lib, ... }:
let
  inherit (lib) all attrNames concatMapStringsSep filter filterAttrs hasPrefix length unique;
  cfg = config.services.hermes-agent;
  option = "services.hermes-agent";

  # By shape: keys of well-known services, and JSON web tokens.
  isSecret = text: lib.isString text
    && builtins.match "(sk-|sk_live_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA|AIza|hf_|eyJ[A-Za-z0-9_-]+\\.eyJ)[A-Za-z0-9_./+=-]{8,}" text != null;
  soundsSecret = name: builtins.match ".*(TOKEN|SECRET|PASSWORD|PASSWD|API_KEY|PRIVATE_KEY)" name != null;
  names = concatMapStringsSep ", " (n: "`${n}`");

  secretVariables = attrNames (filterAttrs (_: isSecret) cfg.environment);
  secretSettings = keysOf "settings" cfg.settings;
  keysOf = path: value:
    if isSecret value then [ path ]
    else if lib.isAttrs value then lib.concatLists (lib.mapAttrsToList (n: keysOf "${path}.${n}") value)
    else if lib.isList value then lib.concatMap (keysOf path) value
    else [ ];

  plugins = map toString cfg.extraPlugins;
  twice = unique (filter (p: length (filter (q: q == p) plugins) > 1) plugins);
  listed = names: if names == null then [ ] else names;
  onAndOff = lib.intersectLists (listed cfg.settings.plugins.enabled) (listed cfg.settings.plugins.disabled);
  tooBroad = path: path == "/nix" || hasPrefix "/nix/" path || builtins.match "/(bin|boot|dev|etc|home|proc|root|run|sys|tmp|usr|var|var/lib)?" path != null;
  credentialName = name: builtins.match "[A-Za-z_][A-Za-z0-9_]*" name != null;
  badNames = filter (n: !(credentialName n)) (attrNames cfg.credentials);
in
{
  config = lib.mkIf cfg.enable {
    assertions = [
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
        assertion = all (path: !(tooBroad path)) [ cfg.stateDir cfg.workingDirectory ];
        message = "${option}: stateDir (${cfg.stateDir}) and workingDirectory (${cfg.workingDirectory}) are opened for writing and must be directories of the agent's own, such as /var/lib/hermes and /var/lib/hermes/workspace.";
      }
      {
        assertion = onAndOff == [ ];
        message = "${option}.settings.plugins: ${names onAndOff} is both enabled and disabled; drop one.";
      }
    ];

    warnings =
      let suspicious = filter soundsSecret (attrNames cfg.environment); in
      lib.optional (suspicious != [ ] && secretVariables == [ ])
        "${option}.environment: ${names suspicious} sounds like a secret; what is written here is in the world-readable Nix store. For secrets there is ${option}.credentials.";
  };
}
