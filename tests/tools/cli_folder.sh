# cli_folder.sh: part of test_cli.sh: the folder of a trained model in C ($tmp/trained of $variant), without its code.

trained_folder_alone() {
    # the folder alone does the same by its graph, without the C file; a broken graph is an error
    both() { # both COMMAND ARGS…
        command=$1
        shift
        run 0 "$command" "$variant" --checkpoint "$tmp/trained" "$@"
        cp "$tmp/out" "$tmp/by_code"
        CC=false run 0 "$command" "$tmp/trained" "$@"
        cmp -s "$tmp/out" "$tmp/by_code" || fail "$command of the folder alone differs"
    }
    both eval "$tmp/text" --level 0
    both generate -p First -n 3 --seed 4
    run 0 explain "$tmp/trained" --entry decode
    prints 'flash'
    run 0 bench model "$tmp/trained" --tokens 8 --levels 4 --seconds 0.01
    run 0 compile "$tmp/trained" --name folder -o "$tmp/made"
    says 'folder.weights'
    refused 2 'one sequence at a time' generate "$tmp/trained" -f "$tmp/text" --batch 2
    refused 2 'built for a context of' generate "$tmp/trained" -p First --context 7
    cp -r "$tmp/trained" "$tmp/cut" && head -c 500 "$tmp/trained/graph.sn" >"$tmp/cut/graph.sn"
    refused 1 'graph.sn' generate "$tmp/cut" -p First
    rm -r "$tmp/cut" "$tmp/made"
    rm "$tmp/trained/graph.sn" # as of an older version
}
