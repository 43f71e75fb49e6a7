#!/bin/sh
# Files in whole/ends.o: those of its tokenizer, as beside a program; linkers drop them where they are not used.
# usage: files.sh CC SOURCE
set -eu
cc=$1 source=$2
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
