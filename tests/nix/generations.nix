# One host over time, for test_generations.py: what changes between two of them decides what a switch does.
{ fixtures }:
let
  always = {
    extraPlugins = [ fixtures.calculator ];
    extraPythonPackages = ps: [ fixtures.weather ];
    environmentFiles = [ "/etc/hermes-agent/environment" ];
    tools.sandbox = "strict";
  };
  model = name: {
    provider = "custom";
    default = name;
    base_url = "http://127.0.0.1:8643/v1";
  };
in
{
  first = always // {
    settings = {
      model = model "scripted";
      agent.max_turns = 20;
    };
    documents = {
      "notes/first.md" = "One.\n";
      "notes/second.md" = "Two.\n";
    };
    authFile = "/etc/hermes-agent/auth.json";
  };
  # Nothing but a block that a reload takes in.
  other-model = always // {
    settings = {
      model = model "other";
      agent.max_turns = 20;
    };
    documents = {
      "notes/first.md" = "One.\n";
      "notes/second.md" = "Two.\n";
    };
    authFile = "/etc/hermes-agent/auth.json";
  };
  # A key and two documents are not declared any more.
  less = always // {
    settings.model = model "scripted";
  };
}
