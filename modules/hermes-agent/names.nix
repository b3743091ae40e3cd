# Names of what belongs to an instance, { option, unit, exec, … }, and where it is at home.
{ lib }:
let
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
      workGroup = "hermes-work${suffix short}";
    };
in
{
  default = named "" "default";
  of = named;

  # homeOf :: config of an instance -> `HERMES_HOME`
  homeOf = cfg: cfg.hermesHome or "${cfg.stateDir}/.hermes";
}
