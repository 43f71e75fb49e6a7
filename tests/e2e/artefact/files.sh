#!/bin/sh
# Files in whole/ends.o: those of its tokenizer, as beside a program; linkers drop them where they are not used. A program in C
# encodes a text with them.
# usage: files.sh CC SOURCE SINTER
set -eu
cc=$1 source=$2 sinter=$3
for list in -DLIST -ULIST; do
    $cc -std=c11 -Wall -Wextra -Wpedantic -Werror $list "$source/tests/e2e/artefact/files.c" -Iwhole whole/ends.o -Wl,--gc-sections -lgomp -lm -o files$list
    ./files$list
done
for file in tokenizer.tables generation_config.json; do
    ./files-DLIST ends.tokenizer/$file >$file
done
cmp tokenizer.tables moved/story.tokenizer/tokenizer.tables
cmp generation_config.json folder/generation_config.json
if readelf -SW whole/ends.o | grep '[.]rodata' | grep -q ' WA '; then
    echo "a constant can be written" >&2
    exit 1
fi
saved=$(($(wc -c <files-DLIST) - $(wc -c <files-ULIST)))
if [ $saved -lt "$(wc -c <tokenizer.tables)" ]; then
    echo "files that are not used take space: $saved bytes less without them" >&2
    exit 1
fi
build=$(dirname "$sinter")/.. sanitize=
if grep -q __asan_init "$sinter"; then sanitize='-fsanitize=address,undefined'; fi
$cc $sanitize -std=c11 -Wall -Wextra -Wpedantic -Werror "$source/tests/e2e/artefact/tokenizer.c" -I"$build/api" -Iwhole whole/ends.o \
    "$build/model/libsinter_text.a" "$build/runtime/libsinter_rt.a" -lpcre2-8 -lutf8proc -lcjson -lxxhash -lgomp -lm -o encode
text="Once upon a time, Zoë said: 1 €!"
[ "$(./encode "$text")" = "$(printf %s "$text" | "$sinter" tokenizer encode folder)" ]
