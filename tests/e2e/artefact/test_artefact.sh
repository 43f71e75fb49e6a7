#!/bin/sh
# test_artefact.sh SINTER SOURCE_DIR CC SECTION: what artefacts of stories260K promise besides right results.
# Sections: listing sections
set -u
sinter=$1 source=$2 cc=$3 section=$4
here=$source/tests/e2e/artefact
model=$source/examples/models/stories260K/stories260K.bin
tokenizer=$source/examples/models/stories260K/tok512.bin
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
    "$sinter" compile "$model" --tokenizer "$tokenizer" --name story -o "$folder" --threads none "$@" ||
        fail "compile $*"
}
want="261 378 432 383 286 261 376 298 315 421"
greedy() { # greedy PROGRAM FOLDER
    "$1" "$2/story.weights" 10 1 403 407 | tr '\n' ' ' | sed 's/ $//'
}

# NAME.s is the object's code, so an assembler makes an artefact of it.
listing() {
    compile two --target x86-64-v2,x86-64-v3 --emit asm,ll --json >json
    for file in story.s story.ll; do
        grep -q "two/$file\"" json || fail "$file is not among the files"
    done
    if [ "$(uname -m)" = x86_64 ]; then
        $cc -c two/story.s -o again.o || fail "assemble"
        for object in again.o two/story.o; do
            $cc "$source/examples/deploy/generate.c" -Itwo $object -lm -o generate || fail "link $object"
            same "$object" "$(greedy ./generate two)" "$want"
        done
    fi
    grep -q '^# decode, step: model.layers.\*.mlp.down_proj: gemm f32\[1,1,64\], epilogue: add, causal_lm.c:[0-9]* (5 calls)$' two/story.s ||
        fail "no comment of a kernel in two/story.s"
    grep -A1 '^; decode, step: model.layers.\*.mlp.down_proj: gemm' two/story.ll | grep -q '^define .*@story_v1_gemm_' ||
        fail "no comment of a kernel in two/story.ll"
    grep -q '^define .*@story_prefill(' two/story.ll || fail "no entry in two/story.ll"
    compile arm --target aarch64 --emit asm --entries cached
    [ ! -e arm/story.ll ] || fail "--emit asm writes IR, too"
    grep -q '^// prefill: model.layers.\*.attention: flash' arm/story.s || fail "no comment in arm/story.s"
    if command -v aarch64-linux-gnu-gcc >/dev/null 2>&1; then
        aarch64-linux-gnu-gcc -c arm/story.s -o arm/again.o || fail "assemble for AArch64"
    fi
    compile mac --target apple-m1,os=macos --emit asm --entries cached
    grep -A1 '^// prefill: model.layers.\*.attention: flash' mac/story.s | grep -q '^_story_v0_flash' ||
        fail "no comment above a name of Mach-O"
    says "asm, ll or asm,ll" "$sinter" compile "$model" -o x --emit obj
    says "excludes --embed-weights" "$sinter" compile "$model" -o x --emit asm --embed-weights
}

# Tables to unwind, names of all functions, and a section for each, of which linkers drop those without use.
sections() {
    native=native
    [ "$(uname -m)" = x86_64 ] && native=x86-64-v2,x86-64-v3
    compile out --target $native
    $cc -O1 "$here/unwind.c" -Iout out/story.o -lm -o unwind || fail "link unwind"
    (cd out && ../unwind) >out.txt || fail "samples of the stack that reach main: $(cat out.txt)"
    compile listed --target $native --emit ll
    $cc -O1 "$here/unwind.c" -Ilisted listed/story.o -lm -o unwind || fail "link unwind"
    (cd listed && ../unwind) >out.txt || fail "samples of the stack that reach main, of LLVM's object: $(cat out.txt)"
    for folder in out listed; do
        $cc -Wl,--gc-sections "$here/unwind.c" -I$folder $folder/story.o -lm -o small || fail "link small"
        (cd $folder && ../small) >out.txt || fail "$folder without unused sections: $(cat out.txt)"
        nm $folder/story.o | grep -q ' story_step$' || fail "$folder: no step"
        nm small | grep -qE ' story_(step|decode)$' && fail "$folder: an unused entry stays"
        more=$(nm small | grep -c ' story_v0_entry_[0-9]*$')
        same "$folder: entries that stay" "$more" 1
    done
    nm unwind | grep -q ' story_v0_gemm_' || fail "no names of kernels"
}

$section
exit $failed
