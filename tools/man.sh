#!/bin/sh
# man.sh SINTER DIR: generates a manual page for the program and each of its commands from
# --help.
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
    /^examples:/ { print ".SH EXAMPLES"; part = "examples"; fill = 0; next }
    /^json:/ { print ".SH \"JSON OUTPUT\"\nThe keys of each object that \\-\\-json prints:"; part = "json"; next }
    part == "json" && /^  / {
        line = $0
        sub(/^ */, "", line)
        key = line; sub(/ .*/, "", key)
        type = substr(line, length(key) + 1); sub(/^ */, "", type)
        help = type; sub(/ .*/, "", type); sub(/^[^ ]* */, "", help)
        printf ".TP\n\\fB%s\\fR (%s)\n%s\n", clean(key), clean(type), clean(help)
        next
    }
    /^$/ {
        if (part == "examples" || part == "json") next
        if (part == "options") { print ".SH DESCRIPTION"; part = "text" }
        else if (part == "text") print ".PP"
        else if (part == "places") print ".PP"
        fill = 0
        next
    }
    part == "options" && /^ *-/ {
        line = $0
        sub(/^ */, "", line)
        if (match(line, /  +/)) { flag = substr(line, 1, RSTART - 1); text = substr(line, RSTART + RLENGTH) }
        else { flag = line; text = "" }
        printf ".TP\n\\fB%s\\fR\n", clean(flag)
        if (text != "") print clean(text)
        next
    }
    part == "options" { sub(/^ */, ""); print clean($0); next }
    /^  / { printf ".nf\n%s\n.fi\n", clean($0); next }
    { print clean($0) }
    ' >"$dir/$1.1"
    cat >>"$dir/$1.1" <<'END'
.SH EXIT STATUS
.TP
.B 0
success
.TP
.B 1
failure: a file, a model, memory; bench compare: something is slower than \-\-threshold allows
.TP
.B 2
wrong command line
.TP
.B 130
interrupted by Ctrl\-C; what was finished is kept
.SH ENVIRONMENT
.TP
.B XDG_CACHE_HOME
folder of the folder sinter, where compiled kernels are kept; else ~/.cache
.TP
.B CC, CFLAGS
compile models in C, and link what sinter\-compile makes
.TP
.B OMP_NUM_THREADS, OMP_WAIT_POLICY, OMP_PROC_BIND
number of threads, how they wait, and where they run. Without OMP_WAIT_POLICY and GOMP_SPINCOUNT,
threads that wait spin for about 0.2 ms and then sleep.
.TP
.B NO_COLOR
if set and not empty: no colours, unless \-\-color always asks for them
.TP
.B SINTER_DEBUG
for developers; SINTER_DEBUG=help lists what it takes
.TP
.B TMPDIR
folder for temporary files; else /tmp
.SH FILES
.TP
.I ~/.cache/sinter
compiled kernels, choices of \-\-tune and compiled models in C; may be deleted at any time
.SH SEE ALSO
END
    echo "$2" >>"$dir/$1.1"
}

# names COMMAND…: the commands that its help lists, one a line
names() { "$sinter" "$@" --help | awk '/^usage:/ {on = 1; next} on && /^  [a-z]+  / {print $1}'; }

all=$(names | sed 's/.*/.BR sinter\\-& (1)/')
"$sinter" --help | page sinter "$all"
names | while read -r command; do
    "$sinter" "$command" --help | page "sinter-$command" ".BR sinter (1)"
done
names bench | while read -r what; do
    "$sinter" bench "$what" --help | page "sinter-bench-$what" ".BR sinter\-bench (1)"
done
