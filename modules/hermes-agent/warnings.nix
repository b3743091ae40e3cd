# { instance, file } -> the script that says, at a switch, what the checks of the build let pass.
{ instance, file }:
''
  if [ -s ${file} ]; then
    echo "${instance.unit}: the checks of the build let this pass:" >&2
    sed 's/^/  /' ${file} >&2
  fi
''
