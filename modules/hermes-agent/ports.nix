# instance -> [ { option, port, host } ]: where it listens, as far as its options say.
{ lib }:
instance:
let
  inherit (instance) settings;
  local = instance.localModel or { enable = false; };
  # As `hermes doctor --declared` reads them.
  keys = [
    "webhook_port"
    "listen_port"
    "bind_port"
  ];
  ofPlatform =
    name: block:
    let
      at =
        place: values:
        lib.concatMap (
          key:
          lib.optional (lib.isInt (values.${key} or null)) {
            option = "${place}.${key}";
            port = values.${key};
            host = values.host or "*";
          }
        ) keys;
    in
    if !(lib.isAttrs block) || (block.enabled or true) == false then
      [ ]
    else
      at "settings.platforms.${name}" block
      ++ lib.optionals (lib.isAttrs (block.extra or null)) (
        at "settings.platforms.${name}.extra" block.extra
      );
  or' = default: value: if value == null then default else value;
in
lib.filter (each: each.port != 0) (
  # A file says it itself, to the check of the start.
  lib.optionals (instance.configFile == null) (
    lib.optional (or' true settings.server.enabled) {
      option = "settings.server.port";
      port = or' 8642 settings.server.port;
      host = or' "127.0.0.1" settings.server.host;
    }
    ++ lib.concatLists (lib.mapAttrsToList ofPlatform settings.platforms)
  )
  ++ lib.optional local.enable {
    option = "localModel.port";
    inherit (local) port;
    host = "127.0.0.1";
  }
)
