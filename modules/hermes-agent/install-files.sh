# install-files MODE TREE TARGET LIST
#
# Every file of TREE is written to TARGET. LIST keeps the hashes of what was written, so that a file that is no
# longer in TREE is removed, but not one that somebody changed since.
set -euo pipefail
mode=$1 tree=$2 target=$3 list=$4
mkdir -p -- "$(dirname "$list")"

if [ -f "$list" ]; then
  while read -r sum file; do
    if [ ! -e "$tree/$file" ] && [ -f "$target/$file" ]; then
      found=$(sha256sum < "$target/$file")
      if [ "$found" = "$sum  -" ]; then rm -- "$target/$file"; fi
    fi
  done < "$list"
fi

written=$(mktemp "$list.XXXXXX")
trap 'rm -f -- "$written"' EXIT
while IFS= read -r -d '' file; do
  install -D -m "$mode" -- "$tree/$file" "$target/$file"
  (cd "$tree" && sha256sum -- "$file") >> "$written"
done < <(find "$tree" -type f -printf '%P\0' | sort -z)
if [ -s "$written" ]; then mv -- "$written" "$list"; else rm -f -- "$list"; fi
