# Files for the agent, installed at each start by the service user: nothing of root's writes below a home.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config;

  files =
    description: example:
    mkOption {
      type = types.attrsOf (types.either types.str types.path);
      default = { };
      inherit example;
      description = "${description} A text, or a file. They are written anew at each start; one that is no longer declared is removed, unless somebody changed it.";
    };

  inStore =
    value:
    lib.isString value && lib.hasPrefix "${builtins.storeDir}/" value && !(lib.hasInfix "\n" value);
  asFile =
    name: value:
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
  options = {
    documents = files "Files for the working directory, by path." (
      lib.literalExpression ''{ "AGENTS.md" = ./AGENTS.md; }''
    );
    hermesHomeFiles = files "Files for `HERMES_HOME`, by path." (
      lib.literalExpression ''{ "SOUL.md" = "You are terse."; }''
    );

    homeFiles = mkOption {
      type = types.attrsOf (types.either types.package types.path);
      internal = true;
      readOnly = true;
      description = "`hermesHomeFiles` as files.";
    };

    installFiles = mkOption {
      type = types.listOf types.str;
      internal = true;
      readOnly = true;
      description = "Commands that install them.";
    };
  };

  config.homeFiles = lib.mapAttrs asFile cfg.hermesHomeFiles;
  config.installFiles =
    let
      command =
        mode: name: declared: target:
        "${pkgs.bash}/bin/bash ${./install-files.sh} ${mode} ${tree name declared} ${target} ${cfg.home}/.${name}";
    in
    # With nothing declared it still runs where something was: that is how a file goes.
    [
      # The workspace is shared with the commands of the agent.
      (command "0660" "hermes-agent-documents" cfg.documents (
        if cfg.workingDirectory == null then "${cfg.home}/workspace" else cfg.workingDirectory
      ))
      (command "0640" "hermes-agent-home-files" cfg.hermesHomeFiles cfg.home)
    ];
}
