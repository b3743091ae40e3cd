# Of nixos/lib/utils.nix what our module uses.
{ lib }:
{
  # The text of ExecStart= that gives a program exactly these arguments: quoted, systemd's own signs doubled.
  escapeSystemdExecArgs = lib.concatMapStringsSep " " (
    arg:
    lib.replaceStrings [ "%" "$" ] [ "%%" "$$" ] (
      builtins.toJSON (if lib.isString arg then arg else toString arg)
    )
  );
}
