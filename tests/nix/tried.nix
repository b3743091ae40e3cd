# Directory plugins through `buildHermesPlugin`.
{
  pkgs,
  fixtures,
  host',
}:
let
  buildHermesPlugin = pkgs.callPackage ../../nix/build-plugin.nix { };
  plugin = name: ./plugins + "/${name}";
  good = buildHermesPlugin {
    src = plugin "with-tests";
    version = "1.2.0";
    dependencies = _: [ fixtures.leaf1 ];
  };
in
{
  inherit good;
  # What it imports comes with it.
  host = host' { services.extraPlugins = [ good ]; };

  refused = {
    no-manifest = buildHermesPlugin { src = plugin "no-manifest"; };
    bad-manifest = buildHermesPlugin { src = plugin "bad-manifest"; };
    dependency-missing = buildHermesPlugin { src = plugin "with-tests"; };
    dependency-too-old = buildHermesPlugin {
      src = plugin "wants-newer";
      dependencies = _: [ fixtures.leaf1 ];
    };
    raises = buildHermesPlugin { src = plugin "raises"; };
    other-tools = buildHermesPlugin { src = plugin "other-tools"; };
    other-schema = buildHermesPlugin {
      pname = "hermes-typed";
      src = plugin "typed";
      configSchema = fixtures.schemaOfTyped // {
        days = {
          type = "number";
          description = "How many days";
        };
      };
    };
    other-name = buildHermesPlugin {
      src = plugin "typed";
      configSchema = fixtures.schemaOfTyped;
    };
    failing-tests = buildHermesPlugin { src = plugin "failing-tests"; };
  };
}
