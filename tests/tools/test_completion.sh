#!/bin/bash
# test_completion.sh SINTER SOURCE_DIR: candidates of `sinter --complete`, and bash's script.
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
ln -s "$1" "$tmp/sinter"
PATH=$tmp:$PATH failures=0 cases=0
# given WORDS… -- CANDIDATES…: exactly these, without descriptions
given() {
    words=()
    while [ "$1" != -- ]; do words+=("$1"); shift; done
    shift
    cases=$((cases + 1))
    want="$*" got=$(sinter --complete "${words[@]}" | cut -f1 | tr '\n' ' ')
    [ "${got% }" = "$want" ] || { failures=$((failures + 1)); echo "'${words[*]}' gives '$got', not '$want'"; }
}
given gen -- generate
given generate --mod --
given generate --temp -- --temperature
given tokenizer train x --kind '' -- bpe word char
for command in answer call classify compile embed eval explain fill generate inspect plan report train transcribe translate; do
    given $command --compute a -- auto
    given $command --compute s -- stored
done
given bench gemm --compute '' -- f32 bf16 bf16-unordered int8 # of what is measured
given generate --weights i -- int8 int4
given generate '' -- :files
given generate model '' --
given generate -p '' --
given explain --json '' -- :files
given explain --jso -- --json
given bench com -- compare
given bench ro -- roofline
given bench model --dec -- --decode
given bench compare --thr -- --threshold
given bench compare kern -- kernel :files
given bench compare gpt2-me -- gpt2-medium :files
given bench compare attention --mask pr -- prefix:
given bench attention --mask causal,al -- causal,alibi
given bench compare attention --back -- --backward --backends
given bench compare x.c --sw --
given bench compare x.c --toke -- --tokens
given bench compare x.json --thr -- --threshold
given bench x.c --toke -- --tokens
given bench train gpt2-x -- gpt2-xl :files
given bench gemm --peers openb -- openblas
given generate --preset gpt2-l -- gpt2-large
given tokenizer '' -- train encode decode
given tokenizer train '' -- :files
given completion z -- zsh
given run x.c gen -- generate
given run x.c explain --sta -- --stages
given run x.c bench --dec -- --decode
given run '' -- :files
[ "$(sinter --complete '' | wc -l)" -gt 15 ] || { failures=$((failures + 1)); echo "few commands"; }

# the script, as bash calls it
eval "$(sinter completion bash)" || failures=$((failures + 1))
COMP_WORDS=(sinter explain --weights bf) COMP_CWORD=3
_sinter
[ "${COMPREPLY[*]}" = bf16 ] || { failures=$((failures + 1)); echo "bash: ${COMPREPLY[*]}"; }
for shell in zsh fish; do
    command -v $shell >/dev/null || continue
    sinter completion $shell >"$tmp/script" && $shell -n "$tmp/script" || { failures=$((failures + 1)); echo "$shell: syntax"; }
done
sinter completion tcsh 2>/dev/null && { failures=$((failures + 1)); echo "tcsh is accepted"; }
echo "$cases cases, $failures failures"
[ $failures = 0 ]
