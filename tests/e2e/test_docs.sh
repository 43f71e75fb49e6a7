#!/bin/sh
# test_docs.sh SINTER SOURCE_DIR CC BUILD_DIR: runs the blocks of README.md and docs/*.md: lines of "sh"
# blocks unchanged, "c" blocks inside the code that frame() returns. Lines that are not run are in
# skipped(), with the reason. test_tutorial.sh runs docs/tutorial.md.
sinter=$1 source=$2 cc=$3 build=$4
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}" LC_ALL=C.UTF-8 PATH="$tmp/bin:$PATH"
failed=0 ran=0
sanitize= # what a program needs to link with a sanitizer's build; examples free nothing
if grep -q __asan_init "$sinter"; then sanitize='-fsanitize=address,undefined'; fi
fail() {
    echo "FAILED: $*"
    failed=1
}

# Prints why a line is not run; fails if there is no reason.
skipped() {
    case $1 in
    ./run.sh* | ./test.sh* | "cmake --"*) echo "builds, tests or installs all of Sinter" ;;
    "cpack "*) echo "half a minute: test packages" ;;
    "cc model.c "*) echo "needs an installed Sinter: test install" ;;
    "sinter run FILE.c [COMMAND"*) echo "a form, no command" ;;
    "sinter run examples/variants/alibi.c check"*) echo "seconds: test cli_check" ;;
    "sinter run examples/variants/alibi.c bench"*) echo "seconds: test bench_model" ;;
    "sinter train examples/train/shakespeare.json"*) echo "a minute: test_train_run, cli_train" ;;
    *" shakespeare"*) echo "needs the model of the line above" ;;
    "mpirun "* | "mpiexec "* | "srun "*) echo "needs MPI: test ranks" ;;
    "mpicc "*) echo "needs MPI: long_deploy_ranks_openmpi" ;;
    "sinter bench "*) echo "minutes: tests bench_*" ;;
    "sinter plan "*) echo "seconds: test_plan" ;;
    "sinter quantize MODEL "*" -o small "* | "sinter "*" small "*) echo "seconds: test cli_quantize" ;;
    "sinter embed "* | "sinter answer "*) echo "needs an encoder, of which none is shipped: test_text_heads" ;;
    "aarch64"* | "qemu-aarch64"*) echo "needs tools for another machine: test deploy_targets" ;;
    "x86_64-w64-mingw32"*) echo "needs MinGW: test deploy_systems" ;;
    *"os=windows"*"--exe"* | "wine "*) echo "needs MinGW and Wine: tests deploy_systems, long_deploy_wine" ;;
    *"--target wasm32"*) echo "needs wasm-ld: test deploy_web" ;;
    *CLASSIFIER* | out/mood*) echo "needs a trained classifier: test deploy_labels" ;;
    *) return 1 ;;
    esac
}

# The code around a block of C; "BLOCK" marks its position. Blocks are identified by their first lines.
frame() {
    case $1 in
    '#include "small.h"'*) printf 'BLOCK\n' ;; # a model for sinter run
    'sn_module *m = sn_module_new("tiny");'*) printf 'BLOCK\n' >before; printf 'LATER\n' ;;
    'sn_error err = {0};'*)
        cat <<'END'
#include <sinter/sinter.h>
static bool save(void) {
    static float a[1000 * 64], b[64 * 64], c[64];
    for (int i = 0; i < 1000 * 64; i++) a[i] = (float)(i % 7);
    const sn_weight w[] = {{.name = "wte.weight", .dtype = SN_F32, .rank = 2, .shape = {1000, 64}, .bytes = sizeof a, .data = a},
                           {.name = "fc.weight", .dtype = SN_F32, .rank = 2, .shape = {64, 64}, .bytes = sizeof b, .data = b},
                           {.name = "fc.bias", .dtype = SN_F32, .rank = 1, .shape = {64}, .bytes = sizeof c, .data = c}};
    return sn_weights_save("model.safetensors", w, 3, NULL, 0, NULL);
}
int main(void) {
    if (!save()) return 1;
BEFORE
BLOCK
    if (err.code) return printf("%s\n", err.message);
    return result[0] == (float)(7 * 64 % 7) ? 0 : printf("%g\n", result[0]);
}
END
        ;;
    'sn_tensor loss = sn_mean_all'*)
        cat <<'END'
#include <sinter/sinter.h>
int main(void) {
    sn_module *m = sn_module_new("training");
    sn_entry_begin(m, "forward");
    sn_tensor logits = sn_nn_linear(sn_input(m, "x", SN_F32, 4, 8), "fc", 5, SN_BIAS);
    sn_tensor targets = sn_input(m, "targets", SN_I32, 4);
BLOCK
    sn_error err = {0};
    sn_program *p = sn_compile(m, NULL, &err);
    return p ? 0 : printf("%s\n", err.message);
}
END
        ;;
    '#include <sinter/lm.h>'*) printf 'BLOCK\n' ;;
    '/* x [B, T, width] after'*)
        cat <<'END'
#include <sinter/models.h>
BLOCK
int main(void) {
    sn_module *m = sn_module_new("past");
    for (int cached = 0; cached < 2; cached++) {
        sn_entry_begin(m, cached ? "decode" : "forward");
        sn_forward_ctx s = {.m = m, .B = 2, .T = 4, .capacity = cached};
        sn_output("y", with_past(&s, sn_input(m, "x", SN_F32, 2, 4, 8), "past", 3));
    }
    sn_error err = {0};
    sn_program *p = sn_compile(m, NULL, &err);
    return p ? 0 : printf("%s\n", err.message);
}
END
        ;;
    '/* q [B, H, T/R, d], k'*)
        cat <<'END'
#include <sinter/sinter.h>
BLOCK
int main(void) {
    sn_module *m = sn_module_new("ring");
    sn_entry_begin(m, "forward");
    sn_tensor x = sn_input(m, "x", SN_F32, 1, 2, 8, 16);
    sn_output("y", attend(x, x, x));
    sn_error err = {0};
    return sn_module_ok(m, &err) ? 0 : printf("%s\n", err.message);
}
END
        ;;
    '/* x [B, T, d], T a number'*)
        cat <<'END'
#include <sinter/sinter.h>
BLOCK
int main(void) {
    sn_module *m = sn_module_new("divided");
    sn_entry_begin(m, "forward");
    sn_mesh(m, "context", 2);
    sn_tensor w = sn_input(m, "w", SN_F32, 32, 32);
    sn_output("y", block(sn_input(m, "x", SN_F32, 1, 16, 32), w, w, w, w));
    sn_error err = {0};
    return sn_module_ok(m, &err) ? 0 : printf("%s\n", err.message);
}
END
        ;;
    '/* The sign of the momentum'*)
        cat <<'END'
#include <sinter/sinter.h>
BLOCK
int main(void) {
    sn_module *m = sn_module_new("signum");
    sn_tensor w = sn_param(m, "w", SN_F32, 2, 3);
    sn_entry_begin(m, "step");
    sn_optimize(sn_sum_all(sn_square(w)), sn_scalar(m, SN_F32, 0.1), 1, &w, &mine);
    sn_error err = {0};
    return sn_compile(m, NULL, &err) ? 0 : printf("%s\n", err.message);
}
END
        ;;
    'SN_MODEL(m, o) {'*)
        cat <<'END'
#include <sinter/models.h>
#include <sinter/train.h>
#include <string.h>
enum { CONTEXT = 8, LAYERS = 1, VOCAB = 5, WIDTH = 4 };
static sn_tensor layers(const void *config, const sn_forward_ctx *s) {
    (void)config;
    return sn_nn_embedding(s->tokens, "embed", VOCAB, WIDTH);
}
static sn_tensor logits(const void *config, sn_tensor x) {
    (void)config;
    return sn_nn_linear(x, "head", VOCAB, 0);
}
static int updates;
static sn_tensor signum(const sn_update *u) {
    updates++;
    return sn_sub(u->param, sn_mul(sn_sign(u->gradient), u->rate));
}
BLOCK
int main(void) {
    sn_error err = {0};
    sn_model model;
    sn_training t = sn_training_default();
    const sn_model_options o = {.entries = SN_TRAIN, .training = &t};
    if (!sn_model_build_with(sn_model_define, "own", &o, &model, &err)) return printf("%s\n", err.message);
    return updates == 2 ? 0 : printf("%d updates, not 2\n", updates);
}
END
        ;;
    'sn_optimizer_group group'*)
        cat <<'END'
#include <sinter/sinter.h>
int main(void) {
    sn_module *m = sn_module_new("groups");
    sn_tensor w[] = {sn_param(m, "w", SN_F32, 2, 3), sn_param(m, "w.bias", SN_F32, 3)};
BLOCK
    sn_entry_begin(m, "step");
    sn_tensor loss = sn_sum_all(sn_square(sn_add(w[0], w[1])));
    sn_optimize(loss, sn_scalar(m, SN_F32, 0.1), 2, w, &o);
    sn_error err = {0};
    return sn_compile(m, NULL, &err) ? 0 : printf("%s\n", err.message);
}
END
        ;;
    'sn_training t = '*)
        cat <<'END'
#include <sinter/train.h>
enum { V = 11, D = 8 };
int main(void) {
    sn_module *m = sn_module_new("training");
    sn_dim B = sn_symbol(m, "B", 1, 4), T = sn_symbol(m, "T", 1, 8);
BLOCK
    sn_error err = {0};
    sn_program *p = sn_compile(m, NULL, &err);
    return p ? 0 : printf("%s\n", err.message);
}
END
        ;;
    *) return 1 ;;
    esac
}

do_line() { # do_line WHERE LINE
    why=$(skipped "$2") && [ "$why" ] && return
    model=MODEL
    case $2 in
    "sinter translate"*) model=NAMES ;;
    "sinter classify"*) model=DIGITS ;;
    *"tokenizer train "*) ;;
    *" train "*) model=TRAINED && set -- "$1" "$(echo "$2 " | sed 's/ \(#.*\)*$/ -n 2/; /--batch/!s/$/ --batch 2/; /--block/!s/$/ --block 16/')" ;; # two small steps
    esac
    ran=$((ran + 1))
    echo "$2" | sed "s/MODEL/$model/g" >line
    sh -e ./line >../log 2>&1 </dev/null || fail "$1: $2
$(head -5 ../log)"
}

do_c() { # do_c WHERE FILE
    frame "$(head -1 "$2")" >framed || {
        fail "$1: no frame for this block; add one to tests/e2e/test_docs.sh"
        return
    }
    grep -q '^LATER$' framed && { cp "$2" before_block; return; }
    touch before_block
    awk -v block="$2" '/^BLOCK$|^BEFORE$/ {
        f = $0 == "BLOCK" ? block : "before_block"
        while ((getline line < f) > 0) print line
        next
    } { print }' framed >program.c
    ran=$((ran + 1))
    if head -1 "$2" | grep -q '#include "small.h"'; then
        cp "$source/examples/variants/small.h" . && sinter run program.c >../log 2>&1 || fail "$1: $(head -5 ../log)"
        return
    fi
    # shellcheck disable=SC2086
    $cc $sanitize -std=gnu11 -Wall -Wextra -Werror -Wno-unused-variable -I"$build/api" program.c -L"$build" -lsinter \
        -Wl,-rpath,"$build" -o program >../log 2>&1 && ASAN_OPTIONS=detect_leaks=0 ./program >../log 2>&1 || fail "$1: $(head -12 ../log)"
}

mkdir "$tmp/bin" "$tmp/here" && ln -s "$sinter" "$tmp/bin/sinter" && cd "$tmp/here" || exit 1
ln -s "$source/examples" examples
ln -s "$source/examples/data/mnist-1000-images.idx3-ubyte" digits.idx3-ubyte
ln -s "$source/examples/models/stories260K/stories260K.bin" checkpoint.bin
cp "$source/examples/models/stories260K/tok512.bin" tok512.bin
head -c 3000 "$source/examples/data/tinyshakespeare.txt" >text.txt
cp text.txt FILE && cp text.txt sentences.txt
models=$source/examples/models
sinter import "$models/stories260K/stories260K.bin" -o MODEL 2>/dev/null || fail "import"
sinter import "$models/aren-transliteration/model.bin" -o NAMES 2>/dev/null || fail "import"
sinter import "$models/mnist-vit/mnist_vit.npz" --config "$models/mnist-vit/import.json" -o DIGITS 2>/dev/null || fail "import"
cp "$source/tests/data/pictures/gray.jpg" photo.jpg && printf '0 5 7 2\n0 9 2\n' >captions.txt
mkdir WHISPER && "$build/tests/test_whisper" whisper WHISPER && mv WHISPER/sound.wav speech.wav || fail "no whisper"
mkdir CLIP && "$build/tests/test_vision" clip CLIP || fail "no model of images and texts"
echo '{"image_processor_type": "CLIPImageProcessor", "size": 12, "crop_size": 12}' >CLIP/preprocessor_config.json
cp "$source/tests/passes/text/$(ls "$source/tests/passes/text" | grep -m1 "\.sn$")" graph.sn

for doc in README.md docs/manual.md docs/training.md docs/deploy.md docs/quantisation.md docs/report.md docs/guides/cluster.md; do
    rm -f block.* before_block
    # one file per block: block.LINE.LANGUAGE
    awk '/^```(sh|c)$/ { file = sprintf("block.%04d.%s", NR, substr($0, 4)); next }
        /^```/ { file = "" } file { print > file }' "$source/$doc"
    for b in block.*.c block.*.sh; do
        [ -f "$b" ] || continue
        rm -rf DIR TRAINED
        case $b in
        *.c) do_c "$doc:$b" "$b" ;;
        *) while IFS= read -r text <&3; do
            case $text in "" | "#"*) continue ;; esac
            do_line "$doc:$b" "$text"
        done 3<"$b" ;;
        esac
    done
done
"$sinter" models | diff - "$source/docs/models.md" || fail "docs/models.md is not what \`sinter models\` prints"
echo "$ran blocks and lines ran"
[ "$ran" -ge 25 ] || fail "only $ran lines ran"
exit $failed
