#!/bin/sh
# test_tutorial.sh SINTER SOURCE_DIR: follows docs/tutorial.md. Its blocks "c FILE" are files,
# "c FILE: NAME" replace the function NAME in one; in blocks "console" the lines after
# "$ COMMAND" must be printed by it, in this order; "…" matches anything.
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/bin" "$tmp/here"
ln -s "$1" "$tmp/bin/sinter"
ln -s "$2/examples" "$tmp/here/examples"
export PATH="$tmp/bin:$PATH" XDG_CACHE_HOME="$tmp/cache" LC_ALL=C.UTF-8
cd "$tmp/here" || exit 1
awk '
function fail(why) { print FILENAME ":" FNR ": " why; failures++ }
# Whether the line contains the pieces between "…" in order.
function alike(line, want,   n, i, part, at) {
    n = split(want, part, "…")
    if (n == 1) return line == want
    if (substr(line, 1, length(part[1])) != part[1]) return 0
    for (i = 1; i <= n; i++) {
        at = index(line, part[i])
        if (part[i] != "" && !at) return 0
        line = substr(line, at + length(part[i]))
    }
    return 1
}
function finish(   line, i) {
    if (!command) return
    i = 1
    while (i <= n_want && want[i] == "…") i++
    while ((getline line < "../out") > 0)
        if (i <= n_want && alike(line, want[i]))
            for (i++; i <= n_want && want[i] == "…"; i++) {}
    close("../out")
    if (i <= n_want) {
        fail("\"" command "\" does not print \"" want[i] "\", but:")
        system("cat ../out")
    }
    command = ""
}
# Replaces a function by the block: from the line with its name to the first "}".
function replace(file, name, text,   line, all, inside, done) {
    while ((getline line < file) > 0) {
        if (!done && line ~ "^static .*[ *]" name "\\(") { inside = done = 1; all = all text }
        if (!inside) all = all line "\n"
        if (line == "}") inside = 0
    }
    close(file)
    if (!done) fail("no function " name " in " file)
    printf "%s", all > file
    close(file)
}
/^```/ && block == "c" { if (name) replace(file, name, text); else { printf "%s", text > file; close(file) } block = ""; next }
/^```/ && block == "console" { finish(); block = ""; next }
/^```c [a-z]/ { block = "c"; file = $2; sub(":$", "", file); name = $3; text = ""; next }
/^```console/ { block = "console"; next }
/^```/ { block = block == "other" ? "" : "other"; next }
block == "c" { text = text $0 "\n" }
block == "console" && /^\$ / {
    finish()
    command = substr($0, 3); n_want = 0; commands++
    system("{ " command " ; } >../out 2>&1")
    next
}
block == "console" { want[++n_want] = $0 }
END { print commands " commands, " failures + 0 " failures"; exit failures > 0 || commands < 5 }
' "$2/docs/tutorial.md"
