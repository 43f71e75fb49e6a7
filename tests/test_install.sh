#!/bin/sh
# test_install.sh BUILD_DIR SOURCE_DIR CC: installs into a folder, then builds and runs an example
# against what lies there, as a user of the library would.
set -e
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cmake --install "$1" --prefix "$tmp" >"$tmp/log"
"$tmp/bin/sinter" --version
pc=$(find "$tmp" -name sinter.pc)
sed -i "s|^prefix=.*|prefix=$tmp|" "$pc"
export PKG_CONFIG_PATH="$(dirname "$pc")" XDG_CACHE_HOME="$tmp/cache"
# shellcheck disable=SC2046
"$3" -std=gnu11 -Wall -Wextra -Werror "$2/examples/variant.c" -o "$tmp/variant" $(pkg-config --cflags --libs sinter)
LD_LIBRARY_PATH="$(dirname "$(dirname "$pc")")" "$tmp/variant" | tail -1
# every installed header stands alone, in C and in C++ if there is a compiler
find "$tmp/include" -name '*.h' | while read -r h; do
    echo "#include \"$h\"" | "$3" -std=gnu11 -Wall -Wextra -Werror -I"$tmp/include/sinter" -fsyntax-only -xc -
done
