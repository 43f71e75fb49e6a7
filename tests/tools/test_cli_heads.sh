#!/bin/sh
# test_cli_heads.sh SINTER SOURCE_DIR WRITE: what classify, answer and fill print of texts. WRITE NAME KEY JSON DIR makes
# the folder of a tiny encoder (tests/e2e/test_text_heads.c, which checks the values).
sinter=$1 write=$3
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}" LC_ALL=C.UTF-8
. "$2/tests/tools/cli_run.sh"
text='Twelve  eleven twelve'
p='0\.[0-9]*'

# model FAMILY [KEY JSON]: the folder $tmp/m
model() {
    rm -rf "$tmp/m" && mkdir "$tmp/m"
    "$write" write "$1" "${2-}" "${3-}" "$tmp/m" || fail "no folder for $1"
}
# lines N: of what was printed
lines() { [ "$(wc -l <"$tmp/out")" = "$1" ] || fail "not $1 lines: $what"; }
# number NAME: of the first object
number() { sed -n "1s/.*\"$1\": \([-0-9.e]*\).*/\1/p" "$tmp/out"; }
# near A B: to the five digits of a line
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a - b < 1e-5 && b - a < 1e-5) }' || fail "$1, not $2: $what"; }

model distilbert_tokens
run 0 classify "$tmp/m" -p "$text"
lines 3
for word in '0\.\.6  Twelve' '8\.\.14  eleven' '15\.\.21  twelve'; do prints "^[0-2]  $p  $word\$"; done
first=$(sed -n '1s/^[0-2]  \([0-9.]*\)  .*/\1/p' "$tmp/out")
run 0 classify "$tmp/m" -p "$text" --json
lines 1
prints '^{"input": "Twelve  eleven twelve", "entities": \[{"id": [0-2], "label": "", "p": '
for word in '0, "end": 6, "text": "Twelve"' '8, "end": 14, "text": "eleven"' '15, "end": 21, "text": "twelve"'; do
    prints "{\"id\": [0-2], \"label\": \"\", \"p\": $p, \"begin\": $word}"
done
near "$(sed 's/.*\[{"id": [0-2], "label": "", "p": \([0-9.]*\).*/\1/' "$tmp/out")" "$first"
refused 2 'a classifier of tokens reads one text' classify "$tmp/m" -p a --second b
printf 'six\nTwelve one\n' >"$tmp/texts"
run 0 classify "$tmp/m" -f "$tmp/texts"
lines 3
refused 2 'this model is a classifier: use sinter classify' fill "$tmp/m" -p six
model distilbert_tokens id2label '{"0": "B-X", "1": "B-Y", "2": "B-Z"}'
run 0 classify "$tmp/m" -p "$text"
prints "^[XYZ]  $p  0\.\.6  Twelve\$"

model distilbert_classes
run 0 classify "$tmp/m" -p "$text" --json
lines 1
prints "^{\"input\": \"Twelve  eleven twelve\", .*\"p\": $p"
one=$(number p)
run 0 classify "$tmp/m" -p "$text"
near "$(sed 's/.*  *\([0-9.]*\)$/\1/' "$tmp/out")" "$one"
run 0 classify "$tmp/m" -p "$text" --second 'six four' --json
[ "$(number p)" != "$one" ] || fail 'the second text has no effect'
run 0 classify "$tmp/m" -f "$tmp/texts"
lines 2
model distilbert_classes problem_type '"multi_label_classification"'
run 0 classify "$tmp/m" -p "$text"
lines 1
awk '{ for (i = 2; i <= NF; i += 2) { if ($i < 0.5 && NF > 2) exit 1 } }' "$tmp/out" || fail "a class of less than 1/2: $what"
refused 2 'use sinter classify' fill "$tmp/m" -p six

model distilbert_spans
run 0 answer "$tmp/m" -q 'Sixteen one' -p "$text" --top 2
lines 2
best=$(sed -n '1s/^\([0-9.]*\)  .*/\1/p' "$tmp/out")
place=$(sed -n '1s/^[0-9.]*  \([0-9]*\)\.\.\([0-9]*\)  .*/\1 \2/p' "$tmp/out")
run 0 answer "$tmp/m" -q 'Sixteen one' -p "$text" --top 2 --json
lines 2
near "$(number p)" "$best"
[ "$(number begin) $(number end)" = "$place" ] || fail "not at $place: $what"
awk -v t="$text" -v place="$place" 'BEGIN { split(place, at, " ") } NR == 1 {
    exit !index($0, "\"text\": \"" substr(t, at[1] + 1, at[2] - at[1]) "\"}") }' "$tmp/out" || fail "another text: $what"
refused 2 'give a --question' answer "$tmp/m" -p a
refused 2 'give a --question' answer "$tmp/m" -q a
refused 2 'give a --question' answer "$tmp/m" -q a -p b -f "$tmp/texts"
refused 2 'use sinter answer' classify "$tmp/m" -p a

refused 2 'no text: give it with --prompt' fill --preset bert-tiny
refused 2 'this model has no class head' classify --preset bert-tiny -p '5 6'

echo "$cases runs, $failures failures"
[ $failures = 0 ]
