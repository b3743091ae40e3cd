# Names of what belongs to an instance, { option, unit, exec, … }, and where it is at home.
{ lib }:
let
  # As `unit_name` in hermes_agent/plugins/isolation/process_state.py.
  pluginName =
    plugin:
    if builtins.match "[A-Za-z0-9][A-Za-z0-9_-]{0,39}" plugin != null then
      plugin
    else
      "p-${lib.substring 0 12 (builtins.hashString "sha256" plugin)}";

  # kind: the option that declares it; empty: the plain options, which are the instance `default`.
  named =
    kind: name:
    let
      plain = kind == "";
      suffix = text: lib.optionalString (!plain) "-${text}";
      # A user's or group's name has at most 31 characters, of which `hermes-work-` takes 12.
      short =
        if lib.stringLength name <= 19 then
          name
        else
          "${lib.substring 0 12 name}-${lib.substring 0 6 (builtins.hashString "sha256" name)}";
    in
    rec {
      inherit kind name plain;
      option = "services.hermes-agent" + lib.optionalString (!plain) ".${kind}.${name}";
      unit = "hermes-agent${suffix name}";
      localModel = "hermes-local-model${suffix name}";
      stateDir = "/var/lib/hermes${suffix name}";
      # The control socket is in it.
      run = "/run/${unit}";
      # Below /etc; commands do not see /etc/hermes-agent.
      settings = "hermes-agent/${lib.optionalString (!plain) "instances/${name}/"}settings.json";
      user = "hermes${suffix short}";
      command = if plain then "hermes-service" else "hermes-${name}";

      # What its commands run in.
      exec = "hermes-exec${suffix name}";
      execSocket = "/run/${exec}.sock";
      execRoot = "/run/${exec}";
      execUser = "hermes-exec${suffix short}";

      # What its isolated plugins run in: sockets, and units with the names of plugins (`pluginUnit`).
      pluginSockets = "/run/hermes-plugin${suffix name}";
      pluginState = "hermes-plugin${suffix name}";
      pluginUnit = plugin: "hermes-plugin-${lib.optionalString (!plain) "${name}."}${pluginName plugin}";
      workGroup = "hermes-work${suffix short}";
    };
in
{
  inherit pluginName;

  default = named "" "default";
  of = named;

  # homeOf :: config of an instance -> `HERMES_HOME`
  homeOf = cfg: cfg.hermesHome or "${cfg.stateDir}/.hermes";
}
