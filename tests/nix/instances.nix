# A host with `count` agents: the instance `default`, and a1, a2, …; one model for all, a person who may ask a1.
{
  fixtures,
  lib,
  pkgs,
}:
count:
let
  inherit (fixtures) model;
  agent = i: {
    credentials.OPENAI_API_KEY = "/etc/agents/key-${toString i}";
    settings = {
      inherit model;
      server.port = 8700 + i;
    };
    addToSystemPackages = true;
    documents."AGENTS.md" = "Of agent ${toString i}.\n";
    # One of each profile.
    tools.sandbox = lib.elemAt [ "strict" "host" "workspace" ] (i - i / 3 * 3);
  };
  others = lib.genList (i: i + 1) (count - 1);
in
{
  services = agent 0 // {
    instances = lib.listToAttrs (
      map (
        i:
        lib.nameValuePair "a${toString i}" (
          agent i // lib.optionalAttrs (i == 1) { extraPlugins = [ fixtures.calculator ]; }
        )
      ) others
    );
  };
  extra = {
    systemd.services.scripted-model = {
      wantedBy = [ "multi-user.target" ];
      serviceConfig = {
        ExecStart = "${pkgs.python3}/bin/python3 ${./e2e/model.py}";
        RuntimeDirectory = "scripted-model";
      };
    };
    users.users.ann = {
      isNormalUser = true;
      extraGroups = [ "hermes-a1" ];
    };
  };
}
