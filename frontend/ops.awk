# ops.awk: prints frontend/ops.h from ir/ops.def: sn_NAME for every elementwise op with one or two operands, and for every
# composite that gives the parameters of its function.
BEGIN {
    print "/* ops.h: the operations of the op table. Generated from ir/ops.def by frontend/ops.awk, and a part of"
    print " * sinter.h, which says how SN_UNARY and SN_BINARY declare a function. */"
    print "#ifndef SN_UNARY\n#include \"frontend/sinter.h\"\n#else"
}

# The formula of a row, without what it says about attributes that the function does not have.
function doc(row) {
    match(row, /"[^"]*"/)
    row = substr(row, RSTART + 1, RLENGTH - 2)
    sub(/; \{[a-z_]*\}:.*/, "", row)
    gsub(/[{}]/, "", row)
    return row
}

# One macro: its parameters, what it hands on, and the declaration of the function.
function define(name, parameters, arguments, declaration) {
    printf "\n/* %s */\n#define sn_%s(%s) sn_%s_at(SN_HERE, %s)\n%s\n", doc($0), name, parameters, name, arguments, declaration
}

/^(ELEM|COMP)\(/ { split($0, column, /[(,] */); name = column[2] }

# cast and select take other operands: sn_cast and sn_where stand in sinter.h.
/^ELEM\(/ && column[4] != "cast" {
    if (column[3] == 1) define(name, "x", "x", "SN_UNARY(" name ")")
    if (column[3] == 2) define(name, "x, y", "SN_OPERAND(x), SN_OPERAND(y)", "SN_BINARY(" name ")")
}

/^COMP\(.*\([a-z].*\), +"/ {
    match($0, /\([a-z][a-z0-9_, ]*\), +"/)
    parameters = substr($0, RSTART + 1, RLENGTH)
    sub(/\).*/, "", parameters)
    names = ""
    n = split(parameters, parameter, /, */)
    for (i = 1; i <= n; i++) {
        sub(/.* /, "", parameter[i])
        names = names (i > 1 ? ", " : "") parameter[i]
    }
    define(name, names, names, parameters == "sn_tensor x" ? "SN_UNARY(" name ")" : "sn_tensor sn_" name "_at(sn_loc, " parameters ");")
}

END { print "\n#endif" }
