# MCP servers, with upstream's names; they become `settings.mcp_servers`.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;

  # What runs servers that are fetched when they start, as their documentation writes it.
  runtimes = {
    node = pkgs.nodejs;
    npm = pkgs.nodejs;
    npx = pkgs.nodejs;
    uv = pkgs.uv;
    uvx = pkgs.uv;
  };
  needed =
    server:
    let
      command = builtins.unsafeDiscardStringContext (toString (server.command or ""));
    in
    lib.optional (runtimes ? ${command}) runtimes.${command};

  optional =
    type: description:
    mkOption {
      type = types.nullOr type;
      default = null;
      inherit description;
    };
  listed =
    description:
    mkOption {
      type = types.listOf types.str;
      default = [ ];
      inherit description;
    };
  named =
    description:
    mkOption {
      type = types.attrsOf types.str;
      default = { };
      inherit description;
    };

  server = types.submodule {
    options = {
      command = optional types.str "Program to start, for a server that speaks over its standard streams.";
      args = listed "Its arguments.";
      env = named "Its environment; `\${NAME}` is replaced by a secret of the service when it starts.";
      url = optional types.str "Address of a server that speaks HTTP.";
      headers = named "Headers of each request; `\${NAME}` is replaced by a secret of the service.";
      auth = optional (types.enum [ "oauth" ]) "`oauth` for OAuth 2.1 with PKCE.";
      enabled = mkOption {
        type = types.bool;
        default = true;
        description = "Whether to connect to it.";
      };
      timeout = optional types.ints.positive "Seconds that a call of a tool may take.";
      connect_timeout = optional types.ints.positive "Seconds to wait for the connection.";
      tools = optional (types.submodule {
        options = {
          include = listed "The only tools to take.";
          exclude = listed "Tools not to take.";
        };
      }) "Which of its tools are taken.";
      sampling = optional (types.submodule {
        options = {
          enabled = mkOption {
            type = types.bool;
            default = true;
            description = "Whether it may ask the model.";
          };
          model = optional types.str "The model that it gets.";
          max_tokens_cap = optional types.ints.positive "Most tokens of one answer.";
          timeout = optional types.ints.positive "Seconds that an answer may take.";
          max_rpm = optional types.ints.positive "Most questions in a minute.";
          max_tool_rounds = optional types.ints.unsigned "Most rounds of tool calls in one answer.";
          allowed_models = listed "Models that it may ask for.";
          log_level = optional (types.enum [
            "debug"
            "info"
            "warning"
          ]) "What is logged of it.";
        };
      }) "What it may ask of the model.";
    };
  };

  # What nobody set is left to the agent.
  set =
    value:
    if lib.isAttrs value then
      lib.filterAttrs (_: v: v != null && v != [ ] && v != { }) (lib.mapAttrs (_: set) value)
    else
      value;
in
{
  options.mcpServers = mkOption {
    type = types.attrsOf server;
    default = { };
    example = lib.literalExpression ''
      {
        files = { command = "mcp-server-files"; args = [ "/srv/files" ]; };
        wiki = { url = "https://mcp.example.org/mcp"; headers.Authorization = "Bearer ''${WIKI_TOKEN}"; };
      }
    '';
    description = "MCP servers by name: each has a `command` or a `url`. With one, the group `mcp` of Python packages comes by itself.";
  };

  config.extraPackages = lib.unique (
    lib.concatMap needed (lib.attrValues config.settings.mcp_servers)
  );

  config.settings = lib.mkIf (config.mcpServers != { }) {
    mcp_servers = lib.mapAttrs (_: set) config.mcpServers;
  };
}
