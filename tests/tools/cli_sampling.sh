# cli_sampling.sh: sections of test_cli.sh about how tokens are chosen and where the text ends.

# Several texts at once: each is what it is alone.
check_batch() {
    run 0 import "$stories" -o "$tmp/m"
    printf 'Once upon a time\n\nTom\nOne day, a dog and a cat\nThe sun\nLily and' >"$tmp/prompts"
    run 0 generate "$tmp/m" -f "$tmp/prompts" --batch 3 -n 20 --seed 7 --print-ids
    cp "$tmp/out" "$tmp/together"
    i=0
    grep . "$tmp/prompts" | while read -r line || [ "$line" ]; do
        run 0 generate "$tmp/m" -p "$line" -n 20 --seed $((7 + i)) --print-ids
        i=$((i + 1))
        [ "$(sed -n ${i}p "$tmp/together")" = "$(cat "$tmp/out")" ] || fail "text $i of a batch: $(cat "$tmp/out")"
    done
    [ "$(wc -l <"$tmp/together")" = 5 ] || fail "five prompts: $(cat "$tmp/together")"
    run 0 generate "$tmp/m" -p 'Once upon a time' -n 12 --temperature 0 --print-ids
    cp "$tmp/out" "$tmp/greedy"
    run 0 generate "$tmp/m" -p 'Once upon a time' -n 12 --beams 1 --print-ids
    cmp -s "$tmp/out" "$tmp/greedy" || fail "one beam is not the greedy text"
    run 0 generate "$tmp/m" -p 'Once upon a time' -n 12 --best-of 3 --temperature 0 --print-ids
    cmp -s "$tmp/out" "$tmp/greedy" || fail "the best of greedy texts"
    run 0 generate "$tmp/m" -p 'Once upon a time' -n 12 --beams 4 --length-penalty 1
    grep -q '^Once upon a time' "$tmp/out" || fail "beams: $(cat "$tmp/out")"
    run 2 generate "$tmp/m" -p x --batch 2
    says 'give one'
    run 2 generate "$tmp/m" -p x --beams 2 --best-of 2
    says 'one of --batch, --beams and --best-of'
    printf 'Tom\n%s\n' "$(seq 1000 | tr '\n' ' ')" >"$tmp/prompts"
    run 1 generate "$tmp/m" -f "$tmp/prompts" --batch 2
    says 'prompt 2: the prompt has'
    run 2 run "$source/examples/variants/alibi.c" generate -f "$tmp/prompts" --batch 2
    says 'one sequence at a time'
}

check_sampling() {
    run 0 import "$stories" -o "$tmp/m"
    # how to sample: generation_config.json, unless the command line says otherwise
    cp -r "$tmp/m" "$tmp/how"
    echo '{"do_sample": false, "max_new_tokens": 5, "temperature": 3}' >"$tmp/how/generation_config.json"
    run 0 generate "$tmp/how" --prompt-ids "1 403 407" --print-ids
    [ "$(cat "$tmp/out")" = "1 403 407 261 378 432 383 286" ] || fail "do_sample false: $(cat "$tmp/out")"
    run 0 generate "$tmp/how" --prompt-ids "1 403 407" --print-ids -n 2
    [ "$(cat "$tmp/out")" = "1 403 407 261 378" ] || fail "-n over max_new_tokens"
    echo '{"do_sample": true, "top_k": 1, "max_new_tokens": 2}' >"$tmp/how/generation_config.json"
    run 0 generate "$tmp/how" --prompt-ids "1 403 407" --print-ids
    [ "$(cat "$tmp/out")" = "1 403 407 261 378" ] || fail "top_k of generation_config.json"
    echo '{"do_sample": false, "num_beams": 1, "typical_p": 0.5, "min_length": 3, "bad_words_ids": [[7]]}' \
        >"$tmp/how/generation_config.json"
    run 0 generate "$tmp/how" --prompt-ids "1 403 407" --print-ids -n 2
    says 'generation_config.json: min_length, bad_words_ids: not supported'
    echo '{"do_sample": true, "top_p": 7}' >"$tmp/how/generation_config.json"
    run 1 generate "$tmp/how" --prompt-ids "1 403 407"
    says 'top_p'
    run 0 generate "$tmp/m" --prompt-ids "1 403 407" -n 9 --temperature 0 --print-ids --repetition-penalty 100
    [ "$(tr ' ' '\n' <"$tmp/out" | sort | uniq -d)" = "" ] || fail "a token occurs twice"
    # text before which the output ends, also when it spans tokens
    run 0 generate "$tmp/m" -p 'Once upon a time' -n 40 --temperature 0
    stopped() { # stopped TEXT OPTIONS…: the output ends before TEXT
        before=$(sed "s/$1.*//" "$tmp/whole" | head -1)
        shift
        run 0 generate "$tmp/m" -p 'Once upon a time' -n 40 --temperature 0 "$@"
        [ "$(cat "$tmp/out")" = "$before" ] || fail "stop before: $*: $(cat "$tmp/out")"
    }
    cp "$tmp/out" "$tmp/whole"
    stopped 'girl nam' --stop 'girl nam'
    stopped 'little' --stop 'nowhere' --stop 'little'
    stopped 'no such text' --stop 'not in this text'
    # a chat: the template makes the prompt, the answer alone is printed
    rm -rf "$tmp/how" && cp -r "$tmp/m" "$tmp/how"
    run 1 generate "$tmp/how" -p 'Once' --chat
    says 'no chat template'
    echo '{"chat_template": "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"}' \
        >"$tmp/how/tokenizer_config.json"
    run 0 generate "$tmp/m" -p 'Once upon a time' -n 9 --temperature 0
    tail -c +17 "$tmp/out" >"$tmp/answer"
    run 0 generate "$tmp/how" -p 'upon a time' --system 'Once ' --chat -n 9 --temperature 0
    same "$tmp/answer"
    echo '{% include "x" %}' >"$tmp/how/chat_template.jinja"
    run 1 generate "$tmp/how" -p 'Once' --chat
    says 'line 1: unsupported statement include'
    run 2 generate "$tmp/how" -p 'Once' --system 'Be brief'
    run 2 generate "$tmp/how" --prompt-ids '1 2' --chat
}
