# evalModules: collect modules, walk the declared options, merge their definitions.
{ lib }:
let
  inherit (builtins)
    attrNames
    concatMap
    elem
    filter
    foldl'
    hasAttr
    head
    isAttrs
    isFunction
    isPath
    isString
    map
    ;
  inherit (lib) optional showOption;

  kind = x: if isAttrs x then x._type or null else null;

  # A configuration as a list of plain attribute sets, with mkIf and mkMerge around it pushed
  # down to its attributes, so that attribute names can be read without the conditions.
  pushDown =
    config:
    if kind config == "merge" then
      concatMap pushDown config.contents
    else if kind config == "if" then
      map (c: builtins.mapAttrs (_: v: lib.mkIf config.condition v) c) (pushDown config.content)
    else if
      elem (kind config) [
        "override"
        "order"
      ]
    then
      map (c: builtins.mapAttrs (_: v: config // { content = v; }) c) (pushDown config.content)
    else
      [ config ];

  # One definition as a list of { file, value, priority, order } with its properties gone.
  discharge =
    d:
    let
      k = kind d.value;
    in
    if k == "merge" then
      concatMap (v: discharge (d // { value = v; })) d.value.contents
    else if k == "if" then
      (if d.value.condition then discharge (d // { value = d.value.content; }) else [ ])
    else if k == "override" then
      discharge (
        d
        // {
          value = d.value.content;
          priority = d.priority or d.value.priority;
        }
      )
    else if k == "order" then
      discharge (
        d
        // {
          value = d.value.content;
          order = d.order or d.value.priority;
        }
      )
    else
      [
        (
          {
            priority = 100;
            order = 1000;
          }
          // d
        )
      ];

  strongest = foldl' (acc: d: if d.priority < acc then d.priority else acc) 9999;

  merge =
    loc: type: definitions:
    let
      all = concatMap discharge definitions;
      defs = builtins.sort (a: b: a.order < b.order) (filter (d: d.priority == strongest all) all);
      bad = filter (d: !(type.check d.value)) defs;
    in
    if defs == [ ] then
      type.emptyValue
        or (throw "The option `${showOption loc}' was accessed but has no value defined. Try setting the option.")
    else if bad != [ ] then
      throw "A definition for option `${showOption loc}' is not of type `${type.description}'. Definition values:${show bad}"
    else
      type.merge loc defs;

  describe =
    v:
    if isFunction v then
      "<function>"
    else if lib.isDerivation v then
      "<derivation ${v.name}>"
    else
      let
        text = builtins.tryEval (builtins.toJSON v);
      in
      if text.success then text.value else "<unprintable ${builtins.typeOf v}>";
  show = lib.concatMapStrings (d: "\n- In `${d.file}': ${describe d.value}");

  fileOf = at: m: if isPath m || isString m then toString m else at;

  call =
    arguments: file: m:
    if !(isFunction m) then
      m
    else
      let
        wanted = builtins.functionArgs m;
        given = arguments.available;
        found = builtins.mapAttrs (
          n: _:
          given.${n} or arguments.config._module.args.${n}
            or (throw "module argument `${n}' is not defined (${file})")
        ) (lib.filterAttrs (n: hasDefault: !hasDefault || given ? ${n}) wanted);
      in
      m (found // given);

  # A module as { file, children, options, config, freeform }.
  load =
    arguments: at: module:
    let
      m = call arguments (fileOf at module) (
        if isPath module || isString module then import module else module
      );
      file = m._file or (fileOf at module);
      body = builtins.removeAttrs m [
        "_file"
        "_class"
        "key"
        "imports"
        "options"
        "config"
        "meta"
        "disabledModules"
        "freeformType"
      ];
    in
    {
      inherit file;
      children = m.imports or [ ];
      options = m.options or { };
      freeform = m.freeformType or null;
      config =
        if !(m ? config || m ? options) then
          body
        else if body != { } then
          throw "Module `${file}' has an unsupported attribute `${head (attrNames body)}'. This is caused by introducing a top-level `config' or `options' attribute."
        else
          m.config or { };
    };

  evalModules =
    {
      modules,
      specialArgs ? { },
      prefix ? [ ],
      class ? null,
    }:
    let
      arguments = {
        inherit config;
        available = {
          inherit lib config options;
        }
        // specialArgs;
      };

      # Breadth first, then reversed: the order in which nixpkgs' library concatenates
      # lists that several modules define. A file that is imported twice counts once.
      level =
        seen: ms:
        let
          paths = map toString (filter isPath ms);
          fresh = filter (m: !(isPath m && elem (toString m) seen)) ms;
          loaded = map (load arguments "<unknown-file>") fresh;
        in
        if ms == [ ] then [ ] else loaded ++ level (seen ++ paths) (concatMap (m: m.children) loaded);
      internal = {
        options._module.args = lib.mkOption {
          type = lib.types.lazyAttrsOf lib.types.raw;
          default = { };
        };
        options._module.freeformType = lib.mkOption {
          type = lib.types.nullOr lib.types.raw;
          default = null;
        };
        options._module.check = lib.mkOption {
          type = lib.types.bool;
          default = true;
        };
      };
      loaded = lib.reverseList (level [ ] (modules ++ [ internal ]));
      freeforms = filter (t: t != null) (map (m: m.freeform) loaded);
      freeformType = if freeforms != [ ] then head freeforms else top.config._module.freeformType;
      definitions = concatMap (
        m:
        map (value: {
          inherit (m) file;
          inherit value;
        }) (pushDown m.config)
      ) loaded;

      leaf =
        path: declarations: defs:
        let
          option = foldl' (a: b: a // b) { } declarations;
          type = option.type or lib.types.unspecified;
          default = optional (option ? default) {
            file = "<default>";
            value = lib.mkOptionDefault option.default;
          };
          defined = concatMap discharge defs;
          merged = merge path type (defs ++ default);
          value = (option.apply or lib.id) merged;
        in
        {
          value =
            if (option.readOnly or false) && defined != [ ] && option ? default then
              throw "The option `${showOption path}' is read-only, but it's set multiple times.${show defined}"
            else
              value;
          unknown = [ ];
          option = option // {
            inherit type value;
            loc = path;
            files = map (d: d.file) defined;
            isDefined = defined != [ ] || option ? default;
            highestPrio = strongest (concatMap discharge (defs ++ default));
          };
        };

      walk =
        loc: declarations: defs:
        let
          names = lib.unique (concatMap attrNames declarations);
          below =
            n:
            concatMap (
              d:
              optional (hasAttr n d.value) {
                inherit (d) file;
                value = d.value.${n};
              }
            ) defs;
          one =
            n:
            let
              here = concatMap (d: optional (hasAttr n d) d.${n}) declarations;
              options = filter (o: kind o == "option") here;
              flat = concatMap (
                d:
                map (value: {
                  inherit (d) file;
                  inherit value;
                }) (pushDown d.value)
              ) (below n);
              sub = walk (loc ++ [ n ]) here flat;
            in
            if options != [ ] then
              leaf (loc ++ [ n ]) options (below n)
            else
              {
                option = sub.options;
                value = sub.config;
                inherit (sub) unknown;
              };
          results = lib.genAttrs names one;
          extra = concatMap (
            d:
            map (n: {
              inherit (d) file;
              name = n;
              value = d.value.${n};
            }) (filter (n: !(elem n names)) (attrNames d.value))
          ) defs;
        in
        {
          options = builtins.mapAttrs (_: r: r.option) results;
          config = builtins.mapAttrs (_: r: r.value) results;
          unknown =
            map (e: {
              inherit (e) file value;
              path = loc ++ [ e.name ];
            }) extra
            ++ concatMap (n: results.${n}.unknown) names;
        };

      top = walk prefix (map (m: m.options) loaded) definitions;
      options = top.options;
      # What no option declares goes to the freeform type, also below declared options.
      relative = path: lib.sublist (lib.length prefix) (lib.length path) path;
      free = freeformType.merge prefix (
        map (e: {
          inherit (e) file;
          value = lib.setAttrByPath (relative e.path) e.value;
        }) top.unknown
      );
      config =
        if freeformType == null || top.unknown == [ ] then
          top.config
        else
          lib.recursiveUpdate free top.config;
      offender = head top.unknown;
    in
    {
      inherit options;
      inherit (config) _module;
      config =
        if freeformType == null && top.config._module.check && top.unknown != [ ] then
          throw "The option `${showOption offender.path}' does not exist. Definition values:${show [ offender ]}"
        else
          builtins.removeAttrs config [ "_module" ];
    };
in
{
  inherit evalModules;

  setDefaultModuleLocation = file: module: {
    _file = toString file;
    imports = [ module ];
  };
  importApply = file: argument: lib.setDefaultModuleLocation file (import file argument);
  definitions = {
    inherit
      merge
      pushDown
      discharge
      describe
      show
      ;
  };
}
