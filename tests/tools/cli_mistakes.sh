# shellcheck shell=sh
# cli_mistakes.sh: section of test_cli.sh: what a user who errs is told.

check_mistakes() {
    model
    # a value that means "as in the config" is no value of the option
    refused 2 'rate is .-0.5.; allowed: a number from 0' train "$tmp/model" -o "$tmp/x" --rate -0.5
    refused 2 'zero is .-1.; allowed: an integer from 0 to 3' train "$tmp/model" -o "$tmp/x" --zero -1
    groups() { printf '{"model": {"model_type": "gpt2"}, "data": {"text": "t"}, "optimizer": {"groups": %s}}' "$1" >"$tmp/g.json"; }
    groups '[{"mach": "*.w"}]' && refused 1 '"groups"\[0\]: unknown key "mach"' train "$tmp/g.json" -o "$tmp/x"
    groups '{"match": "*.w"}' && refused 1 'an array of at most 16 objects' train "$tmp/g.json" -o "$tmp/x"
    refused 2 'did you mean --entries' compile "$tmp/model" --entry forward
    # options that would have no effect
    refused 2 'does not sample' generate "$tmp/model" -p x --beams 2 --temperature 0.5
    refused 2 'does not sample' generate "$tmp/model" -p x --beams 2 --top-k 4
    refused 2 'no effect without --beams' generate "$tmp/model" -p x --length-penalty 1
    refused 2 'the prompt is empty' generate "$tmp/model" --prompt-ids ''
    # a folder that holds a model in one file; an empty file
    refused 1 "give its file, $tmp/one/m.bin" generate "$(mkdir "$tmp/one" && cp "$stories" "$tmp/one/m.bin" && echo "$tmp/one")"
    : >"$tmp/empty.gguf"
    refused 1 'empty.gguf: the file is empty' generate "$tmp/empty.gguf"
    # weights of other programs: the message does not send to import, which does not read them either
    mkdir -p "$tmp/other/onnx"
    echo '{"model_type": "gpt2"}' >"$tmp/other/config.json"
    refused 1 'decoder_model_merged.onnx and decoder_with_past_model.onnx (onnx), not read as weights of a folder' generate "$tmp/other"
    refused 1 'other: a folder, but import reads one file of another format' import "$tmp/other" -o "$tmp/imported"
    # NaN in a weight
    printf 'Once upon a time' >"$tmp/prompt"
    spoil "$tmp/model/model.safetensors"
    run 1 generate "$tmp/model" -f "$tmp/prompt" -n 1
    says 'logit of token 0 is NaN'
    refused 1 "'loss' is NaN (--check-nan" eval "$tmp/model" "$tmp/prompt"
    run 0 compile "$tmp/model" -o "$tmp/spoiled"
    says "note: 'model.layers.4.mlp.up_proj.weight' contains NaN"
    run 0 import "$source/examples/models/mnist-vit/mnist_vit.npz" -o "$tmp/vit"
    spoil "$tmp/vit/model.safetensors"
    refused 1 "'logits' is NaN" classify "$tmp/vit" -i "$source/examples/data/mnist-1000-images.idx3-ubyte"
    # sizes
    printf '%s\n' 'module p' 'dim T in [1, 3]' 'entry f {' '  %0: f32[T,2] = param {name="w"}' '  output "y" = %0' '}' >"$tmp/p.sn"
    refused 1 "parameter 'w' has a symbolic shape: make it an input" call "$tmp/p.sn"
    printf '%s\n' 'module p' 'entry f {' '  %0: f32[2] = input {name="x"}' '  output "y" = %0' '}' >"$tmp/p.sn"
    refused 2 'p.sn: a graph as text has no values for its parameters' compile "$tmp/p.sn"
    refused 1 'sizes: T = 0 is outside 1..512' explain "$tmp/model" --sizes T=0
    refused 2 "no dimension 'Q'; it has: T, B, P" explain "$tmp/model" --sizes Q=1
    # models in C
    wrong() { # wrong MESSAGE CODE: a model whose entry is CODE
        printf '#include <sinter/models.h>\nSN_MODEL(m, o) {\n(void)o; sn_entry_begin(m, "f");\n%s\n}\n' "$2" >"$tmp/w.c"
        refused "${3-1}" "$1" run "$tmp/w.c"
    }
    wrong 'w.c:4: sn_output: operand 1 is NULL' 'sn_output("y", NULL);'
    wrong 'w.c:4: tanh: operand 1 is NULL' 'sn_output("y", sn_tanh(NULL)); sn_output("z", sn_scalar(m, SN_F32, 1));'
    wrong "the entry 'f' has no result" ''
    wrong "w.c:4: sn_scope_push: the scope 'a.b' is still open" 'sn_scope_push(m, "a"); sn_scope_push(m, "b"); sn_output("y", sn_scalar(m, SN_F32, 1));'
    wrong "model 'w' crashed (SIGABRT), after its call at .*w.c:4" 'sn_output("y", sn_scalar(m, SN_F32, 1)); extern int raise(int); raise(6);' 134
    printf '#include <sinter/models.h>\nSN_MODEL(m, o) {\n(void)o; sn_entry_begin(m, "f");\nsn_output("y", sn_scalar(m, SN_F32, 1));\n}\n' >"$tmp/w.c"
    # the first line of the compiler is the user's: neither the headers nor the definition of a macro
    { echo '#include "small.h"'; echo 'SN_MODEL(m, o) { sn_tensor x = sn_scalar(m, SN_F32, o != 0); (void)sn_attention(x, x, x, .causl = true); }'; } >"$tmp/typo.c"
    cp "$source/examples/variants/small.h" "$tmp"
    refused 2 "typo.c:2:.*no member named .*causl.*did you mean .*causal" run "$tmp/typo.c"
    grep -q 'In file included\|in definition of macro' "$tmp/err" && fail 'the message names headers'
    refused 2 "no entries that predict the next token: sn_decoder_entries" run "$tmp/w.c" generate -p x
    refused 2 "a command comes before its options: sinter run $tmp/w.c check" run "$tmp/w.c" --level 0 check
    run 0 run --help
    prints '#include <sinter/models.h>'
}
