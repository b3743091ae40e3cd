# The commands of a host: `hermes-service` in the home of a daemon, `hermes-<name>` for an instance, `hermes` for everybody.
{ lib, pkgs }:
# all: instances that are enabled; environmentOf: the variables of an instance's unit.
{ all, environmentOf }:
let
  inherit (pkgs) coreutils util-linux;
  inherit (import ./names.nix { inherit lib; }) homeOf;
  name = each: each.instance.name;
  plain = lib.filter (each: each.instance.plain) all;
  others = lib.filter (each: !each.instance.plain) all;
  # Without --instance.
  first =
    if plain != [ ] then
      "default"
    else if lib.length all == 1 then
      name (lib.head all)
    else
      "";
  listed = lib.concatMapStringsSep ", " name all;

  # `hermes` in the daemon's home, as its user: what it may not change there it says by the name of the option.
  service = pkgs.writeShellScriptBin "hermes-service" ''
    instance=${first}
    case "''${1-}" in
      --instance) instance=''${2-}; shift; shift || true ;;
      --instance=*) instance=''${1#--instance=}; shift ;;
    esac
    case "$instance" in
    ${lib.concatMapStrings (each: ''
      ${name each})
        user=${each.user} work=${lib.escapeShellArg each.workingDirectory} state=${lib.escapeShellArg each.stateDir}
        home=${lib.escapeShellArg (homeOf each)} declared=${(environmentOf each).HERMES_DECLARED_CONFIG} hermes=${each.finalPackage}/bin/hermes
        ;;
    '') all}
      *)
        if [ -n "$instance" ]; then echo "hermes-service: there is no instance \`$instance\` here; there is: ${listed}" >&2
        else echo "hermes-service: --instance NAME says which one is meant; there is: ${listed}" >&2; fi
        exit 2
        ;;
    esac
    as=()
    if [ "$(id -un)" != "$user" ]; then
      [ "$(id -u)" = 0 ] || { echo "hermes-service: run it with sudo: it works in $home, as $user" >&2; exit 1; }
      as=(${util-linux}/bin/runuser -u "$user" --)
    fi
    umask 0077
    cd "$work"
    exec "''${as[@]}" ${coreutils}/bin/env HOME="$state" HERMES_HOME="$home" HERMES_DECLARED_CONFIG="$declared" "$hermes" "$@"
  '';

  # For members of the group a client of the daemon; everybody else has an agent in a home of their own.
  client =
    each:
    pkgs.runCommand "hermes-client" { nativeBuildInputs = [ pkgs.makeBinaryWrapper ]; } ''
      makeWrapper ${each.finalPackage}/bin/hermes $out/bin/hermes \
        --set-default HERMES_DAEMON_SOCKET ${each.instance.run}/control.sock
    '';

  # For root and its own user as `hermes-service`, for members of its group a client.
  own =
    each:
    pkgs.writeShellScriptBin each.instance.command ''
      if [ "$(id -u)" = 0 ] || [ "$(id -un)" = ${each.user} ]; then
        exec ${service}/bin/hermes-service --instance ${name each} "$@"
      fi
      ${
        if each.addToSystemPackages then
          ''exec ${coreutils}/bin/env -u HERMES_HOME ${each.finalPackage}/bin/hermes --instance ${name each} "$@"''
        else
          ''
            echo "${each.instance.command}: run it with sudo; members of the group ${each.group} have it once ${each.instance.option}.addToSystemPackages is true" >&2
                exit 1''
      }
    '';
in
lib.optional (all != [ ]) service
++ map client (lib.filter (each: each.addToSystemPackages) plain)
++ map own others
