#!/bin/sh
# man3.sh VERSION DIR INCLUDE=HEADER…: a manual page of section 3 for each public header, sinter-NAME.3 (libsinter.3 for
# sinter.h), and for each function a page that refers to it.
set -eu
version=$1 dir=$2 here=$(dirname "$0")
shift 2
rm -rf "$dir"
mkdir -p "$dir"
for pair in "$@"; do
    include=${pair%%=*} header=${pair#*=}
    name=$(basename "$header" .h)
    page=sinter-$name
    [ "$name" != sinter ] || page=libsinter
    : >"$dir/names"
    awk -v page="$page" -v include="$include" -v version="$version" -v names="$dir/names" -f "$here/man3.awk" "$header" >"$dir/$page.3"
    while read -r function; do
        [ -e "$dir/$function.3" ] || echo ".so man3/$page.3" >"$dir/$function.3"
    done <"$dir/names"
done
rm -f "$dir/names"
