#!/bin/sh
# man.sh SINTER DIR: a manual page for the program and for each of its commands, out of what
# --help prints, so that there is one text of it.
set -eu
sinter=$1 dir=$2
version=$("$sinter" --version)
rm -rf "$dir"
mkdir -p "$dir"

# page NAME COMMAND…: stdin is the help text
page() {
    awk -v name="$1" -v version="$version" '
    function clean(s) { gsub(/\\/, "\\e", s); gsub(/-/, "\\-", s); sub(/^[.'"'"']/, "\\\\\\&&", s); return s }
    NR == 1 {
        what = $0
        sub(/^[^:]*: */, "", what)
        printf ".TH %s 1 \"\" \"%s\" \"Sinter\"\n.SH NAME\n%s \\- %s\n", toupper(name), version, name, clean(what)
        next
    }
    /^usage: / { print ".SH SYNOPSIS"; print clean(substr($0, 8)); part = "places"; next }
    /^options:/ { print ".SH OPTIONS"; part = "options"; next }
    /^$/ {
        if (part == "options") { print ".SH DESCRIPTION"; part = "text" }
        else if (part == "text") print ".PP"
        else if (part == "places") print ".PP"
        fill = 0
        next
    }
    part == "options" && /^ *-/ {
        line = $0
        sub(/^ */, "", line)
        if (match(line, /  +| [^ ]*$/) && match(line, /  +/)) { flag = substr(line, 1, RSTART - 1); text = substr(line, RSTART + RLENGTH) }
        else if (length(line) >= 22 && match($0, /^.{29} /)) { flag = substr($0, 1, 29); sub(/^ */, "", flag); text = substr($0, 31) }
        else { flag = line; text = "" }
        printf ".TP\n\\fB%s\\fR\n%s\n", clean(flag), clean(text)
        next
    }
    part == "options" { sub(/^ */, ""); print clean($0); next }
    /^  / { printf ".nf\n%s\n.fi\n", clean($0); next }
    { print clean($0) }
    END { if (name != "sinter") print ".SH SEE ALSO\n.BR sinter (1)" }
    ' >"$dir/$1.1"
}

"$sinter" --help | page sinter
"$sinter" --help | awk '/^usage:/ {on = 1; next} on && /^  [a-z]+  / {print $1}' | while read -r command; do
    "$sinter" "$command" --help | page "sinter-$command"
done
