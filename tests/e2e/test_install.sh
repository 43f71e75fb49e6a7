#!/bin/sh
# test_install.sh BUILD_DIR SOURCE_DIR CC [packages]: installs into a folder, moves it, then builds and runs
# against the installation as users of the libraries would: by pkg-config, by find_package, from the
# build tree and by add_subdirectory; the manual pages; a deployed program.
# packages: the same with the contents of the Debian packages, which lintian accepts.
set -e
build=$1 source=$2 cc=$3
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
prefix=$tmp/there
if [ "${4:-}" = packages ]; then
    mkdir "$tmp/packages" && cd "$tmp/packages"
    cpack --config "$build/CPackConfig.cmake" >"$tmp/log" 2>&1 || { tail -20 "$tmp/log"; exit 1; }
    for package in *.deb; do dpkg-deb -x "$package" "$tmp/root"; done
    [ "$(ls ./*.deb | wc -l)" = 5 ]
    dpkg-deb -I libsinter0_*.deb symbols | grep -q '^ sn_compile@Base 0'
    dpkg-deb -f libsinter0_*.deb Depends | grep -q 'libllvm19'
    [ "$(find "$tmp/root/usr/share/doc" -name copyright | wc -l)" = 5 ]
    [ "$(find "$tmp/root/usr/share/man" -type f ! -name '*.gz' | wc -l)" = 0 ]
    if command -v lintian >/dev/null; then lintian --fail-on error,warning ./*.deb; fi
    gunzip -r "$tmp/root/usr/share/man" # for the comparisons below
    mv "$tmp/root/usr" "$prefix"
else
    cmake --install "$build" --prefix "$tmp/first" >"$tmp/log"
    mv "$tmp/first" "$prefix" # nothing in it may know where it was
fi
"$prefix/bin/sinter" --version
pc=$(find "$prefix" -name sinter.pc)
lib=$(dirname "$(dirname "$pc")")
PKG_CONFIG_PATH="$(dirname "$pc")${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
export PKG_CONFIG_PATH XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}"
strict="-std=gnu11 -Wall -Wextra -Werror"

# pkg-config: everything, then the runtime alone, which does not need LLVM
# shellcheck disable=SC2046,SC2086
"$cc" $strict "$source/examples/program.c" -o "$tmp/program" $(pkg-config --cflags --libs sinter)
LD_LIBRARY_PATH="$lib" "$tmp/program" | tail -1
# the library opens a model and generates; it exports public functions only
# shellcheck disable=SC2046,SC2086
"$cc" $strict "$source/examples/generate.c" -o "$tmp/generate" $(pkg-config --cflags --libs sinter)
LD_LIBRARY_PATH="$lib" "$tmp/generate" "$source/examples/models/stories260K/stories260K.bin" "Once upon a time" |
    grep -q ', there was a little girl'
if nm -D --defined-only "$lib/libsinter.so" | grep -v ' [TA] sn_'; then exit 1; fi
# Global names of static libraries. Programs' libraries also have main, the names of the JSON reader that they replace, one
# of a fortified libc, and those that MinGW makes or asks for.
names() { nm -g --defined-only "$@" | awk 'NF == 3 { print $3 }' | grep -v '^sn_'; }
if names "$lib/libsinter_rt.a" "$lib/libsinter_text.a" "$lib/libsinter_plain.a"; then exit 1; fi
for archive in "$lib/libsinter_program.a" "$lib"/libsinter_windows*.a; do
    [ -e "$archive" ] || continue
    if names "$archive" | grep -vE '^(cJSON_[A-Za-z]+|main|__memcpy_chk|_dowildcard|\.refptr\.(sn_[a-z0-9_]+))$'; then exit 1; fi
done
if nm -u "$lib/libsinter_rt.a" | grep 'XXH'; then exit 1; fi # xxHash is inline
mkdir "$tmp/user"
cat >"$tmp/user/user.c" <<'END'
#include <sinter/generation.h>
#include <sinter/sample.h>
#include <sinter/tokenizer.h>
#include <stdio.h>
#include <string.h>
int jinja_free(void); /* a name of the program's own */
int jinja_free(void) {
    return sn_lm_begin(NULL, NULL, NULL) != NULL;
}
int main(void) {
    static const char text[] = "to be or not to be";
    if (jinja_free()) return 1;
    sn_tokenizer *t =
        sn_tokenizer_train(&(sn_train_options){.kind = SN_TRAIN_CHAR}, text, strlen(text), NULL);
    printf("%d tokens\n", t ? (int)sn_tokenizer_vocab_size(t) : 0);
    sn_tokenizer_free(t);
    return 0;
}
END
# shellcheck disable=SC2046,SC2086
"$cc" $strict "$tmp/user/user.c" -o "$tmp/user/user" $(pkg-config --cflags --libs sinter_text)
[ "$("$tmp/user/user")" = "10 tokens" ]
# shellcheck disable=SC2046,SC2086
"$cc" $strict -static "$tmp/user/user.c" -o "$tmp/user/alone" $(pkg-config --cflags --libs sinter_text | sed 's/-lcjson/-lsinter_program -lsinter_plain/')
[ "$("$tmp/user/alone")" = "10 tokens" ]
if ldd "$tmp/user/user" | grep -iE 'llvm|dnnl|libsinter'; then exit 1; fi
[ -e "$lib/libsinter.so.0" ]
objdump -p "$lib/libsinter.so" | grep -q 'SONAME *libsinter.so.0$'
if objdump -p "$lib/libsinter.so" "$prefix/bin/sinter" | grep -E 'RPATH|RUNPATH'; then exit 1; fi
# nothing tells where it was built
if grep -rlaF "$source/" "$prefix/bin" "$lib"; then exit 1; fi

# the examples outside the tree; the headers are the public ones, and each compiles alone
[ "$(ls "$prefix/include")" = sinter ] && [ ! -e "$prefix/include/sinter/ir.h" ]
cp -r "$source/examples" "$tmp/examples"
every=${SN_TEST_LONG:+1} # the default run takes one variant of eight
# shellcheck disable=SC2046,SC2086
"$cc" $strict -fsyntax-only "$tmp"/examples/*.c $(ls "$tmp"/examples/variants/*.c | awk "NR % ${every:-8} == 0") $(pkg-config --cflags sinter)
# shellcheck disable=SC2046
"$cc" -std=c99 -pedantic -Wall -Wextra -Werror -I"$prefix/include" -fsyntax-only -xc $(find "$prefix/include" -name '*.h')

if command -v g++ >/dev/null 2>&1; then
    find "$prefix/include" -name '*.h' | sed 's/.*/#include "&"/' |
        g++ -std=c++17 -pedantic -Wall -Wextra -Werror -I"$prefix/include" -fsyntax-only -xc++ -
    for c in "$tmp"/examples/cpp/*.cpp; do
        # shellcheck disable=SC2046
        g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only "$c" $(pkg-config --cflags sinter)
    done
fi

# CMake: the same project three ways
cat >"$tmp/user/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(user C)
if(SINTER_SOURCE)
  add_subdirectory(${SINTER_SOURCE} sinter EXCLUDE_FROM_ALL)
else()
  find_package(sinter 0.1 REQUIRED CONFIG)
endif()
add_executable(user user.c)
target_link_libraries(user PRIVATE sinter::text)
add_executable(variant EXCLUDE_FROM_ALL ${VARIANT})
target_link_libraries(variant PRIVATE sinter::sinter)
END
project() { # project NAME OPTION…: configures, builds the user of the runtime, runs it
    name=$1
    shift
    cmake -S "$tmp/user" -B "$tmp/$name" -G Ninja -DCMAKE_C_COMPILER="$cc" -DVARIANT="$source/examples/program.c" \
        "$@" >"$tmp/log" 2>&1 || { tail -20 "$tmp/log"; exit 1; }
    cmake --build "$tmp/$name" --target user >"$tmp/log" 2>&1 || { tail -20 "$tmp/log"; exit 1; }
    [ "$("$tmp/$name/user")" = "10 tokens" ]
}
for way in "prefix -DCMAKE_PREFIX_PATH=$prefix" "tree -Dsinter_DIR=$build/cmake"; do
    # shellcheck disable=SC2086
    project $way
    cmake --build "$tmp/${way%% *}" --target variant >"$tmp/log" 2>&1 || { tail -20 "$tmp/log"; exit 1; }
    "$tmp/${way%% *}/variant" | tail -1
done
[ -z "$every" ] || # builds the libraries once more
    project subdirectory "-DSINTER_SOURCE=$source" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-O0
# a project in C++ alone that compiles a model
mkdir "$tmp/story" && cp "$source/examples/deploy/next.cc" "$source"/examples/models/stories260K/*.bin "$tmp/story"
cat >"$tmp/story/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(story_user CXX)
find_package(sinter 0.1 REQUIRED CONFIG)
sinter_compile(story MODEL stories260K.bin TARGETS x86-64-v2 x86-64-v3
               OPTIONS --tokenizer ${CMAKE_CURRENT_SOURCE_DIR}/tok512.bin DEPENDS tok512.bin)
add_executable(next next.cc)
target_link_libraries(next PRIVATE story sinter::rt)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/weights ${story_WEIGHTS})
END
[ "$(uname -m)" = x86_64 ] || sed -i 's/TARGETS .*/TARGETS native/' "$tmp/story/CMakeLists.txt"
story() { # builds it; what happened is in the log
    cmake --build "$tmp/made" >"$tmp/log" 2>&1 || { tail -20 "$tmp/log"; exit 1; }
}
cmake -S "$tmp/story" -B "$tmp/made" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >"$tmp/log" 2>&1 || { tail -20 "$tmp/log"; exit 1; }
story
[ "$("$tmp/made/next" "$(cat "$tmp/made/weights")" 1 403 407)" = 261 ]
story && grep -q 'no work to do' "$tmp/log"
touch "$tmp/story/stories260K.bin"
story && grep -q 'Generating story/story.o' "$tmp/log"

# the Python module finds the library that it was installed with
if python3 -c 'import numpy' 2>/dev/null; then
    PYTHONPATH="$prefix/share/sinter/python:$prefix/lib/python3/dist-packages" python3 -c "
import sinter
print(sinter.Model('$source/examples/models/stories260K/stories260K.bin').generate('Once upon a time', tokens=9))"
fi

# manual pages, one for each command, that a formatter accepts
[ "$(find "$prefix/share/man/man1" -name 'sinter-*.1' ! -name 'sinter-bench-*' | wc -l)" = "$("$prefix/bin/sinter" --help | grep -c '^  [a-z]*  ')" ]
[ -s "$prefix/share/man/man1/sinter-bench-model.1" ]
for section in EXAMPLES ENVIRONMENT FILES 'EXIT STATUS' 'SEE ALSO'; do
    if grep -L "SH $section" "$prefix"/share/man/man1/sinter-*.1 | grep .; then exit 1; fi
done
grep -q '^.fBperplexity.fR (number)' "$prefix/share/man/man1/sinter-eval.1"
# the library: a page for each public header, and one for each function
grep -q '^sn_program .sn_compile(sn_module' "$prefix/share/man/man3/sinter-compile.3"
grep -q '^.BR sinter-compile (3)' "$prefix/share/man/man3/sn_compile.3"
grep -q '^.BR sinter-ops (3)' "$prefix/share/man/man3/sn_softmax.3"
grep -q '^#define sn_attention(' "$prefix/share/man/man3/sn_attention.3"
[ "$(wc -l <"$prefix/share/man/man3/sn_attention.3")" -lt 40 ]
grep -q 'include <sinter/sinter.h>' "$prefix/share/man/man3/libsinter.3"
grep -q -- 'embed.-weights' "$prefix/share/man/man1/sinter-compile.1"
if command -v groff >/dev/null 2>&1; then
    groff -man -ww -z -Tutf8 -Kutf8 "$prefix"/share/man/man1/*.1 "$prefix"/share/man/man3/*sinter*.3 \
        "$prefix"/share/man/man3/sn_a*.3 2>&1 | grep -v 'cannot' >"$tmp/log" || :
    if [ -s "$tmp/log" ]; then cat "$tmp/log"; exit 1; fi
fi

# every link of the installed pages leads to a file
doc=$(dirname "$(find "$prefix/share" -name README.md | grep -v '/docs/')")
for page in "$doc"/*.md "$doc"/docs/*.md "$doc"/docs/notes/*.md; do
    awk '/^```/ { code = !code } !code' "$page" | grep -o ']([^)#]*' | cut -c3- | grep -v -e '^https:' -e '^$' | while read -r link; do
        [ -e "${page%/*}/$link" ] || { echo "$page: dead link $link"; exit 1; }
    done
done
"$prefix/bin/sinter" run "$doc/examples/variants/alibi.c" | grep 'parameters in'

# --peers runs the installed scripts
mkdir "$tmp/fake"
# shellcheck disable=SC2016
printf '#!/bin/sh\necho "$1" >>"%s/asked"\nexit 1\n' "$tmp" >"$tmp/fake/node"
chmod +x "$tmp/fake/node"
PATH="$tmp/fake:$PATH" "$prefix/bin/sinter" bench gemm --shape 8,8,8 --rounds 5 --seconds 0.001 --no-check --peers onnxruntime >"$tmp/log" 2>&1 || :
grep -q "^$prefix/share/sinter/peers/ort_peer.js$" "$tmp/asked"

# a program, linked with what is installed
"$prefix/bin/sinter" compile "$source/examples/models/stories260K/stories260K.bin" \
    --tokenizer "$source/examples/models/stories260K/tok512.bin" --name story -o "$tmp/out" --exe
"$tmp/out/story" -p "Once upon a time" -n 12 --temperature 0
if command -v x86_64-w64-mingw32-gcc >/dev/null; then
    "$prefix/bin/sinter" compile "$source/examples/models/stories260K/stories260K.bin" \
        --tokenizer "$source/examples/models/stories260K/tok512.bin" --name story -o "$tmp/out" --exe --target x86-64-v2,os=windows
    [ "$(head -c 2 "$tmp/out/story.exe")" = MZ ]
fi
