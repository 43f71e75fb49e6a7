# shellcheck shell=sh
# stories260k.sh: what scripts that test artefacts of stories260K share: $model, $tokenizer, an empty folder $tmp to work
# in, $failed, and the tokens $want that follow a prompt. They set $source.
model=$source/examples/models/stories260K/stories260K.bin
tokenizer=$source/examples/models/stories260K/tok512.bin
want="261 378 432 383 286 261 376 298 315 421" # the likeliest tokens after 1 403 407
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}"
cd "$tmp" || exit 1
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}
same() { # same WHAT GOT WANT
    [ "$2" = "$3" ] || fail "$1: got \"$2\", not \"$3\""
}
# says TEXT COMMAND…: the command fails with a message that contains TEXT, and not by a signal
says() {
    text=$1
    shift
    "$@" >out 2>&1
    code=$?
    if [ $code = 0 ] || [ $code -ge 126 ]; then fail "$*: exit code $code"; fi
    grep -q -- "$text" out || fail "$*: no \"$text\" in: $(head -3 out)"
}
compile() { # compile FOLDER OPTIONS…
    folder=$1
    shift
    "$sinter" compile "$model" --tokenizer "$tokenizer" --name story -o "$folder" "$@" || fail "compile $*"
}
