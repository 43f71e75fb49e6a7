#!/bin/sh
# test_artefact.sh SINTER SOURCE_DIR CC SECTION: what artefacts of stories260K promise besides right results.
# Sections: listing lines sections size repeat repeat_all bill verify arm small described
set -u
sinter=$1 source=$2 cc=$3 section=$4
here=$source/tests/e2e/artefact
. "$source/tests/e2e/artefact/stories260k.sh"
greedy() { # greedy PROGRAM FOLDER
    $1 "$2/story.weights" 10 1 403 407 | tr '\n' ' ' | sed 's/ $//'
}

# NAME.s is the object's code, so an assembler makes an artefact of it.
listing() {
    compile two --threads none --target x86-64-v2,x86-64-v3 --emit asm,ll --json >json
    for file in story.s story.ll; do
        grep -q "two/$file\"" json || fail "$file is not among the files"
    done
    "$sinter" inspect two/story.o --json >json || fail "inspect"
    grep -q '"triple"' json || fail "no targets in: $(head -c 300 json)"
    grep -q code_bytes json && fail "bytes of code that are not known: $(grep code_bytes json)"
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
    compile arm --threads none --target aarch64 --emit asm --entries cached
    [ ! -e arm/story.ll ] || fail "--emit asm writes IR, too"
    grep -q '^// prefill: model.layers.\*.attention: flash' arm/story.s || fail "no comment in arm/story.s"
    if command -v aarch64-linux-gnu-gcc >/dev/null 2>&1; then
        aarch64-linux-gnu-gcc -c arm/story.s -o arm/again.o || fail "assemble for AArch64"
    fi
    compile mac --threads none --target apple-m1,os=macos --emit asm --entries cached
    grep -A1 '^// prefill: model.layers.\*.attention: flash' mac/story.s | grep -q '^_story_v0_flash' ||
        fail "no comment above a name of Mach-O"
    says "asm, ll or asm,ll" "$sinter" compile "$model" -o x --emit obj
    says "excludes --embed-weights" "$sinter" compile "$model" -o x --emit asm --embed-weights
}

# Which line of the model's source a kernel and its calls come from, and no path but the one that was given.
lines() {
    cp "$source/examples/variants/small.h" "$source/examples/variants/attention_sinks.c" .
    "$sinter" compile attention_sinks.c --name story -o out --threads none --entries forward -g || fail "compile -g"
    "$sinter" compile attention_sinks.c --name story -o plain --threads none --entries forward || fail "compile"
    attend=$(grep -n 'sn_attention(' attention_sinks.c | cut -d: -f1)
    readelf --debug-dump=decodedline out/story.o 2>/dev/null | grep -qE "^attention_sinks.c +$attend " || fail "no line of attention"
    readelf --debug-dump=decodedline out/story.o 2>/dev/null | grep -q '^small.h  *[1-9]' || fail "no line of small.h"
    printf '#include "story.h"\nint main(void) { return story_abi_version() != STORY_ABI_VERSION; }\n' >main.c
    $cc main.c -Iout out/story.o -lm -o main && ./main || fail "link with lines"
    at=$(nm main | awk '/ t story_v0_flash_[0-9a-f]*$/ { print $1; exit }')
    same "the line of a function" "$(addr2line -e main "0x$at")" "attention_sinks.c:$attend"
    readelf -S plain/story.o | grep -q debug_ && fail "lines without -g"
    for object in out/story.o plain/story.o; do
        strings -a $object | grep -F -e "$tmp" -e "$source/" && fail "a path in $object"
    done
}

# Tables to unwind, names of all functions, and a section for each, of which linkers drop those without use.
sections() {
    native=native
    [ "$(uname -m)" = x86_64 ] && native=x86-64-v2,x86-64-v3
    compile out --threads none --target $native
    $cc -O1 "$here/unwind.c" -Iout out/story.o -lm -o unwind || fail "link unwind"
    (cd out && ../unwind) >out.txt || fail "samples of the stack that reach main: $(cat out.txt)"
    compile listed --threads none --target $native --emit ll
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
    nm out/story.o | grep -E ' story_v0_(pack|prepare)_' && fail "code that prepares weights, which are prepared"
}

# The code of GPT-2 for one target.
size() {
    for target in x86-64-v2 x86-64-v3 x86-64-v4 aarch64; do
        "$sinter" compile --preset gpt2 --name gpt -o out --target $target 2>err || fail "compile for $target: $(cat err)"
        "$sinter" inspect out/gpt.o >inspect.txt || fail "inspect for $target"
        bytes=$(sed -n 's/^target .*: \([0-9]*\) bytes of code$/\1/p' inspect.txt)
        [ "${bytes:-999999}" -le 150000 ] || fail "$bytes bytes of code for $target: $(sed -n '/^code/,$p' inspect.txt | head -20)"
    done
}

# again NAME TARGET OPTIONS…: the same input, version and options give the same bytes: from other folders, with another
# cache and number of threads, on one CPU, and (if $emulated is set) on a CPU with other features. Nothing in the files
# names a folder.
emulated=
again() {
    name=$1 target=$2
    shift 2
    rm -rf here there
    mkdir -p here/home there/deeper/home
    cp -r copy there/copy
    (cd here && HOME=$tmp/here/home OMP_NUM_THREADS=2 "$sinter" compile ../copy/"$name" --name art -o out --target "$target" \
        --cache-dir "$tmp/here/cache" --spdx "$@" 2>err) || fail "compile $name for $target: $(cat here/err)"
    # shellcheck disable=SC2086
    (cd there/deeper && HOME=$tmp/there/deeper/home OMP_NUM_THREADS=1 taskset -c 0 $emulated "$sinter" compile ../copy/"$name" \
        --name art -o art --target "$target" --cache-dir none --spdx "$@" 2>err) || fail "compile $name again: $(cat there/deeper/err)"
    same "$name for $target" "$(cd there/deeper/art && find . -type f | sort | xargs sha256sum)" \
        "$(cd here/out && find . -type f | sort | xargs sha256sum)"
    grep -rl -e "$tmp" -e "${tmp##*/}" -e deeper -e "$source" here/out >paths && fail "$name for $target: folders in $(cat paths)"
    [ "$(find here/out -type f | wc -l)" -ge 4 ] || fail "$name for $target: few files"
}
repeat() {
    mkdir copy && cp "$model" "$source/examples/models/nano-gpt-sort/gpt-nano-sort-model.json" copy
    again stories260K.bin x86-64-v4 --entries forward --threads none --weights int8
    if command -v wasm-ld-19 >/dev/null 2>&1 || command -v wasm-ld >/dev/null 2>&1; then
        again gpt-nano-sort-model.json wasm32 --entries forward
    fi
}

# Six models, four targets.
repeat_all() {
    mkdir copy && cp -r "$source"/examples/models/* copy
    cp "$source"/examples/variants/*.[ch] copy
    command -v qemu-x86_64 >/dev/null 2>&1 && [ "$(uname -m)" = x86_64 ] && emulated="qemu-x86_64 -cpu Haswell"
    for target in x86-64-v3 x86-64-v4 aarch64 wasm32; do
        again stories260K/stories260K.bin $target --tokenizer ../copy/stories260K/tok512.bin --compute int8
        again aren-transliteration/model.bin $target
        again mnist-vit/mnist_vit.npz $target
        again nano-gpt-sort/gpt-nano-sort-model.json $target --weights int4
        again alibi.c $target --weights bf16
        again gated_deltanet.c $target
    done
}

# The bill of materials.
bill() {
    "$sinter" import "$model" --tokenizer "$tokenizer" -o folder 2>err || fail "import"
    printf -- '---\nlanguage: en\nlicense: "apache-2.0"\nbase_model: someone/stories\n---\n# Stories\n' >folder/README.md
    mkdir folder/onnx folder/1_Pooling folder/runs
    echo 1 | tee folder/onnx/model.onnx_data folder/1_Pooling/config.json folder/runs/log >folder/LICENSE
    SOURCE_DATE_EPOCH=1000000000 "$sinter" compile folder/ --name story -o out --target x86-64-v3 --spdx --entries cached || fail "compile"
    cat >check.py <<'END'
import hashlib, json, re, sys
d = json.load(open('out/story.spdx.json'))
assert d['spdxVersion'] == 'SPDX-2.3' and d['dataLicense'] == 'CC0-1.0' and d['SPDXID'] == 'SPDXRef-DOCUMENT'
assert d['creationInfo']['created'] == '2001-09-09T01:46:40Z' and d['creationInfo']['creators'][0].startswith('Tool: sinter-')
assert d['documentNamespace'].startswith('https://') and '#' not in d['documentNamespace']
by_id = {p['SPDXID']: p for p in d['packages']}
assert len(by_id) == len(d['packages'])
for p in d['packages']:
    assert re.fullmatch(r'SPDXRef-[A-Za-z0-9.-]+', p['SPDXID']) and p['name'] and p['downloadLocation'] == 'NOASSERTION'
    assert p['filesAnalyzed'] is False
sha = lambda path: hashlib.sha256(open(path, 'rb').read()).hexdigest()
related = lambda a, how: [r['relatedSpdxElement'] for r in d['relationships'] if r['spdxElementId'] == 'SPDXRef-' + a and r['relationshipType'] == how]
for r in d['relationships']:
    assert {r['spdxElementId'], r['relatedSpdxElement']} <= by_id.keys() | {'SPDXRef-DOCUMENT'}
def contents(package, folder):
    names, total = [], ''
    for i in related(package, 'CONTAINS'):
        p = by_id[i]
        assert p['checksums'] == [{'algorithm': 'SHA256', 'checksumValue': sha(folder + '/' + p['name'])}], p
        names.append(p['name'])
        total += p['checksums'][0]['checksumValue'] + '  ' + p['name'] + '\n'
    assert by_id['SPDXRef-' + package]['checksums'][0]['checksumValue'] == hashlib.sha256(total.encode()).hexdigest()
    return names
assert sorted(contents('Artefact', 'out')) == ['story.h', 'story.o', 'story.weights']
names = contents('Model', 'folder')
assert names == sorted(names)
assert {'config.json', 'model.safetensors', 'LICENSE', 'onnx/model.onnx_data', '1_Pooling/config.json'} <= set(names), names
assert not [n for n in names if 'log' in n] and 'hasExtractedLicensingInfos' not in d
model = by_id['SPDXRef-Model']
assert model['name'] == 'folder' and model['licenseDeclared'] == 'Apache-2.0' and model['comment'] == 'base model: someone/stories'
assert related('DOCUMENT', 'DESCRIBES') == ['SPDXRef-Artefact'] and related('Artefact', 'GENERATED_FROM') == ['SPDXRef-Model']
assert related('LLVM', 'BUILD_TOOL_OF') and re.match(r'[0-9]+\.', by_id['SPDXRef-LLVM']['versionInfo'])
assert related('Artefact', 'DYNAMIC_LINK') == ['SPDXRef-libgomp']
e = json.load(open('exe/story.spdx.json'))
linked = {r['relatedSpdxElement'] for r in e['relationships'] if r['relationshipType'] == 'STATIC_LINK'}
assert 'SPDXRef-Sinter' in linked and 'SPDXRef-PCRE2' not in linked, linked
text = e['hasExtractedLicensingInfos'][0]
assert 'MIT License' in text['extractedText'] and text['licenseId'] == 'LicenseRef-weights'
assert {p['name'] for p in e['packages']} >= {'story', 'story.tokenizer/tokenizer.tables', 'stories260K.bin', 'tok512.bin'}
assert not linked & {'SPDXRef-libgomp', 'SPDXRef-libc'}
c = json.load(open('trained/story.spdx.json'))
assert [x['licenseId'] for x in c['hasExtractedLicensingInfos']] == ['LicenseRef-our-terms']
assert c['hasExtractedLicensingInfos'][0]['extractedText'] == 'terms of the weights\n'
assert [p['licenseDeclared'] for p in c['packages'] if p['SPDXID'] == 'SPDXRef-Model'] == ['LicenseRef-our-terms']
o = json.load(open('onnx/story.spdx.json'))
assert {'bert.onnx', 'bert.onnx_data'} == {p['name'] for p in o['packages'] if 'bert' in p['name'] and 'File' in p['SPDXID']}
if sys.argv[1] == 'static':
    s = json.load(open('static/story.spdx.json'))
    how = {r['relatedSpdxElement']: r['relationshipType'] for r in s['relationships']}
    assert how['SPDXRef-libgomp'] == how['SPDXRef-libc'] == 'STATIC_LINK', how
END
    compile exe --threads none --exe --spdx --entries cached,step
    static=
    if ! ldd exe/story | grep -q libasan; then
        static=static
        "$sinter" compile folder --name story -o static --exe --static --spdx --entries cached || fail "compile --static"
    fi
    # A model in C beside another licence; the text of a licence that the card only names; data beside an ONNX file.
    mkdir c && cp "$source/examples/variants/alibi.c" "$source"/examples/variants/*.h c && echo "terms of the code" >c/LICENSE
    head -c 1000 "$source/examples/data/tinyshakespeare.txt" |
        "$sinter" run c/alibi.c train --text - -o c/trained -n 1 --batch 1 >out.txt 2>err || fail "train: $(cat err)"
    printf -- '---\nlicense: other\nlicense_name: our-terms\n---\n' >c/trained/README.md
    echo "terms of the weights" >c/trained/LICENSE
    "$sinter" compile c/alibi.c --checkpoint c/trained --name story -o trained --spdx --entries cached || fail "compile a checkpoint"
    mkdir near && cp "$source/tests/data/onnx/bert.onnx" near && cp near/bert.onnx near/bert.onnx_data && cp near/bert.onnx near/bert.other
    "$sinter" compile near/bert.onnx --name story -o onnx --spdx || fail "compile an ONNX file"
    if command -v python3 >/dev/null 2>&1; then
        python3 check.py "$static" || fail "the bill of materials"
    else
        echo "note: no python3: the bill of materials is not read"
    fi
}

# Checksums of parts of the weights, also of weights in the object.
verify() {
    compile out --threads none --entries cached
    $cc -Wall -Wextra -Werror "$here/verify.c" -Iout out/story.o -lm -o check || fail "link"
    (cd out && ../check) || fail "parts"
    bytes=$(wc -c <out/story.weights)
    same "the size in the header" "$(sed -n 's/.*WEIGHT_BYTES INT64_C(\([0-9]*\)).*/\1/p' out/story.h)" "$bytes"
    for at in 30 45 4000 70000 $((bytes - 1)); do
        cp out/story.weights bad
        printf '\377' | dd of=bad bs=1 seek=$at conv=notrunc 2>/dev/null
        "$sinter" inspect bad >out.txt || fail "inspect bad weights"
        grep -q "checksum wrong" out.txt || fail "a changed byte at $at: $(cat out.txt)"
    done
    "$sinter" inspect out/story.weights | grep -q "checksum right" || fail "inspect"
}

# Names of AArch64's CPUs: what code needs, and that it runs on what has just that.
arm() {
    run() { # run FOLDER CPU WANTED
        aarch64-linux-gnu-gcc -static "$source/examples/deploy/generate.c" -I$1 $1/story.o -lm -o $1/generate || fail "link $1"
        same "$1 on $2" "$(greedy "qemu-aarch64 -cpu $2 $1/generate" $1 2>&1)" "$3"
    }
    compile three --threads none --target aarch64,cortex-a76,neoverse-v2 --entries cached,step --compute int8
    grep -q '1  neoverse-v2: neon fullfp16 dotprod i8mm$' three/story.h || fail "needs of neoverse-v2: $(grep neoverse three/story.h)"
    grep -q '2  cortex-a76: neon fullfp16 dotprod$' three/story.h || fail "needs of cortex-a76"
    compile dot --threads none --target aarch64,+dotprod --entries cached,step --compute int8
    grep -q 'aarch64,+dotprod: neon dotprod$' dot/story.h || fail "needs of aarch64,+dotprod: $(grep dotprod dot/story.h)"
    compile m1 --threads none --target apple-m1 --entries cached,step
    # products with a transposed A: gradients of weights
    for target in aarch64 native; do
        "$sinter" compile --train "$source/examples/train/shakespeare.json" --entries forward --name training -o train-$target \
            --threads none --emit asm --target $target || fail "a training step for $target"
    done
    "$source/bench/inner_loops.py" --least 81 --asm train-aarch64/training.s || fail "inner loops of training"
    dump=$(command -v aarch64-linux-gnu-objdump || command -v llvm-objdump-19)
    if [ -n "$dump" ]; then
        for folder in three dot m1; do
            "$dump" -d $folder/story.o >code
            grep -qE '\<(z[0-9]+\.[bhsd]|p[0-9]/[mz]|bfdot|bfmmla|smmla)\>' code && fail "$folder: SVE, bf16 or products of matrices"
        done
        "$dump" -d dot/story.o | grep -q '\<sdot\>' || fail "aarch64,+dotprod without sdot"
    fi
    if ! command -v qemu-aarch64 >/dev/null 2>&1 || ! command -v aarch64-linux-gnu-gcc >/dev/null 2>&1; then
        echo "note: no qemu-aarch64 or aarch64-linux-gnu-gcc: the code is not run"
        return
    fi
    whole=$("$sinter" generate "$model" --tokenizer "$tokenizer" --prompt-ids 1,403,407 --print-ids -n 10 --temperature 0 --compute int8 --backend native)
    whole=${whole#"1 403 407 "}
    run three cortex-a53 "$whole"
    run three cortex-a76 "$whole"
    run three max "$whole"
    run dot cortex-a76 "$whole"
    run m1 cortex-a76 "$want"
    for link in "cc native" "aarch64-linux-gnu-gcc -static aarch64"; do
        folder=train-${link##* }
        ${link% *} "$source/examples/deploy/train.c" -I$folder $folder/training.o -lm -o $folder/trainer || fail "link $folder"
    done
    same "losses on AArch64" "$(qemu-aarch64 train-aarch64/trainer train-aarch64/training.weights 2)" \
        "$(train-native/trainer train-native/training.weights 2)"
    says "does not meet the requirements" qemu-aarch64 -cpu cortex-a53 m1/generate m1/story.weights 3 1
}

# Code kernel by kernel, a small stack, no heap, and no functions of libc but those that map a file.
small() {
    native=native
    [ "$(uname -m)" = x86_64 ] && native=x86-64-v3,x86-64-v4
    compile out --threads none --entries cached --target $native
    "$sinter" inspect out/story.o >out.txt || fail "inspect"
    total=$(awk '$1 == "code" { print $2 }' out.txt)
    same "the sum of all functions" "$(awk '/^code/ { on = 1; next } on { n += $1 } END { print n }' out.txt)" "$total"
    same "the size of all code" "$total" "$(readelf -SW out/story.o | sed 's/^ *\[ *[0-9]*\]//' |
        awk '$1 ~ /^\.text\./ { print $5 }' | while read -r n; do echo $((0x$n)); done | awk '{ n += $1 } END { print n }')"
    grep -qE '^ +[0-9]+ story_v0_gemm_' out.txt || fail "no kernel in: $(head -20 out.txt)"
    "$sinter" inspect out/story.o --json >json || fail "inspect --json"
    grep -q '"functions": \[{"name": "story_v' json || fail "no functions in JSON"
    grep -qE '"code_bytes": [1-9]' json || fail "no bytes of code of a target"
    $cc -Wall -Wextra -D_GNU_SOURCE "$here/stack.c" -Iout out/story.o -lpthread -lm -o stack || fail "link"
    (cd out && ../stack) >out.txt || fail "a stack of 64 KiB: $(cat out.txt)"
    more=$(nm -u out/story.o | awk '{print $2}' | grep -vxE 'open|lseek|mmap|munmap|madvise|close|mem(cpy|set|move)|getauxval' | tr '\n' ' ')
    same "functions that code calls" "$more" ""
}

# What a model in C says about its arguments, results, sizes, parameters and states.
described() {
    cat >own.c <<'EOF'
#include <sinter/models.h>

SN_MODEL(m, o) {
    (void)o;
    sn_dim T = sn_describe_dim(m, sn_symbol(m, "T", 1, 64), "frames of 10 ms");
    sn_tensor gains = sn_describe(sn_param(m, "gains", SN_F32, 5, 6), "dB for each preset");
    sn_tensor mean = sn_describe(sn_state(m, "mean", SN_F32, 6), "running mean");
    sn_entry_begin(m, "mix");
    sn_tensor frames = sn_describe(sn_input(m, "frames", SN_F32, 2, T, 6), "left and right, 100 % = 0 dB"),
              mode = sn_describe(sn_input(m, "mode", SN_I32, 2), "preset of each channel");
    sn_tensor y = sn_add(sn_mul(frames, sn_reshape(sn_embedding(gains, mode), 2, 1, 6)), mean);
    sn_output("mixed", y);
    sn_output("peak", sn_describe(sn_amax(y, 0, 1, 2), "the loudest"));
    sn_describe(y, "after the preset");
    sn_assign(mean, sn_mean(frames, 0, 1));
    sn_entry_begin(m, "peek");
    sn_output("now", mean);
}
EOF
    "$sinter" compile own.c --name own -o own --threads none || fail "compile own.c"
    for line in "T          a length, 1 to 64: frames of 10 ms" "frames     f32 [2,T,6], read: left and right, 100 % = 0 dB" \
        "mode       i32 [2], read, 0 to 4: preset of each channel" "mixed      f32 [2,T,6], written: after the preset" \
        "peak       f32 [], written: the loudest" "now        f32 [6], written: running mean" \
        "gains      f32 [5,6], a parameter: dB for each preset" "mean       f32 [6], a state, from byte 64 of the state on: running mean"; do
        grep -qF " *   $line" own/own.h || fail "no line \"$line\" in own.h"
    done
    "$sinter" inspect own/own.o >told
    grep -q -e "-> peak f32 \[\] (the loudest)" told && grep -q "T: 1 to 64 (frames of 10 ms)" told || fail "inspect an object: $(cat told)"
    "$sinter" inspect own/own.o --json | grep -q '"about": *"after the preset"' || fail "inspect --json"
    "$sinter" inspect own.c | grep -q "frames  *f32\[2,T,6\] (left and right, 100 % = 0 dB)" || fail "inspect own.c"
    cat >refused.c <<'EOF'
#include "own.h"
#include <stdio.h>
static _Alignas(64) char state[OWN_STATE_BYTES], workspace[1 << 16];
int main(void) {
    static float frames[12], mixed[12], peak;
    own m;
    if (own_open(&m, "own/own.weights") || own_mix_workspace(&m, 1) > (int64_t)sizeof workspace) return 1;
    puts(own_message(own_mix(&m, state, workspace, 65, frames, (int[]){0, 0}, mixed, &peak)));
    puts(own_message(own_mix(&m, state, workspace, 1, frames, (int[]){0, 5}, mixed, &peak)));
    return 0;
}
EOF
    $cc -Iown refused.c own/own.o -lm -o refused || fail "a program"
    same "what is refused" "$(./refused)" "mix: T (frames of 10 ms) is outside its range 1..64
mix: an element of 'mode' (preset of each channel) is outside 0..4"
    says "element 0 of 'mode' (preset of each channel) is 7, outside 0..4" "$sinter" run own.c --entry mix --sizes T=1 -i mode=7
    sed 's/"running mean"/"*\/"/' own.c >bad.c
    says "bad.c:7: sn_describe: the text must not contain /\* or \*/" "$sinter" compile bad.c --name x -o x
    sed 's/"running mean"/"  "/' own.c >bad.c
    says "bad.c:7: sn_describe: the text must not begin or end with a space" "$sinter" compile bad.c --name x -o x
    sed 's/sn_symbol(m, "T", 1, 64)/3/' own.c >bad.c
    says "sn_describe_dim: 3 is not a symbol" "$sinter" compile bad.c --name x -o x
    if command -v wasm-ld-19 >/dev/null 2>&1 || command -v wasm-ld >/dev/null 2>&1; then
        "$sinter" compile own.c --name own -o web --target wasm32 || fail "a module"
        grep -qF "/** [2]: preset of each channel */ 'mode': Int32Array" web/own.d.ts || fail "own.d.ts: $(cat web/own.d.ts)"
    fi
    same_names
}

# Equal names of inputs of two entries, of a size and a parameter, of a state and an output; names that no comment
# may contain; a long one.
same_names() {
    cat >names.c <<'EOF'
#include <sinter/models.h>
#include <string.h>

SN_MODEL(m, o) {
    (void)o;
    char name[301] = "", text[256] = "";
    memset(name, 'n', 300), memset(text, 't', 255);
    sn_dim T = sn_describe_dim(m, sn_symbol(m, "T", 1, 9), "rows");
    sn_tensor gain = sn_describe(sn_param(m, "gain */ b", SN_F32, 4), "in dB"),
              scale = sn_describe(sn_param(m, "T", SN_F32, 4), "a scale"),
              more = sn_describe(sn_param(m, name, SN_F32, 4), text),
              mean = sn_describe(sn_state(m, "mean", SN_F32, 4), "running mean");
    sn_entry_begin(m, "mix");
    sn_tensor x = sn_input(m, "x", SN_F32, T, 4);
    sn_output("mean", sn_add(sn_mul(sn_mul(x, gain), scale), more));
    sn_assign(mean, sn_mean(x, 0));
    sn_entry_begin(m, "peek");
    sn_tensor y = sn_input(m, "x", SN_F32, 4);
    sn_describe(x, "of mix");
    sn_output("x", sn_add(mean, y));
}
EOF
    "$sinter" compile names.c --name names -o names --threads none || fail "compile names.c"
    printf '#include "names.h"\n' >use.c
    $cc -Wall -Wextra -Werror -Inames -fsyntax-only use.c || fail "names.h does not compile"
    for line in "T          a length, 1 to 9: rows" "x          f32 [T,4], read: of mix" "mean       f32 [T,4], written" \
        "x          f32 [4], read" "x_out      f32 [4], written" "gain__/_b  f32 [4], a parameter: in dB" \
        "T          f32 [4], a parameter: a scale"; do
        grep -qxF " *   $line" names/names.h || fail "no line \"$line\" in names.h: $(grep '^ \*  ' names/names.h)"
    done
    "$sinter" inspect names/names.o >told || fail "inspect: $(cat told)"
    grep -q " x f32 \[T,4\] (of mix)" told && grep -q "T: 1 to 9 (rows)" told && grep -qx " *x f32 \[4\]" told &&
        grep -qx " *-> mean f32 \[T,4\]" told || fail "inspect names: $(cat told)"
    "$sinter" inspect names.c >told || fail "inspect names.c"
    grep -q "T in 1..9 (rows)" told && grep -q "output  *mean  *f32\[T,4\]$" told || fail "inspect names.c: $(cat told)"
}

$section
exit $failed
