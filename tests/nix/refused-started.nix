# Hosts that the check of the start refuses, in the words of refused/<name>.expected (starts.nix runs the check).
{
  lib,
  pkgs,
  fixtures,
}:
let
  inherit (fixtures) host model troubledHost;
  jobs = text: {
    settings = { inherit model; };
    hermesHomeFiles."cron/jobs.json" = text;
  };
in
{
  # ── names ─────────────────────────────────────────────────────────────
  provider-of-a-fallback = host { fallback_providers = [ "opnrouter" ]; };
  provider-of-a-task = host { auxiliary.compression.provider = "openroter"; };
  provider-of-a-chain = host { auxiliary.approval.fallback_chain = [ "antropic" ]; };
  provider-of-a-strategy = host { credential_pool_strategies.opnrouter = "round_robin"; };
  provider-of-a-rule = host {
    model.routes = [
      {
        provider = "opnai";
        model = "m";
      }
    ];
  };
  task-of-a-rule = host {
    model.routes = [
      {
        model = "m";
        task = "compresion";
      }
    ];
  };
  event-of-a-hook = host { hooks.pre_tool_cal = [ { command = "true"; } ]; };
  skin-that-is-none = host { display.skin = "ligth"; };
  personality-that-is-none = host { display.personality = "techical"; };
  memory-that-is-none = host { memory.provider = "http-memry"; };
  web-that-is-none = host { web.backend = "tavilly"; };
  speech-that-is-none = host { tts.provider = "opnai"; };
  transcription-that-is-none = host { stt.provider = "whispr"; };
  pictures-that-are-none = host { image_gen.provider = "dal"; };
  engine-that-is-none = host { context.engine = "compresor"; };
  scheduler-that-is-none = host { cron.provider = "chronos-ng"; };
  approver-that-is-none = host { security.approval.transport = "builtn"; };
  backend-that-is-none = host { terminal.backend = "dokcer"; };
  toolset-of-the-host = host { toolsets = [ "treminal" ]; };
  toolset-of-a-platform = host { platform_toolsets.telegram = [ "wbe" ]; };
  platform-of-toolsets = host { platform_toolsets.telegarm = [ "web" ]; };
  platform-of-hints = host { platform_hints.telegarm.append = "Be terse."; };
  platform-of-a-user = host { people.ann = [ "telegarm:1" ]; };
  platform-of-a-webhook =
    host {
      webhooks.push = {
        secret_env = "PUSH";
        deliver = "telegarm:1";
      };
    }
    // {
      credentials.PUSH = "/run/secrets/push";
    };
  tool-that-is-pinned = host { tools.tool_search.pinned = [ "treminal" ]; };
  plugin-that-is-disabled = host { plugins.disabled = [ "calculater" ]; };
  plugin-with-settings = host { } // {
    plugins.settings.calculater.digits = 3;
  };

  plugin-without-a-unit = host { plugins.isolation = "host"; } // {
    extraPlugins = [ (fixtures.plugin "hello") ];
  };

  # ── programs ──────────────────────────────────────────────────────────
  mcp-program = host { } // {
    mcpServers.wiki.command = "mcp-server-wiki";
  };
  mcp-program-in-the-store = host { } // {
    mcpServers.wiki.command = "/nix/store/00000000000000000000000000000000-wiki/bin/wiki";
  };
  speech-program = host {
    tts = {
      provider = "own";
      providers.own.command = "say-it --out {output_path}";
    };
  };
  transcription-program = host {
    stt = {
      provider = "own";
      providers.own.command = "hear-it {input_path}";
    };
  };
  quick-program = host {
    quick_commands.up = {
      type = "exec";
      command = "uptimes --pretty";
    };
  };
  hook-program = host { hooks.pre_tool_call = [ { command = "guard-it --strict"; } ]; };
  hook-with-an-open-quote = host { hooks.pre_tool_call = [ { command = "bash -c 'true"; } ]; };

  # ── what is not given ─────────────────────────────────────────────────
  variable-of-a-program = host { } // {
    mcpServers.wiki = {
      command = "bash";
      env.TOKEN = "\${WIKI_TOKEN}";
    };
  };
  variable-of-a-header = host { } // {
    mcpServers.wiki = {
      url = "https://wiki.example.org/mcp";
      headers.Authorization = "Bearer \${WIKI_TOKEN}";
    };
  };
  variable-of-an-address = host { model.base_url = "\${MODEL_URL}"; };
  variable-of-a-setting = host { server.key = "\${SERVER_KEY}"; };
  key-of-the-model = {
    settings.model = {
      provider = "openrouter";
      default = "anthropic/claude-opus-4.6";
    };
  };
  key-of-another-model = {
    settings.model = {
      provider = "anthropic";
      default = "claude-opus-4.6";
    };
    credentials.OPENROUTER_API_KEY = "/run/secrets/openrouter";
  };
  key-of-some-model = {
    settings.model.default = "anthropic/claude-opus-4.6";
  };
  secret-of-a-webhook = host { webhooks.push.prompt = "Look."; };
  variables-of-two = host { } // {
    mcpServers = {
      one = {
        command = "bash";
        env.A = "\${FIRST}";
      };
      two = {
        command = "bash";
        env.B = "\${SECOND}";
      };
    };
  };

  # ── ports ─────────────────────────────────────────────────────────────
  port-of-the-system = host { server.port = 443; };
  port-of-the-model = {
    localModel = {
      enable = true;
      model = ./README.md;
      port = 8642;
    };
  };
  port-of-a-platform =
    host {
      platforms.telegram = {
        enabled = true;
        token = "\${T}";
        extra.webhook_port = 8642;
      };
    }
    // {
      credentials.T = "/run/secrets/telegram";
    };

  # ── jobs ──────────────────────────────────────────────────────────────
  cron-line = jobs ''{"jobs": [{"id": "a1", "name": "report", "prompt": "Report.", "schedule": {"kind": "cron", "expr": "61 7 * * *"}}]}'';
  cron-target = jobs ''{"jobs": [{"id": "a1", "name": "report", "prompt": "Report.", "schedule": {"kind": "cron", "expr": "0 7 * * *"}, "deliver": "telegarm:1"}]}'';
  cron-file = jobs "{jobs: [";

  # ── plugins ───────────────────────────────────────────────────────────
  hook-of-a-plugin = troubledHost "listens-wrong" { };
  kind-of-a-plugin = troubledHost "odd-kind" { };
  manifest-of-a-later-version = troubledHost "later" { };
  python-of-a-plugin = troubledHost "other-python" { };
  package-of-a-plugin = troubledHost "wants-package" { };
  version-of-a-package = troubledHost "wants-version" { };
  schema-of-a-tool = troubledHost "odd-schema" { };
  option-of-the-wrong-type = troubledHost "configured" {
    plugins.settings.configured = {
      city = "Bern";
      days = "many";
    };
  };
  option-that-is-no-choice = troubledHost "configured" {
    plugins.settings.configured = {
      city = "Bern";
      unit = "kelvin";
    };
  };
  option-that-is-not-declared = troubledHost "configured" {
    plugins.settings.configured = {
      city = "Bern";
      dayz = 3;
    };
  };
  option-that-is-missing = troubledHost "configured" { plugins.settings.configured.days = 3; };

  # ── several agents ────────────────────────────────────────────────────
  port-of-another-instance = {
    configFile = pkgs.writeText "config.yaml" "server: {port: 8700}\n";
    instances.alice.settings.server.port = 8700;
  };

  # ── with `strictChecks` a warning is enough ───────────────────────────
  warning-of-a-foreign-key = host { my_plugin.level = 3; } // {
    strictChecks = true;
  };
  warning-of-a-file = host { } // {
    mcpServers.wiki = {
      command = "bash";
      env.TOKEN = "\${WIKI_TOKEN}";
    };
    environmentFiles = [ "/run/secrets/env" ];
    strictChecks = true;
  };
}
