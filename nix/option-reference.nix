# docs/reference/nixos-options.md, from what the module declares: nix-build -A optionReference tests/nix
{ lib, pkgs }:
let
  # The module alone: what it writes to is not looked at.
  evaluated = lib.evalModules {
    modules = [
      ../modules/hermes-agent/default.nix
      {
        _module.check = false;
        _module.args = {
          inherit pkgs;
          utils = { };
        };
      }
    ];
  };

  # The keys of the settings have a page of their own; here are those with a default or an example of the module.
  shown =
    path: option:
    path == [ "settings" ]
    || lib.head path != "settings"
    || option ? example
    || !(lib.hasPrefix "null" (option.defaultText.text or "null"));
  subOptions =
    option:
    builtins.removeAttrs (option.type.getSubOptions option.loc) [
      "_module"
      "_freeformOptions"
    ];

  # In words that do not change with the library.
  typeText =
    type:
    let
      inner = type.nestedTypes or { };
    in
    # It is made of itself.
    if type.description or "" == "JSON value" then
      "JSON value"
    else if type.name == "nullOr" then
      "null or ${typeText inner.elemType}"
    else if type.name == "listOf" then
      "list of ${typeText inner.elemType}"
    else if
      lib.elem type.name [
        "attrsOf"
        "lazyAttrsOf"
      ]
    then
      "attribute set of ${typeText inner.elemType}"
    else if type.name == "either" then
      "${typeText inner.left} or ${typeText inner.right}"
    else if type.name == "coercedTo" then
      "${typeText inner.finalType} or ${typeText inner.coercedType}"
    else if type.name == "functionTo" then
      "function to ${typeText inner.elemType}"
    else if type.name == "submodule" then
      "submodule"
    else if type.name == "package" then
      "package"
    else
      type.description;

  walk =
    path: tree:
    lib.concatMap (
      name:
      let
        it = tree.${name};
        here = path ++ [ name ];
      in
      if (it._type or null) == "option" then
        (
          if (it.visible or true) != false && !(it.internal or false) then
            lib.optional (shown here it) {
              path = here;
              option = it;
            }
            ++ lib.optionals ((it.visible or true) != "shallow") (
              walk (here ++ nested it.type) (subOptions (it // { loc = here; }))
            )
          else
            [ ]
        )
      else
        walk here it
    ) (lib.attrNames tree);
  nested =
    type:
    if type.name == "nullOr" then
      nested type.nestedTypes.elemType
    else if type.name == "attrsOf" then
      [ "<name>" ]
    else
      [ ];
  trim =
    value:
    let
      found = builtins.match "[ \n]*((.|\n)*[^ \n])[ \n]*" value;
    in
    if found == null then "" else lib.head found;

  text = value: if (value._type or null) == "literalExpression" then value.text else show value;
  show =
    value:
    if lib.isDerivation value then
      value.name
    else if lib.isAttrs value then
      (
        if value == { } then
          "{ }"
        else
          "{ ${lib.concatStringsSep " " (lib.mapAttrsToList (n: v: "${n} = ${show v};") value)} }"
      )
    else if lib.isList value then
      (if value == [ ] then "[ ]" else "[ ${lib.concatMapStringsSep " " show value} ]")
    else
      builtins.toJSON value;
  line =
    value:
    lib.concatStringsSep " " (lib.filter (line: line != "") (map trim (lib.splitString "\n" value)));
  said =
    prefix: value:
    lib.optional (value != null) (
      if (value._type or null) == "literalMD" then
        "${prefix}: ${line value.text}"
      else
        "${prefix}: `${line (text value)}`"
    );

  entry =
    { path, option }:
    let
      literal = value: {
        _type = "literalExpression";
        text = show value;
      };
      default = option.defaultText or (if option ? default then literal option.default else null);
      example =
        if option ? example then
          (if option.example ? _type then option.example else literal option.example)
        else
          null;
    in
    lib.concatStringsSep "\n" (
      [
        "## `${lib.concatStringsSep "." path}`"
        ""
        (trim (option.description or ""))
        ""
        "- type: ${typeText option.type}"
      ]
      ++ map (line: "- ${line}") (said "default" default ++ said "example" example)
    )
    + "\n";
in
pkgs.writeText "nixos-options.md" ''
  # Options of `services.hermes-agent`

  Written by `nix/option-reference.nix` from `modules/hermes-agent/`; a check fails when it is out of date. Each key of
  [config.md](config.md) is an option of `settings` under its name; only those with an example, or with a default that is
  not the agent's own, are on this page as well.

  ${lib.concatMapStringsSep "\n" entry (walk [ ] evaluated.options.services.hermes-agent)}''
