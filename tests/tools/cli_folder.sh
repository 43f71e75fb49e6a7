# cli_folder.sh: part of test_cli.sh: the folder of a trained model in C ($tmp/trained of $variant), without its
# code; the folder of an imported ONNX file.

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

check_onnx() { # the graph as text, with its weights, computes the same bits
    gpt=$source/tests/data/onnx/gpt.onnx
    run 0 import "$gpt" -o "$tmp/gpt"
    says 'gpt: 17 tensors'
    refused 1 'gpt holds a model: config.json exists' import "$gpt" -o "$tmp/gpt"
    for model in "$gpt" "$tmp/gpt"; do
        run 0 call "$model" --sizes batch=2,sequence=7 -o "$tmp/$(basename "$model").npz"
    done
    cmp "$tmp/gpt.onnx.npz" "$tmp/gpt.npz" || fail 'the folder computes something else'
    run 0 explain "$tmp/gpt"
    prints flash
    prints 'attention: 1 of 1 softmax-product pairs fused'
    # the graph as it is, and the entries that are made from it; of encoder-decoders those of both files
    for model in llama_past.onnx=forward,prefill,decode text=forward,prefill,decode,reorder \
        near=prefill,decode,reorder sound=prefill,decode,reorder; do
        run 0 explain "$source/tests/data/onnx/${model%=*}"
        entries=$(sed -n 's/^entry \([a-z]*\):.*/\1/p' "$tmp/out" | tr '\n' ,)
        [ "$entries" = "${model#*=}," ] || fail "$model has the entries $entries"
    done
    run 0 explain "$source/tests/data/onnx/text" --entry prefill
    prints 'text/encoder_model.onnx:' && prints 'text/decoder_model.onnx:'
    run 0 call "$source/tests/data/onnx/llama_past.onnx" --entry decode --sizes P=3 -i tokens=1
    prints '^logits \[1,11\]'
    run 0 check "$source/tests/data/onnx/llama_past.onnx" --levels 4 --no-gradients
    # without its encoder, a decoder is a graph; its dims keep their names
    mkdir "$tmp/alone"
    cp "$source/tests/data/onnx/text/decoder_with_past_model.onnx" "$tmp/alone"
    run 0 call "$tmp/alone/decoder_with_past_model.onnx" --sizes past_decoder_sequence_length=3
    run 0 explain "$source/tests/data/onnx/t5.onnx" --level 0
    prints 'attention: 0 of 3 softmax-product pairs fused'
    run 0 compile "$tmp/gpt" -o "$tmp/made"
    says 'made/gpt.weights'
}
