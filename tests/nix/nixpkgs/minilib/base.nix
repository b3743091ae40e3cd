# Lists, strings, attribute sets, and what makes a package overridable.
let
  inherit (builtins)
    attrNames
    concatLists
    concatMap
    concatStringsSep
    elem
    elemAt
    filter
    foldl'
    genList
    hasAttr
    head
    isAttrs
    isFunction
    isList
    isPath
    isString
    length
    listToAttrs
    match
    replaceStrings
    split
    stringLength
    substring
    tail
    toJSON
    ;
in
rec {
  inherit (builtins)
    all
    any
    attrNames
    attrValues
    catAttrs
    compareVersions
    concatLists
    concatMap
    concatStringsSep
    elem
    elemAt
    filter
    foldl'
    fromJSON
    functionArgs
    genList
    hasAttr
    head
    intersectAttrs
    isAttrs
    isBool
    isFloat
    isFunction
    isInt
    isList
    isPath
    isString
    length
    listToAttrs
    map
    mapAttrs
    match
    pathExists
    readDir
    readFile
    removeAttrs
    replaceStrings
    sort
    stringLength
    substring
    tail
    toJSON
    typeOf
    unsafeDiscardStringContext
    ;

  id = x: x;
  const = x: _: x;
  flip =
    f: a: b:
    f b a;
  fix =
    f:
    let
      x = f x;
    in
    x;

  # ── lists ─────────────────────────────────────────────────────────────
  last = xs: elemAt xs (length xs - 1);
  toList = x: if isList x then x else [ x ];
  optional = c: x: if c then [ x ] else [ ];
  optionals = c: xs: if c then xs else [ ];
  flatten = x: if isList x then concatMap flatten x else [ x ];
  unique = foldl' (acc: x: if elem x acc then acc else acc ++ [ x ]) [ ];
  intersectLists = keep: filter (x: elem x keep);
  subtractLists = drop: filter (x: !(elem x drop));
  imap0 = f: xs: genList (i: f i (elemAt xs i)) (length xs);
  sublist =
    start: count: xs:
    let
      rest = length xs - start;
      n = if rest < count then rest else count;
    in
    genList (i: elemAt xs (start + i)) (if n < 0 then 0 else n);
  reverseList = xs: genList (i: elemAt xs (length xs - 1 - i)) (length xs);
  partition = builtins.partition;
  groupBy = builtins.groupBy;

  # ── attribute sets ────────────────────────────────────────────────────
  nameValuePair = name: value: { inherit name value; };
  optionalAttrs = c: s: if c then s else { };
  mapAttrsToList = f: s: map (n: f n s.${n}) (attrNames s);
  mapAttrs' = f: s: listToAttrs (mapAttrsToList f s);
  filterAttrs = p: s: removeAttrs' (filter (n: !(p n s.${n})) (attrNames s)) s;
  removeAttrs' = names: s: builtins.removeAttrs s names;
  attrVals = names: s: map (n: s.${n}) names;
  genAttrs = names: f: listToAttrs (map (n: nameValuePair n (f n)) names);
  concatMapAttrs = f: s: foldl' (acc: x: acc // x) { } (mapAttrsToList f s);
  attrByPath =
    path: default: s:
    if path == [ ] then
      s
    else if isAttrs s && hasAttr (head path) s then
      attrByPath (tail path) default s.${head path}
    else
      default;
  getAttrFromPath =
    path: attrByPath path (throw "cannot find attribute `${concatStringsSep "." path}'");
  setAttrByPath = path: v: if path == [ ] then v else { ${head path} = setAttrByPath (tail path) v; };
  recursiveUpdate =
    a: b:
    if isAttrs a && isAttrs b && !(isDerivation a) && !(isDerivation b) then
      a // builtins.mapAttrs (n: v: if hasAttr n a then recursiveUpdate a.${n} v else v) b
    else
      b;
  filterAttrsRecursive =
    p: s:
    listToAttrs (
      concatMap (
        n:
        let
          v = s.${n};
        in
        optional (p n v) (nameValuePair n (if isAttrs v then filterAttrsRecursive p v else v))
      ) (attrNames s)
    );
  collect =
    p: s:
    if p s then
      [ s ]
    else if isAttrs s then
      concatMap (collect p) (builtins.attrValues s)
    else
      [ ];

  # ── strings ───────────────────────────────────────────────────────────
  optionalString = c: s: if c then s else "";
  hasPrefix = p: s: substring 0 (stringLength p) s == p;
  hasSuffix =
    p: s:
    let
      n = stringLength s;
      m = stringLength p;
    in
    m <= n && substring (n - m) m s == p;
  hasInfix = p: s: length (split (escapeRegex p) s) > 1;
  removePrefix = p: s: if hasPrefix p s then substring (stringLength p) (-1) s else s;
  removeSuffix = p: s: if hasSuffix p s then substring 0 (stringLength s - stringLength p) s else s;
  escapeRegex =
    let
      special = [
        "\\"
        "^"
        "$"
        "."
        "|"
        "?"
        "*"
        "+"
        "("
        ")"
        "["
        "]"
        "{"
        "}"
      ];
    in
    replaceStrings special (map (c: "\\" + c) special);
  splitString = sep: s: filter isString (split (escapeRegex sep) s);
  concatMapStringsSep =
    sep: f: xs:
    concatStringsSep sep (map f xs);
  concatMapStrings = concatMapStringsSep "";
  concatLines = concatMapStrings (x: x + "\n");
  boolToString = b: if b then "true" else "false";
  escapeShellArg =
    x:
    let
      s = toString x;
    in
    if match "[A-Za-z0-9,._+:@%/-]+" s != null then
      s
    else
      "'" + replaceStrings [ "'" ] [ "'\\''" ] s + "'";
  escapeShellArgs = concatMapStringsSep " " escapeShellArg;
  getName =
    x:
    if isAttrs x then
      x.pname or (builtins.parseDrvName x.name).name
    else
      (builtins.parseDrvName x).name;
  getExe = x: "${x}/bin/${x.meta.mainProgram or (getName x)}";
  getExe' = x: program: "${x}/bin/${program}";
  makeSearchPath = sub: ps: concatMapStringsSep ":" (p: "${p}/${sub}") ps;
  makeBinPath = makeSearchPath "bin";
  importJSON = file: builtins.fromJSON (builtins.readFile file);
  showAttrPath = concatStringsSep ".";
  showOption = concatMapStringsSep "." (
    p: if match "[A-Za-z_][A-Za-z0-9_'-]*|<.*>|\\*" p != null then p else "\"${p}\""
  );

  cleanSourceWith =
    {
      src,
      name,
      filter,
    }:
    {
      outPath = builtins.path {
        inherit name filter;
        path = src;
      };
    };

  # ── packages ──────────────────────────────────────────────────────────
  isDerivation = x: (x.type or null) == "derivation";
  isStringLike = x: isString x || isPath x || isAttrs x && (x ? outPath || x ? __toString);
  isStorePath = x: isStringLike x && match "${builtins.storeDir}/[^/]+" (toString x) != null;
  throwIf = c: msg: if c then throw msg else id;
  throwIfNot = c: throwIf (!c);
  warn = msg: builtins.trace "warning: ${msg}";
  makeOverridable =
    f: args:
    let
      result = f args;
    in
    if !(isAttrs result) then
      result
    else
      result
      // {
        override = new: makeOverridable f (args // (if isFunction new then new args else new));
      };
  callPackageWith =
    available: fn: args:
    let
      f = if isFunction fn then fn else import fn;
      missing = filterAttrs (n: hasDefault: !hasDefault && !(available ? ${n}) && !(args ? ${n})) (
        builtins.functionArgs f
      );
    in
    if missing != { } then
      throw "callPackage: no `${head (attrNames missing)}' in the stand-in package set"
    else
      makeOverridable f (builtins.intersectAttrs (builtins.functionArgs f) available // args);

  literalExpression = text: {
    _type = "literalExpression";
    inherit text;
  };
  literalMD = text: {
    _type = "literalMD";
    inherit text;
  };
}
