#!/bin/bash
# makeWrapper PROGRAM WRAPPER [--set K V] [--set-default K V] [--prefix K SEP V] [--suffix K SEP V] [--unset K]
set -euo pipefail
program=$1 wrapper=$2
shift 2
mkdir -p "$(dirname "$wrapper")"
{
  echo '#!/bin/bash -e'
  while [ $# -gt 0 ]; do
    case $1 in
      --set) printf 'export %s=%q\n' "$2" "$3"; shift 3 ;;
      --set-default) printf 'export %s=${%s-%q}\n' "$2" "$2" "$3"; shift 3 ;;
      --prefix) printf 'export %s=%q${%s:+%q$%s}\n' "$2" "$4" "$2" "$3" "$2"; shift 4 ;;
      --suffix) printf 'export %s=${%s:+$%s%q}%q\n' "$2" "$2" "$2" "$3" "$4"; shift 4 ;;
      --unset) printf 'unset %s\n' "$2"; shift 2 ;;
      *) echo "makeWrapper: unknown option $1" >&2; exit 1 ;;
    esac
  done
  printf 'exec %q "$@"\n' "$program"
} > "$wrapper"
chmod +x "$wrapper"
