# shellcheck shell=sh
# wine_encoders.sh: a part of test_deploy.sh wine_run. Programs for Windows that read texts print what those for Linux print,
# to the digits in which functions of both C runtimes agree.
printf '0\tabba\n1\txyyx\n' >classes.txt
cat >classes.json <<'END'
{"model": {"model_type": "bert", "max_position_embeddings": 16, "hidden_size": 16, "intermediate_size": 32,
  "num_hidden_layers": 1, "num_attention_heads": 2, "num_labels": 2}, "data": {"text": "classes.txt"},
 "training": {"steps": 9, "batch": 2, "block": 12}}
END
"$sinter" train classes.json -o kinds >out 2>&1 || fail "training: $(tail -1 out)"
printf 'abba\nxy ab\n' >lines
for entries in forward embed encode; do
    "$sinter" compile kinds --name enc -o linux --exe --entries $entries --target x86-64-v2 || fail "$entries"
    "$sinter" compile kinds --name enc -o windows --exe --entries $entries --target x86-64-v2,os=windows || fail "$entries for Windows"
    { linux/enc -f lines && wine windows/enc.exe -f lines | tr -d '\r'; } >both
    awk '{ for (i = 1; i <= NF; i++) x[NR, i] = $i } END {
        for (r = 1; r <= 2; r++) for (i = 1; i <= NF; i++) { d = x[r, i] - x[r + 2, i]; bad += d > 2e-5 || d < -2e-5 }
        exit !(NR == 4 && NF > 1 && !bad) }' both || fail "$entries for Windows: $(cat both)"
done
