# man3.awk: a manual page of section 3 from a public header: its doc comments and declarations, in order.
# awk -v page=sinter-lm -v include=sinter/lm.h -v version=0.1.0 -v dir=DIR -f man3.awk HEADER
# DIR/FUNCTION.3 becomes a short page for each function: its declarations and comment.
function clean(s) { gsub(/\\/, "\\e", s); gsub(/-/, "\\-", s); return (s ~ /^[.']/) ? "\\&" s : s }
function text(s, out,   n, line, i, code) { # the lines of a comment
    n = split(s, line, "\n")
    for (i = 1; i <= n; i++) {
        if (line[i] ~ /^  / && !code) { print ".nf" > out; code = 1 }
        if (line[i] !~ /^  / && code && line[i] != "") { print ".fi" > out; code = 0 }
        if (line[i] == "") { print (code ? ".sp" : ".PP") > out; continue }
        print clean(line[i]) > out
    }
    if (code) print ".fi" > out
}
function head(s,   at, rest) { # the comment that begins the file
    sub(/^[^:]*: */, "", s)
    at = match(s, /[.](\n| |$)/)
    rest = at ? substr(s, at + 1) : ""
    s = at ? substr(s, 1, at - 1) : s
    gsub(/\n */, " ", s)
    sub(/^[ \n]+/, "", rest)
    printf ".TH %s 3 \"\" \"sinter %s\" \"Sinter\"\n.SH NAME\n%s \\- %s\n", toupper(page), version, page, clean(s)
    print ".SH LIBRARY\nlibsinter; what deployed programs need is in libsinter_rt, too (pkg\\-config sinter, sinter_rt)"
    printf ".SH SYNOPSIS\n.nf\n#include <%s>\n.fi\n.SH DESCRIPTION\n", include
    if (rest != "") text(rest, "/dev/stdout")
    began = 1
}
function declarations(out,   i) {
    for (i = 1; i <= n_code; i++) print clean(code[i]) > out
    print ".fi" > out
}
function short_page(f,   out, line, what) {
    out = dir "/" f ".3"
    if ((getline line < out) >= 0) { close(out); return } # of another header
    what = doc == "" ? "see " page "(3)" : doc
    gsub(/ *\n */, " ", what)
    if (match(what, /[.:;]( |$)/)) what = substr(what, 1, RSTART - 1)
    printf ".TH %s 3 \"\" \"sinter %s\" \"Sinter\"\n.SH NAME\n%s \\- %s\n", toupper(f), version, f, clean(what) > out
    printf ".SH SYNOPSIS\n.nf\n#include <%s>\n.sp\n", include > out
    declarations(out)
    if (doc != "") { print ".SH DESCRIPTION" > out; text(doc, out) }
    printf ".SH \"SEE ALSO\"\n.BR %s (3)\n", page > out
    close(out)
}
function flush_block(   i) {
    if (n_code) {
        print ".PP\n.nf"
        declarations("/dev/stdout")
        if (doc != "") { print ".RS 4"; text(doc, "/dev/stdout"); print ".RE" }
    } else if (doc != "") { print ".PP"; text(doc, "/dev/stdout") }
    for (i = 1; i <= n_names; i++) short_page(name[i])
    n_code = n_names = 0
    doc = ""
}
function add_code(s) {
    code[++n_code] = s
    if ((s !~ /^[ #]/ || s ~ /^#define sn_[a-z0-9_]+\(/) && s !~ /^typedef/ && match(s, /sn_[a-z0-9_]+\(/))
        name[++n_names] = substr(s, RSTART, RLENGTH - 1)
}
function comment_line(s) { sub(/^ \* ?/, "", s); sub(/^ \*$/, "", s); return s }
{ sub(/[ \t]+$/, "") }
skip_to_endif { if (/^#endif/) skip_to_endif = 0; next }
/^#ifdef __cplusplus/ { skip_to_endif = 1; next }
/^#include/ || /^#ifndef [A-Z_]*_H$/ || /^#define [A-Z_]*_H$/ || /^#(endif|else|undef|if)/ || /^extern "C"/ { next }
in_body { if (/^}/) in_body = 0; next }
in_define { in_define = /\\$/; next }
in_comment {
    last = /\*\/$/
    s = comment_line($0)
    sub(/ *\*\/$/, "", s)
    note = note "\n" s
    if (last) { in_comment = 0; if (!began) head(note); else doc = note }
    next
}
/^\/\* ---- .* ---- \*\/$/ {
    flush_block()
    s = $0
    gsub(/^\/\* ---- | ---- \*\/$/, "", s)
    printf ".SH \"%s\"\n", toupper(clean(s))
    next
}
/^\/\*/ && !in_struct {
    flush_block()
    s = substr($0, 3)
    sub(/^ /, "", s)
    if (s ~ /\*\/$/) { sub(/ *\*\/$/, "", s); if (!began) head(s); else doc = s }
    else { note = s; in_comment = 1 }
    next
}
/^$/ && !in_struct { flush_block(); next }
/^#define/ {
    s = $0
    in_define = /\\$/
    sub(/ *\\$/, "", s)
    if (match(s, /^#define [A-Za-z_0-9]+\([^)]*\)/)) s = substr(s, 1, RLENGTH)
    add_code(s)
    next
}
/^static inline/ { s = $0; sub(/ *\{.*$/, ";", s); add_code(s); in_body = !/\}$/; next }
{
    if (/^(typedef )?(struct|enum|union)[^;]*\{$/ || /^enum \{$/) in_struct = 1
    if (/^}/) in_struct = 0
    add_code($0)
}
END { flush_block(); print ".SH \"SEE ALSO\"\n.BR sinter (1)" }
