# Files for the agent, installed at each start by the service user (files.nix): nothing of root's writes below a home.
{ lib, ... }:
let
  inherit (lib) mkOption types;

  files =
    description: example:
    mkOption {
      type = types.attrsOf (types.either types.str types.path);
      default = { };
      inherit example;
      description = "${description} A text, or a file. They are written again at each start; one that is no longer declared is removed, unless it was changed.";
    };
in
{
  options = {
    documents = files "Files for the working directory, by path." (
      lib.literalExpression ''{ "AGENTS.md" = ./AGENTS.md; }''
    );
    hermesHomeFiles = files "Files for `HERMES_HOME`, by path." (
      lib.literalExpression ''{ "SOUL.md" = "You are terse."; }''
    );
  };
}
