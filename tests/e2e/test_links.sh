#!/bin/sh
# test_links.sh SOURCE_DIR: the documents name things that exist: links lead to files and headings, paths in
# backquotes are files or folders of the tree, and names in the pages for maintainers occur in the sources. No line
# is longer than 120 characters.
cd "$1" || exit 1
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
docs="README.md CONTRIBUTING.md docs/*.md docs/guides/*.md docs/notes/bench-log.md"

# Adds the headings of a file, as the anchors that links use, to $anchors, once.
read_anchors() {
    case $anchors in *" $1#"*) return ;; esac
    anchors="$anchors$(sed -n 's/^##* //p' "$1" | tr '[:upper:]' '[:lower:]' |
        sed "s/[^a-z0-9 _-]//g; s/ /-/g; s|.*| $1#& |" | tr -d '\n') $1# "
}
anchors=

# The text of a document without code blocks.
text() {
    awk '/^```/ { code = !code; next } !code' "$1"
}

for doc in $docs; do
    case $doc in */*) folder=${doc%/*} ;; *) folder=. ;; esac
    for link in $(text "$doc" | grep -oE '\]\([^)]+\)' | sed 's/^](//; s/)$//'); do
        case $link in http*) continue ;; esac
        file=${link%%#*}
        [ -z "$file" ] || [ -e "$folder/$file" ] || fail "$doc: link to $link: there is no such file"
        case $link in *#*)
            file=${file:+$folder/}${file:-$doc}
            read_anchors "$file"
            case $anchors in *" $file#${link#*#} "*) ;; *) fail "$doc: link to $link: there is no such heading" ;; esac
            ;;
        esac
    done
    # paths that begin with a folder of the tree; * stands for any name, NAME and FAMILY for one to be chosen
    for path in $(text "$doc" | grep -oE '`[^` ]+`' | tr -d '`' |
        grep -E '^(bench|cmake|codegen|examples|frontend|ir|passes|runtime|tests|tools)/[a-zA-Z0-9_.*/-]*$'); do
        case $path in *NAME* | *FAMILY* | frontend/ops.h) continue ;; esac # names to choose, and what the build generates
        # shellcheck disable=SC2086
        set -- $path # the files that it stands for
        [ -e "$1" ] || [ -e "$path.c" ] || [ -e "$path.h" ] || fail "$doc: there is no $path"
    done
done

# Names with an underscore in the pages for maintainers occur in the sources.
words=$(mktemp) || exit 1
trap 'rm -f "$words"' EXIT
find ir frontend passes codegen runtime model tools bench tests cmake \( -name '*.[ch]' -o -name '*.def' -o -name '*.txt' \
    -o -name '*.sh' -o -name '*.cmake' \) -exec cat {} + | LC_ALL=C tr -cs 'A-Za-z0-9_' '\n' | LC_ALL=C sort -u >"$words"
for doc in docs/internals.md docs/glossary.md CONTRIBUTING.md; do
    text "$doc" | grep -oE '`[^` ]+`' | tr -d '`' | LC_ALL=C sed 's/[(*].*//' | grep -E '^[a-zA-Z0-9_]+_[a-zA-Z0-9]+$' |
        grep -vE '[A-Z]{4}|softsign' | LC_ALL=C sort -u | LC_ALL=C comm -23 - "$words" | sed "s|^|$doc: no source has the name |" | grep . && failed=1
done

for doc in docs/*.md CONTRIBUTING.md; do
    text "$doc" | LC_ALL=C.UTF-8 grep -nE '^.{121}' | sed "s|^|$doc: longer than 120: |" | grep . && failed=1
done
[ "$failed" = 0 ] && echo "all links and paths exist"
exit $failed
