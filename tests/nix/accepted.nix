# Hosts that must build: their assertions hold and the check of the start passes (test_accepted.py). `warned` has those
# with something that the check says and lets pass.
{
  lib,
  pkgs,
  fixtures,
}:
let
  inherit (fixtures)
    host
    model
    plugin
    troubledHost
    ;
  key = {
    credentials.OPENROUTER_API_KEY = "/run/secrets/openrouter";
  };
in
{
  # ── models and their keys ─────────────────────────────────────────────
  key-in-a-credential = {
    settings.model = {
      provider = "openrouter";
      default = "anthropic/claude-opus-4.6";
    };
  }
  // key;
  model-as-a-text = {
    settings.model = "anthropic/claude-opus-4.6";
  }
  // key;
  provider-by-its-key = {
    settings.model.default = "anthropic/claude-opus-4.6";
  }
  // key;
  key-in-a-file = {
    settings.model = {
      provider = "openrouter";
      default = "anthropic/claude-opus-4.6";
    };
    environmentFiles = [ "/run/secrets/env" ];
  };
  key-in-a-login = {
    settings.model = {
      provider = "openrouter";
      default = "anthropic/claude-opus-4.6";
    };
    authFile = "/run/secrets/auth.json";
  };
  key-under-another-name = {
    settings.model = {
      provider = "own";
      default = "m";
    };
    settings.providers.own = {
      base_url = "https://models.example.org/v1";
      api_key_env = "OWN_KEY";
    };
    credentials.OWN_KEY = "/run/secrets/own";
  };
  key-by-a-variable = {
    settings.model = {
      provider = "openrouter";
      default = "m/x";
      api_key = "\${MY_KEY}";
    };
    credentials.MY_KEY = "/run/secrets/key";
  };
  address-by-a-variable = {
    settings.model = model // {
      base_url = "\${MODEL_URL}";
    };
    environment.MODEL_URL = "http://127.0.0.1:8643/v1";
  };
  address-by-a-credential = {
    settings.model = model // {
      base_url = "\${MODEL_URL}";
    };
    credentials.MODEL_URL = "/run/secrets/url";
  };
  no-key-for-a-server-of-ones-own = host { model.api_key = "none"; };
  nothing-but-enabled = { };
  a-local-model = {
    localModel = {
      enable = true;
      model = ./README.md;
      extraArgs = [
        "--n-gpu-layers"
        "99"
      ];
    };
  };
  a-local-model-elsewhere = {
    localModel = {
      enable = true;
      model = "/srv/model.gguf";
      port = 8650;
    };
  };
  fallback-with-a-key = {
    settings = {
      inherit model;
      fallback_providers = [
        {
          provider = "openrouter";
          model = "m/x";
        }
      ];
    };
  }
  // key;

  # ── several agents ────────────────────────────────────────────────────
  agents-without-servers = host { } // {
    instances = lib.genAttrs (map (i: "agent-${toString i}") (lib.genList (i: i) 10)) (_: {
      settings = { inherit model; };
    });
  };
  agents-on-ports-of-their-own = host { } // {
    instances = {
      alice.settings.server.port = 8700;
      ops.settings.server.port = 8701;
    };
  };
  agents-on-one-port-of-two-addresses = host { } // {
    instances = {
      alice.settings.server = {
        host = "10.0.0.5";
        port = 8700;
      };
      ops.settings.server = {
        host = "10.0.0.6";
        port = 8700;
      };
    };
  };
  agents-on-ports-that-are-free = host { server.port = 0; } // {
    instances.alice.settings.server.port = 0;
  };
  agents-with-one-beside-a-disabled-one = host { } // {
    instances.alice = {
      enable = false;
      user = "hermes";
      settings.server.port = 8642;
    };
  };
  agents-of-profiles = host { } // {
    profiles.research = {
      gateway.enable = true;
      settings = { inherit model; };
    };
  };

  # ── keys that are not the agent's ─────────────────────────────────────
  section-of-a-plugin = host { my_plugin.level = 3; };
  entry-of-a-plugin = host { plugins.entries.hello.level = 3; } // {
    extraPlugins = [ (plugin "hello") ];
  };
  memory-of-a-plugin = host { memory.holographic.size = 3; };
  time-zone = host { timezone = "Europe/Berlin"; };
  settings-of-a-plugin = troubledHost "configured" {
    plugins.settings.configured = {
      city = "Bern";
      days = 3;
      unit = "celsius";
    };
  };
  required-settings-alone = troubledHost "configured" { plugins.settings.configured.city = "Bern"; };
  settings-that-are-options = {
    settings = { inherit model; };
    extraPlugins = [
      fixtures.typed
      (plugin "hello")
    ];
    plugins.settings.typed = {
      city = "Bern";
      days = 3;
    };
    plugins.settings.hello.level = 2;
  };
  settings-without-a-schema = {
    settings = { inherit model; };
    plugins.settings.hello.level = 3;
    extraPlugins = [ (plugin "hello") ];
  };

  # ── programs ──────────────────────────────────────────────────────────
  program-by-its-path = host { } // {
    mcpServers.query.command = lib.getExe pkgs.jq;
  };
  program-of-a-package = host { } // {
    mcpServers.query.command = "jq";
    extraPackages = [ pkgs.jq ];
  };
  program-of-the-machine = host { } // {
    mcpServers.everything = {
      command = "/run/current-system/sw/bin/npx";
      args = [ "server" ];
    };
  };
  program-that-is-off = host { } // {
    mcpServers.wiki = {
      command = "wiki";
      enabled = false;
    };
  };
  server-elsewhere = host { } // {
    mcpServers.wiki = {
      url = "https://wiki.example.org/mcp";
      headers.Authorization = "Bearer \${WIKI_TOKEN}";
    };
    credentials.WIKI_TOKEN = "/run/secrets/wiki";
  };
  variable-of-a-file = host { } // {
    mcpServers.wiki = {
      command = "bash";
      env.TOKEN = "\${WIKI_TOKEN}";
    };
    environmentFiles = [ "/run/secrets/env" ];
  };
  quick-commands = host {
    quick_commands = {
      up = {
        type = "exec";
        command = "LANG=C cat /proc/uptime";
      };
      u = {
        type = "alias";
        target = "up";
      };
      sum = {
        type = "exec";
        command = "if true; then echo yes; fi";
      };
    };
  };
  hook-of-the-shell = host { hooks.pre_tool_call = [ { command = "bash /etc/guard.sh"; } ]; };
  speech-by-a-program = host {
    tts = {
      provider = "own";
      providers.own.command = "cat {input_path} > {output_path}";
    };
  };

  # ── what looks like a secret and is none ──────────────────────────────
  names-with-sk = host {
    quick_commands.desk = {
      type = "exec";
      command = "true";
      description = "Ask the risk-analysis-desk-of-the-bank.";
    };
  };
  proxy-without-a-password = host { } // {
    environment.HTTPS_PROXY = "http://proxy.example.org:3128";
  };
  proxy-for-all = host { } // {
    environment = {
      NO_PROXY = "localhost,127.0.0.1";
      TZ = "Europe/Berlin";
      LANG = "de_DE.UTF-8";
    };
  };
  address-with-a-variable = host { } // {
    mcpServers.wiki.url = "https://ann:\${WIKI_PASSWORD}@wiki.example.org/mcp";
    credentials.WIKI_PASSWORD = "/run/secrets/wiki";
  };
  hash-in-an-argument = host { } // {
    mcpServers.q = {
      command = "bash";
      args = [
        "--rev"
        "8fd9daa3db09ced9700431c5b7ad0e8ba199b575"
      ];
    };
  };

  # ── platforms, users, jobs ────────────────────────────────────────────
  telegram =
    host {
      platforms.telegram = {
        enabled = true;
        token = "\${TELEGRAM_BOT_TOKEN}";
        allow_from = [ 123456789 ];
      };
      people.ann = [ "telegram:123456789" ];
    }
    // {
      credentials.TELEGRAM_BOT_TOKEN = "/run/secrets/telegram";
    };
  irc = host {
    platforms.irc = {
      enabled = true;
      extra = {
        server = "irc.example.org";
        nickname = "hermes";
        channel = "#ops";
      };
    };
  };
  webhook =
    host {
      webhooks.push = {
        secret_env = "PUSH_SECRET";
        prompt = "Look.";
      };
    }
    // {
      credentials.PUSH_SECRET = "/run/secrets/push";
    };
  jobs = host { } // {
    hermesHomeFiles."cron/jobs.json" =
      ''{"jobs": [{"id": "a1", "name": "report", "prompt": "Report.", "schedule": {"kind": "cron", "expr": "0 7 * * *"}}]}'';
  };
  tool-elsewhere = host { web.search_backend = "tavily"; } // {
    credentials.TAVILY_API_KEY = "/run/secrets/tavily";
  };

  # ── units ─────────────────────────────────────────────────────────────
  a-port-of-ones-own = host { server.port = 1024; };
  without-http = host { server.enabled = false; };
  a-share-of-memory = host { } // {
    tools = {
      memoryMax = "25%";
      tasksMax = 64;
    };
  };
  always-restarted = host { } // {
    restart = "always";
    restartSec = 30;
    watchdogSec = null;
  };
  another-place = host { } // {
    stateDir = "/srv/hermes";
    workingDirectory = "/srv/work";
    user = "ann_2";
    group = "users";
  };
  tolerated-problems = troubledHost "odd-schema" { plugins.tolerated = [ "odd-schema" ]; };
  strict-and-clean = host { } // {
    strictChecks = true;
  };
}
