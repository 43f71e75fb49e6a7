#!/bin/sh
# house.sh SOURCE_DIR: the tree keeps its structure. Sizes of files, functions and test folders; the direction of
# includes between folders, and the headers that the library of models may include; no switch on op codes, level literal, numbered parameter of emitted code or kernel op
# outside the places that tests/house.txt lists with a bound and a reason. The lines of C, in all and by folder, those of pages, and how
# many files of codegen hold a multiply-add, have bounds, too. The bounds only go down. No name that a folder has retired, and no word that tests/house.txt lists, in names or comments of C or in pages.
# house.sh --self-check: plants a violation of each kind into a small tree and expects to be told of it.
max_file=800 max_function=80 max_tests=30

# check DIR: prints what is wrong; 1 if anything is
check() (
    cd "$1" || exit 2
    find . \( -name '.git' -o -path './build*' \) -prune -o -type f \( -name '*.[ch]' -o -name '*.hpp' -o -name '*.def' -o -name '*.sh' \
        -o -name '*.py' -o -name '*.md' -o -name CMakeLists.txt -o -path './tests/*' \) -print |
        sed 's|^\./||' | LC_ALL=C sort >"$list"
    awk -F/ -v most=$max_tests '
        $1 == "tests" && $2 != "data" { sub(/\/[^\/]*$/, ""); n[$0]++ }
        END { for (d in n) if (n[d] > most) { print d ": " n[d] " files; a folder of tests has at most " most; bad = 1 }
              exit bad }' "$list"
    sizes=$?
    ops=$(sed -n 's/^COMPUTES(\([a-z_]*\),.*/\1/p' passes/kernels/kernels.def | paste -sd '|')
    grep -E '\.([ch]|hpp|def|sh|py|md)$|CMakeLists\.txt$' "$list" |
        LC_ALL=C xargs awk -v max_file=$max_file -v max_function=$max_function -v ops="$ops" "$rules" tests/house.txt
    [ $? = 0 ] && [ $sizes = 0 ]
)

# shellcheck disable=SC2016
rules='
function bad(where, what) { print where ": " what; failed = 1 }
# One more of what is allowed `bound` times at this place, if at all.
function found(kind, place, what) {
    count[kind " " place]++
    if (count[kind " " place] > bound[kind " " place] + 0) bad(FILENAME ":" FNR, what)
}
function end_file() {
    if (file ~ /\.([ch]|def)$/ && from != "tests") {
        count["lines all"] += last; count["lines " from] += last
        if (file == from "/" part[2]) count["lines " from "/"] += last
    }
    if (file ~ /\.md$/) count["lines pages"] += last
    if (file == "" || last <= max_file || file !~ /\.([ch]|def|sh|py|md)$/) return
    bad(file, last " lines; a file has at most " max_file)
}
# A file of folder `from` reads one of folder `to`.
function include(to, name) {
    if (from == to || from == "tests" || from == "examples" || !(to in reads)) return
    if (from in limited && name ~ /\.h/ && !((from, name) in public))
        found("private", name, from "/ uses what other programs may, and " name " is none of that")
    if (index(" " reads[from] " ", " " to " ")) return
    found("include", FILENAME ">" name, from "/ must not include " name " (see the folders in tests/house.txt)")
}
# The code of a line, without comments and strings.
function code_of(line,    code) {
    gsub(/\\./, "", line)
    gsub(/"[^"]*"/, "", line)
    for (code = ""; line != "";) {
        if (in_comment) {
            if (!(at = index(line, "*/"))) return code
            line = substr(line, at + 2); in_comment = 0
        }
        at = match(line, /\/[\/*]/)
        code = code " " (at ? substr(line, 1, at - 1) : line)
        in_comment = at && substr(line, at, 2) == "/*"
        line = in_comment ? substr(line, at + 2) : ""
    }
    return code
}
# Refuses words that are listed for lines of this kind.
function read_words(kind, line,    word, place) {
    if (!(kind in words) || !match(line, "(^|[^A-Za-z0-9])(" words[kind] ")([^A-Za-z0-9]|$)")) return
    word = substr(line, RSTART, RLENGTH); gsub(/^[^A-Za-z0-9]|[^A-Za-z0-9]$/, "", word)
    place = file; sub(/\/[^\/]*$/, "", place); gsub(/ /, "-", word)
    found(kind "-" word, place, "no " kind " says \"" word "\": " instead[kind, word])
}
# Is the name retired in this file?
function is_retired(name,    i, n, folder) {
    n = split(retired[name], folder, " ")
    for (i = 1; i <= n; i++) if (index(FILENAME, folder[i]) == 1) return 1
    return 0
}
FILENAME == "tests/house.txt" {
    if ($1 == "folder") { name = $2; $1 = $2 = ""; reads[name] = $0 }
    else if ($1 == "public") { limited[$2]; for (i = 3; i <= NF; i++) public[$2, $i] }
    else if ($1 == "retired") for (i = 3; i <= NF; i++) { retired[$i] = retired[$i] " " $2; gsub(/,/, " ", retired[$i]) }
    else if ($1 == "word") {
        instead[$2, $3] = substr($0, index($0, $4)); gsub(/-/, " ", $3)
        words[$2] = words[$2] (words[$2] == "" ? "" : "|") $3
    }
    else if (NF && $1 !~ /^#|^room$|^circle$/) { # rooms and circles: tests/rooms.py
        bound[$1 " " $2] = $3
        if (NF < 4) bad(FILENAME ":" FNR, "no reason given")
    }
    next
}
FNR == 1 {
    end_file()
    in_comment = is_code = 0; carried = ""
    file = FILENAME; split(file, part, "/"); from = part[1]; inside = fresh = 0
    c_file = file ~ /\.([ch]|hpp)$/; product = c_file && from != "tests" && from != "examples"
    compiler = product && (from == "passes" || from == "codegen")
    if (product && !(from in reads)) bad(file, "the folder " from "/ has no row in tests/house.txt")
}
{ last = FNR }
/\.\.\/[a-z]+\// && file ~ /CMakeLists\.txt$/ { match($0, /\.\.\/[a-z]+\//); to = substr($0, RSTART + 3, RLENGTH - 4); include(to, to) }
c_file || file ~ /\.def$/ {
    line = $0; sub(/^ *(\/?\*|\/\/)? */, "", line)
    read_words("comment", carried " " line)
    carried = line ~ /\*\/ *$/ ? "" : line; sub(/.* /, "", carried)
    code = code_of($0)
    read_words("name", code)
}
file ~ /\.md$/ {
    if (/^```/) is_code = !is_code
    else if (!is_code) read_words("page", carried " " $0)
    carried = $0; sub(/.* /, "", carried)
}
!c_file { next }
/^#include "[a-z]+\// { split($2, piece, "[\"/]"); gsub(/"/, "", $2); include(piece[2], $2) }
/^ *\*\/$/ { bad(FILENAME ":" FNR, "*/ alone on a line: end the comment on its last line") }
!inside && /^[A-Za-z_]/ { head = FNR; is_function = /\(/ && !/=/; name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name) }
!inside && is_function && /\{$/ { inside = 1 }
/^\}/ {
    if ($0 == "}" && inside && FNR - head + 1 > max_function) {
        row = "function " file ":" name; count[row] = FNR - head + 1
        if (count[row] > bound[row] + 0)
            bad(file ":" head, name " has " count[row] " lines; a function has at most " max_function)
    }
    inside = 0
}
!product { next }
/switch \(/ { fresh = 1 }
/case SN_OP_[a-z]/ && fresh { fresh = 0; found("op-switch", file, "switch on op codes: make it a column or rows of a table") }
/em_param\([a-z>-]+, [0-9]/ { n = gsub(/em_param\([a-z>-]+, [0-9]/, "&")
    while (n-- > 0) found("em-param", from, "parameter of emitted code by number: give it a name") }
{
    n = split(code, identifier, /[^A-Za-z0-9_]+/)
    for (i = 1; i <= n; i++) if (identifier[i] in retired && is_retired(identifier[i]))
        bad(FILENAME ":" FNR, identifier[i] " is a retired name: docs/glossary.md has the terms")
}
compiler && /level (<|>|<=|>=|==|!=) -?[0-9]/ { found("level", file, "level literal: ask the table of fusion levels") }
compiler && match($0, "SN_OP_(" ops ")[^a-z_]") { found("kernel-op", from, "names a kernel op: ask its row in the table of kernels") }
from == "codegen" && /em_fma\(/ && with_fma != file { with_fma = file; found("em_fma", from, "one more file with a multiply-add: share it") }
from == "codegen" { n = gsub(/em_i64\(e, [01]\)/, "&")
    while (n-- > 0) found("em_i64-0-1", from, "loops from 0 by 1: give them a word") }
END {
    end_file()
    for (row in bound) if (row ~ /^lines / && count[row] > bound[row])
        bad("tests/house.txt", count[row] " " row "; the bound is " bound[row] " and only falls")
    for (row in bound) {
        if (!(row in count)) { bad("tests/house.txt", "nothing needs the row \"" row "\" any more: delete it"); continue }
        if (count[row] < bound[row]) print "tests/house.txt: the bound of \"" row "\" can go down to " count[row]
    }
    exit failed
}'

# A small tree without fault.
plant_clean() {
    rm -rf "$tree"
    mkdir -p "$tree/ir" "$tree/passes/kernels" "$tree/codegen" "$tree/docs" "$tree/tests/ir"
    printf 'folder ir\nfolder passes ir\nfolder codegen ir passes\nfolder model ir\npublic model ir/a.h\nlevel passes/a.c 1 known\nword name worn new\nword name WORN new\nword comment of-which whose\nword page shall must\nretired ir,codegen/b old_name\n' >"$tree/tests/house.txt"
    printf 'COMPUTES(gemm, gemm)\nCOMPUTES(cumsum, cumsum)\n' >"$tree/passes/kernels/kernels.def"
    printf '#include "ir/a.h"\nint f(int level) {\n    return level >= 2;\n}\n' >"$tree/passes/a.c"
    printf '/* old_name,\n * old_name */\nint f(int level); // "old_name"\n' >"$tree/ir/a.h"
    printf 'A\n```\nshall\n```\n' >"$tree/docs/glossary.md"
}

lines() { awk -v n="$1" -v text="$2" 'BEGIN { while (n-- > 0) print text }'; }

# expect PATTERN: the planted tree is refused, for this reason alone
expect() {
    if check "$tree" >"$tree.out" || [ "$(grep -c . "$tree.out")" != 1 ] || ! grep -q -e "$1" "$tree.out"; then
        echo "FAILED: not caught, or not alone: $1"
        cat "$tree.out"
        failed=1
    fi
    plant_clean
}

self_check() {
    failed=0 tree=$tmp/tree
    plant_clean
    check "$tree" || { echo "FAILED: the clean tree is refused" && failed=1; }
    for name in ir/a.c ir/a.def tests/a.sh bench.py README.md; do
        lines 801 '# a' >"$tree/$name"
        expect "$name: 801 lines"
    done
    { echo 'static int *f(int a,'; echo '              int b) {'; lines 78 '    a++;'; echo '}'; } >"$tree/ir/a.c"
    expect 'ir/a.c:1: f has 81 lines'
    for i in $(seq 31); do echo >"$tree/tests/ir/$i.sn"; done
    expect 'tests/ir: 31 files'
    echo '#include "passes/a.h"' >"$tree/ir/a.c"
    expect 'ir/a.c:1: ir/ must not include passes/a.h'
    mkdir "$tree/model" && printf '#include "ir/a.h"\n#include "ir/b.h"\n' >"$tree/model/a.c"
    expect 'model/a.c:2: model/ uses what other programs may'
    echo 'add_library(ir ../passes/a.c)' >"$tree/ir/CMakeLists.txt"
    expect 'ir/ must not include passes'
    mkdir "$tree/tools" && echo 'int a;' >"$tree/tools/a.c"
    expect 'the folder tools/ has no row'
    printf 'void f(int a) {\n    switch (a) {\n    default: break;\n    case SN_OP_add: break;\n    }\n}\n' >"$tree/ir/a.c"
    expect 'ir/a.c:4: switch on op codes'
    echo 'int *a = em_param(e, 3);' >"$tree/codegen/a.c"
    expect 'codegen/a.c:1: parameter of emitted code by number'
    echo 'int a = p->o.level < 4;' >>"$tree/passes/a.c"
    expect 'passes/a.c:5: level literal'
    echo 'int a = SN_OP_cumsum;' >"$tree/codegen/a.c"
    expect 'codegen/a.c:1: names a kernel op'
    echo 'int a = em_fma(e);' >"$tree/codegen/a.c"
    expect 'codegen/a.c:1: one more file with a multiply-add'
    echo 'int a = em_i64(e, 1);' >"$tree/codegen/a.c"
    expect 'codegen/a.c:1: loops from 0 by 1'
    echo 'lines passes/ 3 known' >>"$tree/tests/house.txt"
    expect '4 lines passes/; the bound is 3 and only falls'
    echo 'lines pages 3 known' >>"$tree/tests/house.txt"
    expect '4 lines pages; the bound is 3 and only falls'
    printf 'int a = 0; /* x */ int old_name;\n' >"$tree/ir/a.c"
    expect 'ir/a.c:1: old_name is a retired name'
    mkdir "$tree/codegen/b" && echo 'puts("old_name"), b->old_name();' >"$tree/codegen/b/b.c"
    expect 'codegen/b/b.c:1: old_name is a retired name'
    for text in 'int sn_worn_a;' 'int a = WORN;' '/* in a tree, of which\n * each */' 'A("each of which")'; do
        printf '%b\n' "$text" >"$tree/ir/a.def"
        expect 'ir/a.def:[12]: no \(name says "\(worn\|WORN\)": new\|comment says "of-which": whose\)'
    done
    printf 'It\nshall.\n' >"$tree/docs/glossary.md"
    expect 'docs/glossary.md:2: no page says "shall": must'
    printf '/* a\n */\n' >"$tree/ir/a.c"
    expect 'ir/a.c:2: \*/ alone on a line'
    echo 'int f(int level);' >"$tree/passes/a.c"
    expect 'nothing needs the row "level passes/a.c"'
    echo 'level passes/a.c 1' >>"$tree/tests/house.txt"
    expect 'no reason given'
    [ $failed = 0 ] && echo "each kind of violation is caught"
}

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
list=$tmp/list
case $1 in
--self-check) self_check ;;
*) check "$1" && echo "the structure is kept" ;;
esac
