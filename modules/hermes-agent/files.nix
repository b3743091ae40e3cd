# Declared files as store paths, and the command that installs them.
{ lib, pkgs }:
let
  inStore =
    value:
    lib.isString value && lib.hasPrefix "${builtins.storeDir}/" value && !(lib.hasInfix "\n" value);
  asFile =
    _: value:
    if lib.isPath value || lib.isDerivation value || inStore value then
      "${value}"
    else
      pkgs.writeText "hermes-agent-document" value;

  tree =
    name: declared:
    pkgs.runCommand name { } ''
      mkdir $out
      ${lib.concatLines (
        lib.mapAttrsToList (
          file: value: "install -D -m 0644 ${asFile file value} $out/${lib.escapeShellArg file}"
        ) declared
      )}
    '';
in
{
  # asFile :: name -> text or path -> path
  inherit asFile;

  # install :: { mode, name, declared, target, home } -> command
  # `declared` by path below `target`; what was installed is noted in `home`.
  install =
    {
      mode,
      name,
      declared,
      target,
      home,
    }:
    "${pkgs.bash}/bin/bash ${./install-files.sh} ${mode} ${tree name declared} ${target} ${home}/.${name}";
}
