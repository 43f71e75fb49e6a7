#!/bin/sh
# test_deploy.sh SINTER SOURCE_DIR CC [CXX] SECTION [WRITER]: artefacts of stories260K in use:
# linked in an empty folder, run on other CPUs with qemu if installed, and as
# programs. Sections: link targets program sequences translator seq2seq variant bits labels embedder
# pictures training refuse systems wine_run web
set -u
sinter=$1 source=$2 cc=$3 cxx=$4 section=$5 writer=${6:-}
. "$source/tests/e2e/artefact/stories260k.sh"
prompt="1 403 407"
greedy() { # greedy COMMAND…
    "$@" 10 $prompt | tr '\n' ' ' | sed 's/ $//'
}

link() {
    compile out --archive --shared --threads openmp
    cp "$source/examples/deploy/generate.c" "$source/examples/deploy/next.cc" .
    strict="-Wall -Wextra -Wpedantic -Werror"
    $cc -std=c11 $strict generate.c -Iout out/story.o -lgomp -lm -o generate || fail "the C example"
    same "the C example" "$(greedy ./generate out/story.weights)" "$want"
    $cc -std=c11 $strict generate.c -Iout out/story.a -lgomp -lm -o with_a || fail "an archive"
    same "an archive" "$(greedy ./with_a out/story.weights)" "$want"
    $cc -std=c11 $strict generate.c -Iout out/story.so -Wl,-rpath,"$tmp/out" -o with_so || fail "a shared library"
    same "a shared library" "$(greedy ./with_so out/story.weights)" "$want"
    if command -v "$cxx" >/dev/null 2>&1; then
        $cxx -std=c++17 $strict next.cc -Iout out/story.o -lgomp -lm -o next || fail "the C++ example"
        same "the C++ example" "$(./next out/story.weights $prompt)" "${want%% *}"
    else
        echo "note: no C++ compiler: the C++ example is not built"
    fi
    # the object's undefined and exported symbols
    compile alone --threads none
    unknown=$(nm -u alone/story.o | awk '{print $2}' | grep -vxE 'open|lseek|mmap|munmap|madvise|close|mem(cpy|set|move)' | tr '\n' ' ')
    same "symbols of a plain object" "$unknown" ""
    unknown=$(nm -u out/story.o | awk '{print $2}' | grep -vxE 'open|lseek|mmap|munmap|madvise|close|mem(cpy|set|move)|omp_.*|GOMP_parallel|sched_(yield|getcpu)' | tr '\n' ' ')
    same "symbols of an OpenMP object" "$unknown" ""
    given=$(nm -g --defined-only out/story.o | awk '{print $3}' | grep -v '^story_' | tr '\n' ' ')
    same "names without the prefix" "$given" ""
    same "data that changes" "$(nm out/story.o | grep -ciE ' [bd] ')" 0
    # two artefacts in one program, with sessions in several threads
    "$sinter" compile "$model" --name other -o out --threads none --sequences 3 || fail "a second one"
    $cc -std=c11 $strict "$source/tests/e2e/artefact/together.c" -Iout out/story.o out/other.o -lgomp -lm -pthread -o two || fail "two artefacts"
    same "two artefacts" "$(./two)" "6 no error"
    # the output of inspect for each
    for f in out/story.o out/story.a out/story.so generate; do
        "$sinter" inspect $f >out.txt || fail "inspect $f"
        grep -q "artefact    story" out.txt && grep -q "entry       prefill" out.txt && grep -q "needs .* (" out.txt || fail "inspect $f"
    done
    "$sinter" inspect out/story.weights | grep -q "checksum right" || fail "inspect weights"
    "$sinter" inspect two | grep -c "^artefact" >n
    same "artefacts in a program" "$(cat n)" 2
}

on() { # on EMULATOR FOLDER: greedy tokens under it
    greedy $1 $2/generate $2/story.weights 2>/dev/null
}

# The embedding table is also the matrix of the last product: as f32 it alone would take 128 KB.
stores_once() { # stores_once FOLDER
    bytes=$(wc -c <"$1/story.weights")
    [ "$bytes" -lt 340000 ] || fail "$1: $bytes bytes of weights: the tied table is stored twice"
}

targets() {
    compile three --target x86-64-v2,x86-64-v3,x86-64-v4 --threads none
    $cc "$source/examples/deploy/generate.c" -Ithree three/story.o -lm -o three/generate || fail "three targets"
    if [ "$(uname -m)" = x86_64 ]; then
        same "three targets" "$(on "" three)" "$want"
        if command -v qemu-x86_64 >/dev/null 2>&1; then
            same "without AVX-512" "$(on "qemu-x86_64 -cpu Haswell" three)" "$want"
            same "without AVX2" "$(on "qemu-x86_64 -cpu Nehalem" three)" "$want"
            says "does not meet the requirements" qemu-x86_64 -cpu qemu64 three/generate three/story.weights 3 1
            # AVX-512F without the rest is not x86-64-v4; AVX that the system does not save is none
            same "part of AVX-512" "$(on "qemu-x86_64 -cpu Haswell,+avx512f" three)" "$want"
            same "AVX without XSAVE" "$(on "qemu-x86_64 -cpu Haswell,-xsave" three)" "$want"
            compile v3 --target x86-64-v3 --threads none --compute int8
            stores_once v3
            $cc "$source/examples/deploy/generate.c" -Iv3 v3/story.o -lm -o v3/generate || fail "v3"
            same "products of integers without VNNI" "$(on "qemu-x86_64 -cpu Haswell" v3)" "$want"
            says "does not meet the requirements" qemu-x86_64 -cpu Haswell,-bmi2 v3/generate v3/story.weights 3 1
            says "does not meet the requirements" qemu-x86_64 -cpu Haswell,-xsave v3/generate v3/story.weights 3 1
        else
            echo "note: no qemu-x86_64: older CPUs are not tried"
        fi
    fi
    for arch in aarch64 riscv64; do
        compile $arch --target $arch --threads none --emit asm
        if command -v $arch-linux-gnu-gcc >/dev/null 2>&1 && command -v qemu-$arch >/dev/null 2>&1; then
            $arch-linux-gnu-gcc -static "$source/examples/deploy/generate.c" -I$arch $arch/story.o -lm -o $arch/generate || fail "$arch"
            same "$arch" "$(on qemu-$arch $arch)" "$want"
        else
            echo "note: no $arch-linux-gnu-gcc or qemu-$arch: its code is not run"
        fi
    done
    compile a76 --target cortex-a76,cortex-a76,sve=256 --threads none --emit asm --compute int8 # sdot
    stores_once a76
    "$source/bench/inner_loops.py" --least 85 --asm aarch64/story.s || fail "inner loops of AArch64"
    "$source/bench/inner_loops.py" --least 75 --asm a76/story.s || fail "inner loops of SVE"
    grep -q 'sdot.z.*\.s, z.*\.b, z[0-7]\.b\[3\]' a76/story.s || fail "SVE without sdot by lane"
    if command -v aarch64-linux-gnu-objdump >/dev/null 2>&1; then
        aarch64-linux-gnu-objdump -d a76/story.o | grep -q 'sdot.*\.4b\[3\]' || fail "cortex-a76 without sdot by lane"
    fi
    if [ -x aarch64/generate ]; then
        aarch64-linux-gnu-gcc -static "$source/examples/deploy/generate.c" -Ia76 a76/story.o -lm -o a76/generate || fail a76
        for cpu in cortex-a76 max,sve-max-vq=1 max,sve-max-vq=2 max,sve-max-vq=4; do # the third has SVE of 256 bits
            same "$cpu" "$(on "qemu-aarch64 -cpu $cpu" a76)" "$want"
        done
        says "does not meet the requirements" qemu-aarch64 -cpu cortex-a53 a76/generate a76/story.weights 3 1
    fi
    "$sinter" compile --list-targets | grep -qx x86-64-v4 || fail "--list-targets"
    same "--target help" "$("$sinter" compile --target help)" "$("$sinter" compile --list-targets)"
}

text="Once upon a time"
# Several sequences at once in one artefact, of different lengths, each as alone.
sequences() {
    printf 'Once upon a time\nTom\nOne day, a dog and a cat\nThe sun\n' >prompts
    compile many --exe --sequences 3
    grep -q "past *i32 \[B\], read, 0 to P: tokens that each row holds" many/story.h || fail "the header lacks past"
    grep -qF "STORY_DECODE_LOGITS(B) ((int64_t)(B) * 512)" many/story.h || fail "the header lacks a size"
    many/story -f prompts --batch 3 -n 25 --seed 4 >out || fail "a batch"
    i=0
    while read -r line; do
        alone=$("$sinter" generate "$model" --tokenizer "$tokenizer" -p "$line" -n 25 --seed $((4 + i)))
        i=$((i + 1))
        same "text $i of a batch" "$(awk -v i=$i '/^==> [0-9]+ <==$/ { on = $2 == i; next } on' out)" "$alone"
    done <prompts
    for how in "--beams 3" "--best-of 3"; do
        # shellcheck disable=SC2086
        same "$how" "$(many/story -p "$text" -n 25 $how)" \
            "$("$sinter" generate "$model" --tokenizer "$tokenizer" -p "$text" -n 25 $how)"
    done
    says "opened for 3 sequences" many/story -p "$text" --beams 4
}

program() {
    told=$("$sinter" generate "$model" --tokenizer "$tokenizer" -p "$text" -n 30 --temperature 0)
    drawn=$("$sinter" generate "$model" --tokenizer "$tokenizer" -p "$text" -n 30 --seed 7 --top-p 0.9)
    compile exe --exe --json >out 2>err
    grep -q 'wrote exe/story.tokenizer ([1-9] files*, ' err || fail "no tokenizer among the files: $(cat err)"
    bytes=$(cat exe/story.tokenizer/* | wc -c)
    tr -d '\n' <out | grep -qE "exe/story.tokenizer\", *\"bytes\": $bytes" || fail "no tokenizer in: $(cat out)"
    same "artefacts that inspect finds in a program" "$("$sinter" inspect exe/story | grep -c ^artefact)" 1
    same "a program" "$(exe/story -p "$text" -n 30 --temperature 0)" "$told"
    same "a program that draws" "$(exe/story -p "$text" -n 30 --seed 7 --top-p 0.9)" "$drawn"
    same "one thread" "$(exe/story -p "$text" -n 30 --temperature 0 -t 1)" "$told"
    if ! ldd exe/story | grep -q libasan; then
        more=$(ldd exe/story | awk '{print $1}' | grep -vE 'linux-vdso|ld-linux|libc\.|libm\.|libgomp\.' | tr '\n' ' ')
        same "libraries of a program" "$more" ""
        case $($cc -print-file-name=libgomp.a) in
        /*) ldd exe/story | grep libgomp && fail "libgomp.a is not in the program" ;;
        esac
    fi
    given=$(nm -g --defined-only exe/story.o | awk '{print $3}' | grep -vE '^(story_.*|sn_deployed_artefact)$' | tr '\n' ' ')
    same "names of a program's object without the prefix" "$given" ""
    mkdir moved && cp -r exe/story exe/story.weights exe/story.tokenizer moved && rm -r exe
    same "a program elsewhere" "$(cd / && "$tmp/moved/story" -p "$text" -n 30 --temperature 0 --verify)" "$told"
    "$sinter" import "$model" --tokenizer "$tokenizer" -o folder 2>out || fail "import"
    echo '{"eos_token_id": [7, 286], "do_sample": true, "top_k": 3}' >folder/generation_config.json
    "$sinter" compile folder --name ends -o whole --exe --embed-weights || fail "compile a folder"
    { sh "$source/tests/e2e/artefact/files.sh" "$cc" "$source" "$sinter" && mkdir ends && mv whole/ends whole/ends.h ends && rm -r whole; } || fail "files"
    same "files beside a program that is one file" "$(echo ends/*)" "ends/ends ends/ends.h"
    same "defaults of sampling" "$(ends/ends -p "$text" -n 30 --seed 3 --verify)" "$("$sinter" generate folder -p "$text" -n 30 --seed 3)"
    told=$("$sinter" generate folder -p "$text" -n 30 --temperature 0)
    same "tokens that end a text" "$(ends/ends -p "$text" -n 30 --temperature 0)" "$told"
    same "how it ends" "$(ends/ends --prompt-ids "$prompt" -n 30 --temperature 0 --print-ids)" "$prompt ${want% 286*}"
    told=$("$sinter" generate "$model" --tokenizer "$tokenizer" -p "$text" -n 30 --temperature 0)
    grep -q "define ENDS_EOS_LIST {2, 7, 286}" ends/ends.h || fail "the header lacks the end tokens"
    moved/story --info | grep -q "^entry prefill" || fail "--info"
    printf '%s' "$text" | moved/story -f - -n 30 --temperature 0 >out || fail "standard input"
    same "standard input" "$(cat out)" "$told"
    says "tables of Unicode" moved/story --tokenizer "$source/tests/data/tokenizers/pieces/bert.json" -p x
    says "cannot be opened" moved/story --weights none -p x
    head -c 70000 moved/story.weights >cut
    says "truncated" moved/story --weights cut -p x
    cp moved/story.weights bad && printf x | dd of=bad bs=1 seek=9000 conv=notrunc 2>/dev/null
    says "checksum differs" moved/story --weights bad --verify -p x
    says "outside the vocabulary 0..511" moved/story --prompt-ids "512"
    says "no variant for target" moved/story --target x86-64-v9 -p x
    if ! ldd moved/story | grep -q libasan; then
        compile lone --exe --static --threads none --embed-weights --weights int8 --cache int8
        ldd lone/story >out 2>&1 && fail "a static program has libraries: $(cat out)"
        bare="$source/tests/e2e/artefact/bare.c"
        $cc $bare -Ilone lone/story.o -o bare && ./bare || fail "weights of the object by init"
        [ "$(uname -m)" != x86_64 ] || # nothing but memset and memcpy is needed
            $cc -static -nostdlib -Wl,--gc-sections,-e,main $bare -Ilone lone/story.o -o bare || fail "without a system"
        rm lone/story.o
        narrow=$("$sinter" generate "$model" --tokenizer "$tokenizer" -p "$text" -n 30 --temperature 0 --weights int8 --cache int8 --backend native)
        same "a static program" "$(lone/story -p "$text" -n 30 --temperature 0)" "$narrow"
        if command -v musl-gcc >/dev/null 2>&1; then
            compile lone --exe --static --threads none --embed-weights --weights int8 --cache int8 --cc musl-gcc
            same "a program with musl" "$(lone/story -p "$text" -n 30 --temperature 0)" "$narrow"
        fi
    fi
}

# Folders of Hugging Face's translation models: two SentencePiece models and vocab.json (Marian), languages (M2M-100);
# generation_config.json says how to search.
seq2seq() {
    mkdir marian m2m
    "$writer" write marian_text MarianTokenizer marian && "$writer" write m2m_100_text M2M100Tokenizer m2m || fail "write folders"
    printf 'hello world\nthe quick brown fox\n' >lines
    translate() { "$sinter" translate "$@" --backend native; }
    "$sinter" compile marian --name tr -o exe --exe || fail "compile a Marian model"
    same "a Marian model" "$(exe/tr -f lines --scores)" "$(translate marian -f lines --scores)"
    same "its tokens" "$(exe/tr -f lines --print-ids)" "$(translate marian -f lines --print-ids --beams 2)"
    same "a number of lines" "$(translate marian -f lines --print-ids | wc -l)" 2
    [ "$(exe/tr -p 'hello' --target-language fra --scores)" != "$(exe/tr -p 'hello' --scores)" ] || fail "no language"
    french=$(translate m2m -p hello --target-language fr --print-ids)
    german=$(translate m2m -p hello --target-language de --print-ids)
    same "the tokens of languages" $((${french%% *} - ${german%% *})) 8
    same "the default language" "$(translate m2m -p hello --source-language en)" "$(translate m2m -p hello)"
    says 'no token for the language "xx"' "$sinter" translate m2m -p hello --target-language xx
    # byte pairs have no template: bos and eos surround a text, as in BART
    rm m2m/vocab.json m2m/sentencepiece.bpe.model
    cp -r m2m ids
    "$sinter" tokenizer train lines --kind bpe --vocab 280 -o m2m >/dev/null || fail "train byte pairs"
    ends=$(printf hello | "$sinter" tokenizer encode m2m --bos --eos)
    same "bos and eos" "$(translate m2m -p hello --print-ids)" "$(translate ids -p "$ends" --print-ids)"
    . "$source/tests/e2e/artefact/web_translate.sh"
    web_rules
}

# An encoder-decoder: greedy, beam search, sampling, scores, a file.
translator() {
    names=$source/examples/models/aren-transliteration/model.bin
    printf 'آتزمون\nآتشيسون\nآرباكه\n' >lines
    "$sinter" compile "$names" --name tr -o exe --exe || fail "compile an encoder-decoder"
    same "greedy" "$(exe/tr -f lines --scores)" "$("$sinter" translate "$names" -f lines --scores --backend native)"
    same "drawn" "$(exe/tr -p آتزمون --temperature 1 --seed 5)" \
        "$("$sinter" translate "$names" -p آتزمون --temperature 1 --seed 5 --backend native)"
    same "token ids" "$(exe/tr -p آتزمون --print-ids -n 3)" \
        "$("$sinter" translate "$names" -p آتزمون --print-ids -n 3 --backend native)"
    "$sinter" compile "$names" --name tr -o beams --exe --beams 3 --embed-weights || fail "compile with beams"
    same "beams" "$(beams/tr -f - --length-penalty 1 --scores <lines)" \
        "$("$sinter" translate "$names" -f lines --beams 3 --length-penalty 1 --scores --backend native)"
    says "sampling needs --beams 1" beams/tr -p آتزمون --temperature 1
    says "line 1: the source is empty" exe/tr -p ""
    says "beams is for encoder-decoders" "$sinter" compile "$model" --name s -o x --beams 2
    . "$source/tests/e2e/artefact/web_translate.sh"
    web_names
}

# A trained model in C: weights and tokenizer of the checkpoint go into the program.
variant() {
    alibi=$source/examples/variants/alibi.c
    head -c 3000 "$source/examples/data/tinyshakespeare.txt" >text
    "$sinter" run "$alibi" train --text text -o trained -n 20 >out 2>&1 || fail "training: $(tail -1 out)"
    grep -q '"source":."alibi.c"' trained/config.json || fail "config.json names the folder of alibi.c"
    told=$("$sinter" generate "$alibi" --checkpoint trained -p First -n 30 --temperature 0)
    "$sinter" compile "$alibi" --checkpoint trained --name al -o exe --exe || fail "compile a checkpoint"
    same "a trained variant" "$(exe/al -p First -n 30 --temperature 0)" "$told"
    "$sinter" compile "$alibi" --checkpoint trained/model.safetensors --tokenizer trained --name al -o file --exe ||
        fail "compile a file"
    told=$("$sinter" generate "$alibi" --checkpoint trained/model.safetensors --tokenizer trained -p First -n 30 \
        --temperature 0)
    # the folder alone, from its graph, has the entries that the file gives, with the same arguments
    "$sinter" compile trained --name story -o graph || fail "compile a trained folder"
    "$sinter" compile "$alibi" --checkpoint trained --name story -o code || fail "compile the file"
    same "the header of a folder" "$(grep -v '^ \* Targets' graph/story.h)" "$(grep -v '^ \* Targets' code/story.h)"
    $cc -Werror "$source/examples/deploy/generate.c" -Igraph graph/story.o -lgomp -lm -o example || fail "the example"
    same "the example" "$(./example graph/story.weights 5 1 2 | tr '\n' ' ')" \
        "$("$sinter" generate trained --prompt-ids "1 2" -n 5 --temperature 0 --print-ids | cut -d ' ' -f 3-) "
    "$sinter" compile trained --name one -o one --entries cached || fail "compile a single entry"
    same "entries that were not asked for" "$(grep -c 'one_\(step\|loss\|forward\)(' one/one.h)" 0
    same "a trained variant's file" "$(file/al -p First -n 30 --temperature 0)" "$told"
}

# Products of bf16 have the same bits on CPUs with the instruction, without it, and of another architecture.
bits() {
    [ "$(uname -m)" = x86_64 ] || { echo "note: not x86-64: nothing is compared" && return; }
    cat >products.c <<'END'
#include <sinter/models.h>
SN_MODEL(m, o) {
    (void)o;
    sn_tensor x = sn_input(m, "x", SN_F32, sn_symbol(m, "T", 1, 64), 131);
    sn_entry_begin(m, "products");
    sn_tensor y = sn_linear(x, sn_param(m, "w", SN_F32, 77, 131), NULL);
    sn_output("y", y);
    sn_output("z", sn_matmul(sn_transpose(y, 1, 0), x));
}
END
    cat >bits.c <<'END'
#include "p.h"
#include <stdio.h>
#include <stdlib.h>
/* A line for each target that runs here: a hash of the results. Some operands are subnormal. */
int main(int argc, char **argv) {
    enum { T = 37, X = T * 131, Y = T * 77, Z = 77 * 131 };
    static float x[X], y[Y + Z];
    uint32_t r = 1;
    for (int i = 0; i < X; i++) {
        r = r * 1664525 + 1013904223;
        x[i] = (float)(int32_t)r * 0x1p-31f;
        if (i % 31 == 7) x[i] *= 0x1p-63f;
        if (i % 37 == 5) x[i] *= 0x1p-126f;
    }
    p m;
    const int code = p_open(&m, argv[argc - 1]);
    if (code) return printf("%s\n", p_message(code)), 1;
    void *work = aligned_alloc(64, (size_t)(p_products_workspace(&m, T) + 63) / 64 * 64);
    for (int t = 1; t <= 3; t++) {
        uint64_t h = 0;
        if (p_choose(&m, t) || p_products(&m, work, T, x, y, y + Y)) continue;
        for (size_t i = 0; i < sizeof y; i++) h = h * 1099511628211u + ((unsigned char *)y)[i];
        printf("%llx\n", (unsigned long long)h);
    }
    free(work);
    p_close(&m);
    return 0;
}
END
    : >hashes
    while read -r folder target compiler emulator; do
        "$sinter" compile products.c --compute bf16 --name p -o $folder --target $target --threads none -q || fail "$folder"
        command -v $compiler >/dev/null 2>&1 && { [ -z "$emulator" ] || command -v ${emulator%% *} >/dev/null 2>&1; } || continue
        $compiler -static bits.c -I$folder $folder/p.o -lm -o $folder/bits || fail "$folder: link"
        $emulator $folder/bits $folder/p.weights >>hashes 2>/dev/null || fail "$folder: run"
    done <<END
x86 x86-64-v3,x86-64-v4,znver4 $cc
haswell x86-64-v3 $cc qemu-x86_64 -cpu Haswell
aarch64 aarch64 aarch64-linux-gnu-gcc qemu-aarch64
arm-bf16 aarch64,+bf16 aarch64-linux-gnu-gcc qemu-aarch64 -cpu max
sve256 aarch64,sve=256 aarch64-linux-gnu-gcc qemu-aarch64 -cpu max,sve-max-vq=2
sve512 aarch64,+bf16,sve=512 aarch64-linux-gnu-gcc qemu-aarch64 -cpu max,sve-max-vq=4
END
    [ -s hashes ] || fail "no target ran"
    if command -v aarch64-linux-gnu-objdump >/dev/null 2>&1; then
        aarch64-linux-gnu-objdump -d arm-bf16/p.o | grep -q 'bfmlalb.*\.h\[2\]' || fail "aarch64,+bf16 without bfmlalb by element"
    fi
    same "different bits" "$(sort -u hashes | wc -l)" 1
    for cpu in max,sve-max-vq=1 max,sve-max-vq=4 max,sve=off; do # another length than the code is for
        [ -x sve256/bits ] || continue
        says "does not meet the requirements" qemu-aarch64 -cpu $cpu sve256/bits sve256/p.weights
    done
}

# A text classifier: the program prints what `sinter classify` prints; without a head it prints vectors.
labels() {
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
        printf '0\tab%sba\n1\txxy%syx\n2\tzz%szz\n' "$i" "$i" "$i"
    done >classes.txt
    cat >classes.json <<'END'
{"model": {"model_type": "bert", "max_position_embeddings": 16, "hidden_size": 16, "intermediate_size": 32,
  "num_hidden_layers": 1, "num_attention_heads": 2, "num_labels": 3}, "data": {"text": "classes.txt"},
 "schedule": {"rate": 3e-3}, "training": {"steps": 300, "batch": 8, "block": 12}}
END
    "$sinter" train classes.json -o kinds >out 2>&1 || fail "training: $(tail -1 out)"
    cut -f 2 classes.txt >lines
    numbers=$("$sinter" classify kinds -f lines --backend native)
    "$sinter" compile kinds --name plain -o exe --exe || fail "compile a classifier"
    same "classes without names" "$(exe/plain -f lines)" "$numbers"
    sed 's/^{/{"id2label": {"0": "quite good", "1": "bad"},/' kinds/config.json >config && mv config kinds/config.json
    told=$("$sinter" classify kinds -f lines --backend native)
    same "names" "$told" "$(echo "$numbers" | sed 's/^0 /quite good /; s/^1 /bad /')"
    for name in "quite good" bad 2; do
        echo "$told" | grep -q "^$name  [01]\.[0-9]" || fail "no line is of class $name: $told"
    done
    "$sinter" compile kinds --name kinds -o exe --exe || fail "compile a classifier with names"
    same "names of a program" "$(exe/kinds -f lines)" "$told"
    printf '#include "kinds.h"\n#include <stdio.h>\nint main(void) {\n%s\nreturn 0; }\n' \
        'for (int i = -1; i <= KINDS_LABELS; i++) printf("%s;", kinds_label(i) ? kinds_label(i) : "-");' >names.c
    $cc -std=c11 -Wall -Wextra -Werror names.c -Iexe -o names || fail "names of a header"
    same "names of a header" "$(./names)" "-;quite good;bad;-;-;"
    same "names from standard input" "$(exe/kinds -f - -t 1 <lines)" "$told"
    same "name of one text" "$(exe/kinds -p "$(head -1 lines)")" "$(echo "$told" | head -1)"
    same "a vector a token" "$(exe/kinds -p abba --all | awk '{print NF}' | sort -u)" 16
    "$sinter" inspect exe/kinds | grep -q "^classes     2 named" || fail "inspect"
    says "outside its range" exe/kinds -p "$(seq 40)"
    says "text is empty" exe/kinds -p ""
    "$sinter" compile kinds --name bare -o exe --exe --entries encode || fail "compile without the head"
    same "vectors of lines" "$(exe/bare -f lines | wc -l)" "$(wc -l <lines)"
    same "without the head" "$(exe/bare -p abba | awk '{print NF}')" 16
    # the program prints the mean over the tokens, the command scales it to norm 1
    { exe/bare -p abba && "$sinter" embed kinds -p abba --backend native; } | awk '
        NR == 1 { n = NF; for (i = 1; i <= n; i++) { x[i] = $i; s += $i * $i } }
        NR == 2 { for (i = 1; i <= NF; i++) { d = $i - x[i] / sqrt(s); bad += d > 1e-5 || d < -1e-5 } }
        END { exit !(NR == 2 && NF == n && n == 16 && !bad) }' || fail "a vector differs from that of embed"
    sed 's/quite good/quite\\ngood/' kinds/config.json >config && mv config kinds/config.json
    says "without line breaks" "$sinter" compile kinds --name kinds -o x --exe
    sed 's/"bad"/7/' kinds/config.json >config && mv config kinds/config.json
    says 'id2label' "$sinter" classify kinds -p ab
    says "take images" "$sinter" compile "$source/examples/models/mnist-vit/mnist_vit.npz" --name digits -o x --exe
}

# An encoder: the program is `sinter embed` of texts, with the modules and prompts of the folder.
embedder() {
    cat >words.json <<'END'
{"model": {"model_type": "bert", "max_position_embeddings": 16, "hidden_size": 16, "intermediate_size": 32,
  "num_hidden_layers": 1, "num_attention_heads": 2}, "data": {"text": "words.txt"},
 "training": {"steps": 1, "batch": 1, "block": 12}}
END
    printf 'abba\nxyyx\nab xy\nabba x\n' >words.txt
    "$sinter" train words.json -o words >out 2>&1 || fail "training: $(tail -1 out)"
    same_as() { # same_as FOLDER PROGRAM OPTIONS…
        folder=$1 program=$2
        shift 2
        same "$program $*" "$($program "$@")" "$("$sinter" embed "$folder" "$@" --backend native)"
    }
    "$sinter" compile words --name plain -o exe --exe || fail "compile an encoder"
    for how in "-f words.txt" "-p abba" "-f words.txt -p abba" "-f words.txt --similarity" "-f words.txt --json"; do
        # shellcheck disable=SC2086
        same_as words exe/plain $how
    done
    same "standard input" "$(exe/plain -f - -t 1 <words.txt)" "$(exe/plain -f words.txt)"
    same "a vector a token" "$(exe/plain -p abba --all | awk '{print NF}' | sort -u)" 16
    says "contradicts --similarity" exe/plain -f words.txt --all --similarity
    says "text is empty" exe/plain -p ""
    says "at most 16" exe/plain -p "$(cat words.txt)"
    exe/plain --help | grep -qE 'beams|chat|continue|top-p' && fail "options of generate"
    for option in $(exe/plain --help | grep -o '^ *\(-., \)*--[a-z-]*' | grep -o -- '--[a-z-]*' | grep -vE 'all|weights|target|verify|info'); do
        "$sinter" embed --help | grep -q -- "$option" || fail "an option that embed lacks: $option"
    done
    # the class token, scaled; prompts; at most 8 tokens
    mkdir words/1_Pooling
    cat >words/modules.json <<'END'
[{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
 {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
 {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]
END
    echo '{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}' >words/1_Pooling/config.json
    echo '{"prompts": {"query": "x", "document": "yb", "other": "a"}, "default_prompt_name": "other"}' \
        >words/config_sentence_transformers.json
    echo '{"max_seq_length": 8}' >words/sentence_bert_config.json
    "$sinter" compile words --name full -o exe --exe --entries embed || fail "compile an embedder"
    for how in "-f words.txt" "-p abba" "-f words.txt -p abba" "-p abba --prompt-name query" "-p abbaabbaabba --truncate"; do
        # shellcheck disable=SC2086
        same_as words exe/full $how
    done
    [ "$(exe/full -p abba)" = "$(exe/plain -p abba)" ] && fail "the modules have no effect"
    says "at most 8" exe/full -p abbaabbaabba
    says 'no prompt called "none"' exe/full -p abba --prompt-name none
    says "needs the entry encode" exe/full -p abba --all
    says "a program calls the entries" "$sinter" compile words --name x -o x --exe --entries loss
}

# The header of an image model says what pixels are: a program that follows it finds the digits.
pictures() {
    vit=$source/examples/models/mnist-vit/mnist_vit.npz
    digits=$source/examples/data/mnist-1000-images.idx3-ubyte
    "$sinter" compile "$vit" --name vit -o out || fail "compile a model of images"
    grep -q 'x / 255 of bytes x, because the model normalises them itself' out/vit.h || fail "how pixels are normalised"
    cat >digits.c <<'END'
#include "vit.h"
#include <stdio.h>
#include <stdlib.h>
enum { SIDE = VIT_IMAGE_SIDE, N = 50, SIZE = VIT_IMAGE_CHANNELS * SIDE * SIDE };
static unsigned char file[16 + N * SIZE];
static float pixels[N * SIZE], logits[N * 10];
int main(int argc, char **argv) {
    static const float mean[] = VIT_IMAGE_MEAN, std[] = VIT_IMAGE_STD;
    vit m;
    FILE *f = fopen(argv[argc - 1], "rb");
    if (!f || fread(file, sizeof file, 1, f) != 1 || vit_open(&m, "out/vit.weights")) return 1;
    for (int i = 0; i < N * SIZE; i++) pixels[i] = ((float)(file[16 + i] * VIT_IMAGE_SCALE) - mean[0]) / std[0];
    void *work = aligned_alloc(64, (size_t)(vit_forward_workspace(&m, N) + 63) / 64 * 64);
    if (vit_forward(&m, work, N, pixels, logits)) return 2;
    for (int i = 0; i < N; i++) {
        int best = 0;
        for (int c = 1; c < 10; c++) best = logits[10 * i + c] > logits[10 * i + best] ? c : best;
        printf("%d\n", best);
    }
    return fclose(f);
}
END
    $cc -std=c11 -Wall -Wextra -Werror digits.c -Iout out/vit.o -lgomp -lm -o digits || fail "a program of images"
    tail -c +9 "$source/examples/data/mnist-1000-labels.idx1-ubyte" | head -c 50 | od -An -v -tu1 -w1 | tr -d ' ' >classes
    ./digits "$digits" >found || fail "a program of images ends with $?"
    right=$(paste found classes | awk '$1 == $2' | wc -l)
    [ "$right" -ge 40 ] || fail "only $right of 50 digits"
}

# A training step and a forward pass on the same state; parameters by name; a library with a name of its own.
training() {
    strict="-Wall -Wextra -Wpedantic -Werror"
    cp "$source/examples/deploy/train.c" .
    "$sinter" compile --train "$source/examples/train/shakespeare.json" --entries forward --name training -o out --shared ||
        fail "compile a training step"
    grep -q '^#define TRAINING_VOCAB 69 ' out/training.h && grep -q '^#define TRAINING_CONTEXT 64 ' out/training.h ||
        fail "no constants in training.h"
    "$sinter" compile --train "$source/examples/train/shakespeare.json" --rate-argument --name training -o rate ||
        fail "compile a training step that takes the rate"
    grep -q '^int training_train_step(.*const float \*learning_rate' rate/training.h &&
        grep -q ' learning_rate f32 \[\], read, at least 0: ' rate/training.h || fail "no rate among the arguments"
    $cc -std=c11 $strict train.c -Iout out/training.so -Wl,-rpath,"$tmp/out" -o train || fail "the example of training"
    objdump -p out/training.so | grep -q 'SONAME  *training.so$' || fail "no SONAME"
    told=$(./train out/training.weights 60) || fail "training: $told"
    echo "$told" | awk '/^step/ { if (!first) first = $4; last = $4 } /^next/ { next_token = $3 } /^after/ { changed = $4 }
        /wte/ { size = $2 } END { exit !(last < first / 2 && next_token == 1 && changed == 2 && size == 8832) }' || fail "training: $told"
}

refuse() {
    says "backend" "$sinter" compile "$model" --name s -o x --backend onednn
    says "C identifier" "$sinter" compile "$model" --name 1st -o x
    says "nearest are x86-64-v" "$sinter" compile "$model" --target x86-64-v5 --name s -o x
    says "'avx2' is not a feature of this architecture; known are relaxed-simd (" "$sinter" compile "$model" --target wasm32,+avx2 --name s -o x
    says "all code for AArch64 uses neon" "$sinter" compile "$model" --target aarch64,-neon --name s -o x
    says "os=windows" "$sinter" compile "$model" --target wasm64 --name s -o x
    says "(browser) excludes --exe" "$sinter" compile "$model" --target wasm32 --exe --name s -o x
    says "excludes --shared: link NAME.obj" "$sinter" compile "$model" --target x86-64-v3,os=windows --shared --name s -o x
    says "excludes --exe: link NAME.o " "$sinter" compile "$model" --target x86-64-v3,os=macos --exe --name s -o x
    says "there is linux windows macos" "$sinter" compile "$model" --target x86-64-v3,os=beos --name s -o x
    says "different architectures or systems" "$sinter" compile "$model" --target x86-64-v3,x86-64-v4,os=windows --name s -o x
    says "excludes --page: pages and workers are for --target wasm32" "$sinter" compile "$model" --page --name s -o x
    says "excludes --threads workers" "$sinter" compile "$model" --threads workers --name s -o x
    says "different architectures" "$sinter" compile "$model" --target x86-64-v3,aarch64 --name s -o x
    says "expected forward" "$sinter" compile "$model" --entries generate -o x
    says "no entry 'encode' for --entries: this one has forward, loss, cached, step" \
        "$sinter" compile "$model" --entries cached,encode -o x
    says "no entry 'step' for --entries: this one has forward, loss, encode, embed" \
        "$sinter" compile "$source/examples/models/mnist-vit/mnist_vit.npz" --entries step -o x
    config=$source/examples/train/shakespeare.json
    says "no entry 'encode'" "$sinter" compile --train "$config" --entries encode -o x
    for option in "--weights int8" "--compute int8" "--beams 2" "--sequences 2" "--context 8" "--tokenizer x"; do
        # shellcheck disable=SC2086
        says "train contradicts ${option%% *}" "$sinter" compile --train "$config" $option -o x
    done
    says "rate-argument has no effect without --train" "$sinter" compile "$model" --rate-argument --name s -o x
    says "give a model" "$sinter" compile -o x
    says "needs 'no-such-cc'" "$sinter" compile "$model" --name s -o x --shared --cc no-such-cc
    says "this machine's architecture" "$sinter" compile "$model" --name s -o x --exe --target riscv64
    : >file
    says "file" "$sinter" compile "$model" --name s -o file/folder
    if [ "$(id -u)" != 0 ]; then
        mkdir closed && chmod 500 closed
        says "closed" "$sinter" compile "$model" --name s -o closed/folder
    fi
    says "No such file" "$sinter" inspect none.o
}

# Objects for Windows and macOS: what they need; with MinGW the C example is linked.
systems() {
    compile windows --target x86-64-v2,os=windows,x86-64-v3,os=windows --threads none --archive
    compile macos --target apple-m1,os=macos --threads none --entries cached
    compile macos64 --target x86-64-v3,os=macos --threads none --entries cached
    nm=$(command -v llvm-nm-19 || command -v llvm-nm)
    if [ -n "$nm" ]; then
        unknown=$($nm -u windows/story.obj | awk '{print $NF}' | grep -vxE 'CreateFileA|GetFileSizeEx|CreateFileMappingA|MapViewOfFile|UnmapViewOfFile|CloseHandle|mem(cpy|set|move)' | tr '\n' ' ')
        same "symbols of an object for Windows" "$unknown" ""
        for f in macos macos64; do
            unknown=$($nm -u $f/story.o | awk '{print $NF}' | grep -vxE '_(open|lseek|mmap|munmap|close|mem(cpy|set|move)|_{0,2}bzero)' | tr '\n' ' ')
            same "symbols of an object for $f" "$unknown" ""
        done
        given=$($nm -g --defined-only windows/story.obj | awk '{print $NF}' | grep -vE '^(story_|@feat.00)' | tr '\n' ' ')
        same "names without the prefix" "$given" ""
    else
        echo "note: no llvm-nm: symbols of COFF and Mach-O objects are not looked at"
    fi
    ld=$(command -v ld64.lld-19 || command -v ld64.lld)
    [ -n "$ld" ] || echo "note: no ld64.lld (Debian: lld-19): objects for macOS are not linked"
    while [ -n "$ld" ] && read -r folder arch version; do # a dynamic library takes no SDK
        $ld -arch $arch -platform_version macos $version $version -dylib -undefined dynamic_lookup $folder/story.o -o $folder/libstory.dylib ||
            fail "link an object for $folder"
        [ -z "$nm" ] || $nm -g --defined-only $folder/libstory.dylib | grep -q ' T _story_prefill$' || fail "no entry in a library for $folder"
    done <<END
macos arm64 11.0
macos64 x86_64 10.15
END
    "$sinter" inspect windows/story.obj | grep -q "x86_64-w64-windows-gnu" || fail "inspect an object for Windows"
    mingw
}

# mingw: links the C example with windows/story.obj and .lib; fails without MinGW
mingw() {
    gcc=x86_64-w64-mingw32-gcc
    if ! command -v $gcc >/dev/null 2>&1; then
        echo "SKIPPED: no $gcc (Debian: gcc-mingw-w64-x86-64): objects for Windows are not linked"
        return 1
    fi
    for f in obj lib; do
        $gcc -std=c11 -Wall -Wextra -Wpedantic -Werror "$source/examples/deploy/generate.c" -Iwindows windows/story.$f -o $f.exe || fail "link story.$f"
    done
    # threads of Win32 in a program of the user's
    lib=$(dirname "$sinter")/../windows/libsinter_windows.a
    api=$(dirname "$sinter")/../api
    sed -e 's/#include "story.h"/#include <sinter\/threads.h>\n&/' \
        -e 's/    if (code) return fail(argv\[1\], code);/&\n    sn_error err = {0};\n    sn_threads threads;\n    if (!sn_threads_init(\&threads, 3, \&err)) return 1;\n    story_set_threads(\&m, threads.n);\n    m.pool = (story_threads *)\&threads;/' \
        -e 's/    story_close(&m);/&\n    sn_threads_free(\&threads);/' "$source/examples/deploy/generate.c" >threads.c
    [ "$(grep -c 'sn_threads_init\|m\.pool\|sn_threads_free' threads.c)" = 3 ] || fail "no threads in the program"
    $gcc -std=c11 -Wall -Wextra -Werror threads.c -Iwindows "-I$api" windows/story.obj "$lib" -o threads.exe || fail "threads of Win32"
    # a program, which needs libraries of the system only
    compile windows --target x86-64-v2,os=windows,x86-64-v3,os=windows --exe --json >out 2>err
    same "a program for Windows" "$(head -c 2 windows/story.exe)" MZ
    grep -q "windows/story.exe" out || fail "no program among the files: $(cat out)"
    needs=$(x86_64-w64-mingw32-objdump -p windows/story.exe | awk '/DLL Name/ { print tolower($3) }' | sort | tr '\n' ' ')
    same "libraries of a program for Windows" "$needs" "kernel32.dll msvcrt.dll "
    if [ "$($gcc -print-file-name=libpcre2-8.a)" = libpcre2-8.a ]; then
        says "needs libpcre2-8.a for the regular expressions" "$sinter" compile "$source/tests/data/gguf/gpt2.gguf" -o x --exe --target x86-64-v2,os=windows
    fi
}

# The C example for Windows, run in Wine.
wine_run() {
    if ! command -v wine >/dev/null 2>&1; then
        echo "SKIPPED: no wine: programs for Windows are not run"
        return
    fi
    compile windows --target x86-64-v2,os=windows,x86-64-v3,os=windows --threads none --archive
    mingw || return
    export WINEDEBUG=-all WINEPREFIX="$tmp/wine"
    same "Windows" "$(greedy wine obj.exe windows/story.weights | tr -d '\r')" "$want"
    same "threads of Win32" "$(greedy wine threads.exe windows/story.weights | tr -d '\r')" "$want"
    says "GetLastError says why" wine lib.exe none 3 1
    wine_program
    . "$source/tests/e2e/artefact/wine_encoders.sh"
}

# The program for Windows, beside the same one for Linux.
wine_program() {
    begin="Once upon a time"
    compile linux --target x86-64-v2,x86-64-v3 --exe
    mkdir "Zoë"
    cp -r windows/story.exe windows/story.weights windows/story.tokenizer "Zoë"
    exe="wine Zoë/story.exe"
    for how in "--temperature 0" "--seed 7 --top-p 0.9" "--temperature 0 -t 1" "--temperature 0 -t 2" "--seed 7 -t 3" "--temperature 0 --copy-weights --verify"; do
        # shellcheck disable=SC2086
        same "a program for Windows, $how" "$($exe -p "$begin" -n 30 $how)" "$(linux/story -p "$begin" -n 30 $how)"
    done
    same "letters that are not ASCII, and no pattern of files" "$($exe -p "Zoë and *" -n 9 --seed 1)" "$(linux/story -p "Zoë and *" -n 9 --seed 1)"
    head -c 5000 windows/story.weights >short
    # the same messages, but for the name of what says why a file cannot be opened
    for how in "--bogus" "-p x --weights none" "-p x --weights short" "-p x -t 5000" "-p x --target none" "-p x --tokenizer none" "-p x --tokenizer short" "-f none" "-p x --top-p 7"; do
        # shellcheck disable=SC2086
        $exe $how >told 2>&1
        code=$?
        # shellcheck disable=SC2086
        linux/story $how >want 2>&1
        same "the exit code of $how" $code $?
        sed -i 's/; \(errno\|GetLastError\) says why.*: /: /' told want
        same "$how" "$(cat told)" "$(cat want)"
    done
    rm "Zoë/story.weights"
    says "cannot be opened" $exe -p x
    # enough work for several threads, of the program and of OpenMP
    ids="1 403 407 261 378 432 383 286 261 376 298 315 421"
    for how in none openmp; do
        "$sinter" compile --preset gopher-44m --weights int8 --name large -o $how --exe --target x86-64-v3,os=windows --threads $how || fail "$how"
    done
    "$sinter" compile --preset gopher-44m --weights int8 --name large -o here --exe --target x86-64-v3 || fail "here"
    wanted=$(here/large --prompt-ids "$ids" -n 8 --seed 3)
    for n in 1 2 3; do
        same "$n threads of the program" "$(wine none/large.exe --prompt-ids "$ids" -n 8 --seed 3 -t $n)" "$wanted"
        same "$n threads of OpenMP" "$(wine openmp/large.exe --prompt-ids "$ids" -n 8 --seed 3 -t $n)" "$wanted"
    done
    strip -o size linux/story && x86_64-w64-mingw32-strip -o size.exe windows/story.exe
    echo "bytes of the program for Linux: $(wc -c <linux/story), stripped $(wc -c <size); for Windows: $(wc -c <windows/story.exe), stripped $(wc -c <size.exe)"
}

# A WebAssembly module with its script, in Node.
web() {
    says "needs the linker 'no-such-ld'" "$sinter" compile "$model" --name s -o x --target wasm32 --cc no-such-ld
    if ! command -v wasm-ld-19 >/dev/null 2>&1 && ! command -v wasm-ld >/dev/null 2>&1; then
        echo "SKIPPED: no wasm-ld (Debian: lld-19): WebAssembly modules are not tested"
        return
    fi
    says "excludes a second target" "$sinter" compile "$model" --target wasm32,wasm32,+relaxed-simd --name s -o x
    mkdir web && echo mine >web/story.a
    compile web --target wasm32 --page --entries cached >out 2>&1
    grep -q "does not read" out && fail "a tokenizer.bin is not known"
    same "a file of the user" "$(cat web/story.a)" mine
    [ ! -e web/story.wasm.o ] || fail "the objects are still there"
    "$sinter" inspect web/story.wasm | grep -q "target      wasm32" || fail "inspect a module"
    [ "$(wc -c <web/story.wasm)" -lt 300000 ] || fail "the module is larger than 300 KB"
    "$sinter" compile "$source/examples/models/mnist-vit/mnist_vit.npz" --name vit -o web --target wasm32 || fail "images"
    "$sinter" compile "$model" --name ints -o web --target wasm32 --entries cached --compute int8 || fail "integers"
    # blocks with f16 scales; lengths whose products are tested for overflow
    "$sinter" compile "$source/tests/data/gguf/llama.gguf" --name half -o web --target wasm32 --entries cached --level 1 --page >out 2>&1 || fail "f16"
    grep -q "half.js does not read this tokenizer .*the page cannot load" out || fail "no warning of a page without tokenizer"
    "$sinter" compile "$source/tests/data/onnx/llama.onnx" --name dims -o web --target wasm32 || fail "lengths of ONNX"
    if ! command -v node >/dev/null 2>&1; then
        echo "SKIPPED: no node: the modules are not run"
        return
    fi
    echo '{"type": "module"}' >web/package.json
    cat >web/run.js <<'END'
import fs from 'node:fs';
import * as story from './story.js';
import * as vit from './vit.js';
import * as ints from './ints.js';
import * as half from './half.js';
import * as dims from './dims.js';
const folder = process.argv[2];
let loaded = 0;
const m = await story.load({ verify: true, onProgress: (n, of) => { loaded = n / of; } });
console.log('loaded', loaded, WebAssembly.Module.imports(await WebAssembly.compile(fs.readFileSync('web/story.wasm'))).length);
const ids = [1, 403, 407];
console.log('tokens', [...m.generateTokens(ids, { maxTokens: 10 })].join(' '));
console.log('text', JSON.stringify('Once upon a time' + [...m.generate('Once upon a time', { maxTokens: 60 })].join('')));
console.log('decode', m.tokenizer.decode(m.encode('Zoë, 1 €!')));
// a state continues where it was, also as a copy; draws depend on the seed alone
const s = m.newState(), again = m.newState();
const first = [...m.generateTokens(ids, { maxTokens: 4, state: s })];
again.restore(s.save());
const rest = (state) => [...m.generateTokens([first[3]], { maxTokens: 6, state })].join(' ');
console.log('states', first.join(' '), rest(s), rest(again) === rest(again) || 'differ');
const drawn = (seed) => [...m.generateTokens(ids, { maxTokens: 20, temperature: 1, topP: 0.9, seed })].join();
console.log('draws', drawn(1) === drawn(1), drawn(1) === drawn(2));
// which tokens are drawn, against a sort of all of them; with one left the draw is the likeliest
const { logits: all } = m.run('prefill', { T: 3, P: 0 }, { tokens: ids }, m.newState());
const order = [...all.keys()].sort((a, b) => all[b] - all[a]), mass = all.reduce((sum, x) => sum + Math.exp(x / 2), 0);
const count = (sum) => { let n = 0; while (n < order.length && sum > 0) sum -= Math.exp(all[order[n++]] / 2) / mass; return n; };
const tried = (o) => {
  const found = new Set();
  for (let seed = 0; seed < 120; seed++)
    found.add([...m.generateTokens(ids, { maxTokens: 1, temperature: 2, seed, ...o })][0]);
  return found;
};
const within = (o, n) => { const found = tried(o); return found.size > n / 2 && [...found].every((t) => order.indexOf(t) < n); };
console.log('drawn', within({ topK: 7 }, 7), within({ topP: 0.3 }, count(0.3)), within({ topK: 9, topP: 0.3 }, Math.min(9, count(0.3))),
  tried({}).size > tried({ topP: 0.3 }).size, [...tried({ topK: 1 })][0] === first[0], tried({ topP: 1e-9 }).size);
console.log('ints', [...(await ints.load({ tokenizer: false })).generateTokens(ids, { maxTokens: 10 })].join(' '));
const wrong = (what, call) => { try { call(); console.log(what, 'passes'); } catch (e) { console.log(what, e.name, e.message); } };
wrong('length', () => m.run('decode', { P: 512 }, { tokens: [1] }, s));
wrong('token', () => m.run('decode', { P: 0 }, { tokens: [512] }, s));
wrong('entry', () => m.run('forward'));
wrong('state', () => m.run('decode', { P: 0 }, { tokens: [1] }));
wrong('fraction', () => m.run('decode', { P: 0 }, { tokens: [1.5] }, s));
wrong('nan', () => [...m.generateTokens([NaN])]);
wrong('short', () => s.restore(new Uint8Array(3)));
wrong('task', () => m.classify('x'));
again.free();
wrong('freed', () => m.run('decode', { P: 0 }, { tokens: [1] }, again));
wrong('saved', () => again.save());
wrong('full', () => [...m.generateTokens(new Array(513).fill(403))]);
const weights = fs.readFileSync('web/story.weights'), other = await story.load({ weights: weights.buffer });
const given = (bytes) => story.load({ verify: true, weights: bytes });
// loading calls both entries, unless it should not
const { run } = story.Model.prototype, called = [];
story.Model.prototype.run = function (name, ...rest) { called.push(name); return run.call(this, name, ...rest); };
await story.load({ weights, warmUp: false });
called.push('and');
await story.load({ weights });
console.log('called', ...called);
story.Model.prototype.run = run;
wrong('foreign', () => m.run('decode', { P: 0 }, { tokens: [1] }, other.newState()));
await story.load({ code: './none.wasm' }).catch((e) => console.log('code', e.name, e.message));
await given(weights.subarray(0, 8192)).catch((e) => console.log('short', e.message));
const damaged = new Uint8Array(weights);
damaged[9000] ^= 1;
await given(damaged).catch((e) => console.log('damaged', e.message));
damaged[16] ^= 1;
await given(damaged).catch((e) => console.log('other', e.message));
// a picture of each row of the file of digits
const digits = await vit.load(), images = fs.readFileSync(`${folder}/mnist-1000-images.idx3-ubyte`);
const labels = fs.readFileSync(`${folder}/mnist-1000-labels.idx1-ubyte`);
let right = 0;
for (let i = 0; i < 1000; i++) {
  const rgba = new Uint8Array(4 * 784);
  for (let k = 0; k < 784; k++) rgba.fill(images[16 + 784 * i + k], 4 * k, 4 * k + 4);
  right += digits.classify(digits.pixels(rgba))[0].index === labels[8 + i];
}
console.log('digits', right);
const h = await half.load({ tokenizer: false }), d = await dims.load();
wrong('language', () => d.classify('x'));
console.log('half', [...h.generateTokens([1, 5, 9], { maxTokens: 8 })].join(' '));
const six = { input_ids: [1, 2, 3, 4, 5, 6], attention_mask: [1, 1, 1, 1, 1, 1], position_ids: [0, 1, 2, 3, 4, 5] };
const { logits } = d.run('forward', { batch: 1, sequence: 6 }, six);
console.log('dims', logits.length, logits.every(Number.isFinite));
END
    node web/run.js "$source/examples/data" >web/out 2>&1 || fail "the module in Node ends with $?"
    text=$("$sinter" generate "$model" --tokenizer "$tokenizer" -p "Once upon a time" --temperature 0 -n 60 | head -1)
    half=$("$sinter" generate "$source/tests/data/gguf/llama.gguf" --prompt-ids "1 5 9" --print-ids --temperature 0 -n 8)
    half=${half#1 5 9 }
    for line in "loaded 1 0" "tokens $want" "text \"$text" "decode Zoë, 1 €!" "states ${want% 376 *} 376 298 315 421" \
        "draws true false" "drawn true true true true true 1" "ints $want" "length SinterError story: decode: P is 512, not 0 to 511" "entry .*there are prefill, decode" \
        "token .*an element of 'tokens' is outside 0..511" "state .*decode needs a state" "full .*exceed the context" \
        "short .*8192 bytes of weights, expected" "damaged .*checksum differs" "other .*belongs to another model" "digits 858" \
        "half $half" "dims 66 true" "called and prefill decode" "fraction SinterError .*element 0 of 'tokens' is 1.5, not an integer of type i32" \
        "nan SinterError .*is NaN" "short SinterError .*a saved state has" "task SinterError .*not a classifier" \
        "freed SinterError .*was freed" "saved SinterError .*was freed" "foreign SinterError .*another model" \
        "code SinterError .*none.wasm: .*no such file" "language SinterError .*not a classifier"; do
        grep -q "^$line" web/out || fail "no line \"$line\""
    done
    [ $failed = 0 ] || cat web/out
    . "$source/tests/e2e/artefact/web_text.sh"
    . "$source/tests/e2e/artefact/web_loads.sh"
    . "$source/tests/e2e/artefact/web_workers.sh"
}

# Every header is strict C99 and C++17.
headers() {
    strict="-pedantic -Wall -Wextra -Wshadow -Werror -fsyntax-only"
    for h in $(find . -name '*.h' ! -path './cache/*'); do
        $cc -std=c99 $strict -xc -include "$h" /dev/null || fail "$h is no C99"
        if command -v "$cxx" >/dev/null 2>&1; then
            $cxx -std=c++17 $strict -xc++ -include "$h" /dev/null || fail "$h is no C++17"
        fi
    done
}

$section
headers
exit $failed
