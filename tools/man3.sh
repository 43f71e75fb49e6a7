#!/bin/sh
# man3.sh VERSION DIR INCLUDE=HEADER…: a manual page of section 3 for each public header, sinter-NAME.3 (libsinter.3 for
# sinter.h), and for each function a short page that refers to it.
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
    awk -v page="$page" -v include="$include" -v version="$version" -v dir="$dir" -f "$here/man3.awk" "$header" >"$dir/$page.3"
done
