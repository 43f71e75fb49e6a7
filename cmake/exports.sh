#!/bin/sh
# exports.sh CC HEADER... -- FLAG...: prints the version script of libsinter.so: it exports the functions that the public
# headers declare, and nothing else.
set -e
cc=$1
shift
headers=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    headers="$headers#include \"$1\"
"
    shift
done
[ $# = 0 ] || shift
echo '{ global:'
printf '%s' "$headers" | "$cc" "$@" -E -xc - | grep -vE '^#|^typedef|^static inline' | grep -oE '\bsn_[a-z0-9_]+\(' | tr -d '(' | sort -u | sed 's/$/;/'
echo 'local: *; };'
