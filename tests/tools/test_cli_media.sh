#!/bin/sh
# test_cli_media.sh SINTER SOURCE_DIR TESTS: pictures and sound on the command line: classes, embeddings, similarity with
# texts, transcription. The folders have random weights; test_vision and test_whisper check their results.
sinter=$1 source=$2 make=$3/test_vision make_sound=$3/test_whisper
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}" LC_ALL=C
unset SINTER_DEBUG
. "$source/tests/tools/cli_run.sh"
pictures=$source/tests/data/pictures

folder() { # NAME PREPROCESSOR
    mkdir -p "$tmp/$1" && "$make" "$1" "$tmp/$1" || fail "no folder $1"
    [ -z "$2" ] || echo "$2" >"$tmp/$1/preprocessor_config.json"
}

vit='{"image_processor_type": "ViTImageProcessor", "size": {"height": 12, "width": 12}, "resample": 2}'
folder vit "$vit"
folder dinov2 '{"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 10}, "crop_size": 8}'
folder clip '{"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 12}, "crop_size": 12}'
folder siglip '{"image_processor_type": "SiglipImageProcessor", "size": {"height": 14, "width": 14}}'

run 0 classify "$tmp/vit" -i "$pictures/rgb.png"
[ "$(wc -l <"$tmp/out")" = 3 ] || fail "three classes"
prints '^cat  0\.'
run 0 classify "$tmp/vit" -i "$pictures/turned.jpg" --top 1
[ "$(wc -l <"$tmp/out")" = 1 ] || fail "one class"
run 0 classify "$tmp/dinov2" -i "$pictures/gray.png" # 8 x 8 pixels: positions are interpolated
run 0 embed "$tmp/vit" -i "$pictures/rgb.png"
[ "$(wc -w <"$tmp/out")" = 16 ] || fail "an embedding"

printf '0 5 7 2\n0 9 2\n\n0 4 4 4 2\n' >"$tmp/texts"
run 0 classify "$tmp/clip" -i "$pictures/rgb.png" -f "$tmp/texts"
awk '{ sum += $NF } END { exit !(NR == 3 && sum > 0.9999 && sum < 1.0001) }' "$tmp/out" || fail "probabilities of three texts"
sed 's/  *[0-9.]*$//' "$tmp/out" >"$tmp/order"
run 0 embed "$tmp/clip" -i "$pictures/rgb.png" -f "$tmp/texts"
sed 's/^ *[-0-9.]* *//' "$tmp/out" | cmp -s - "$tmp/order" || fail "the same order"
run 0 embed "$tmp/clip" -i "$pictures/rgb.png" -i "$pictures/small.png" -f "$tmp/texts" --similarity
[ "$(wc -l <"$tmp/out")" = 5 ] || fail "five rows"
run 0 classify "$tmp/siglip" -i "$pictures/rgb.png" -p '0 5 7 2'
prints '^0 5 7 2  0\.'

run 0 compile "$tmp/clip" -o "$tmp/artefact" --name clip
grep -q '^int clip_embed_image(' "$tmp/artefact/clip.h" || fail "no entry embed_image"
grep -q '^#define CLIP_IMAGE_MEAN {0.48145466, ' "$tmp/artefact/clip.h" || fail "no mean of the pixels"
grep -q 'the shorter side becomes 12 (bicubic as in PIL); the middle 12 rows' "$tmp/artefact/clip.h" || fail "no size"
refused 2 'take images' compile "$tmp/clip" -o "$tmp/artefact" --exe
spoil "$tmp/siglip/model.safetensors"
refused 1 "is NaN (--check-nan" embed "$tmp/siglip" -i "$pictures/rgb.png"
refused 2 'compares images with texts' classify "$tmp/clip" -i "$pictures/rgb.png"
refused 2 'takes no texts' classify "$tmp/vit" -i "$pictures/rgb.png" -p a
refused 2 'read images' embed "$tmp/vit" -p a
refused 2 'ranked by similarity to one image' embed "$tmp/clip" -i "$pictures/rgb.png" -i "$pictures/gray.png" -p 1
refused 2 'IDX file' classify "$tmp/vit" -i "$pictures/rgb.png" --labels x
refused 1 'not an IDX file' classify "$tmp/vit" -i "$source/README.md"
rm "$tmp/clip/preprocessor_config.json"
refused 1 'no preprocessor_config.json' embed "$tmp/clip" -i "$pictures/rgb.png"
echo "$vit" | sed 's/12/16/g' >"$tmp/vit/preprocessor_config.json"
refused 1 'positions are for 12' classify "$tmp/vit" -i "$pictures/rgb.png"
echo '{"image_processor_type": "ViTImageProcessor", "do_pad": true}' >"$tmp/vit/preprocessor_config.json"
refused 1 'do_pad' classify "$tmp/vit" -i "$pictures/rgb.png"

mkdir "$tmp/whisper" && "$make_sound" whisper "$tmp/whisper" || fail "no folder whisper"
sound=$tmp/whisper/sound.wav
run 0 transcribe "$tmp/whisper" "$sound" --language en --timestamps
prints '^\[00:00.10 --> 00:00.34\]  1$'
[ "$(wc -l <"$tmp/out")" = 4 ] || fail "four parts"
awk 'BEGIN { s = "{\"model\": {\"type\": \"WordLevel\", \"unk_token\": \"a\", \"vocab\": {"
    for (i = 0; i < 26; i++) s = s sprintf("%s\"%c\": %d", i ? ", " : "", 97 + i, i)
    s = s "}}, \"pre_tokenizer\": {\"type\": \"Whitespace\"}}"
    print s }' >"$tmp/whisper/tokenizer.json"
run 0 transcribe "$tmp/whisper" "$sound" --language en --timestamps
prints '^\[00:00.54 --> 00:00.60\]  b b$'
run 0 transcribe "$tmp/whisper" "$sound" # the language is heard
prints '^lbezeb$'
run 0 transcribe "$tmp/whisper" "$sound" --task translate --language fr --print-ids
refused 2 "no token for the language 'xx'" transcribe "$tmp/whisper" "$sound" --language xx
refused 2 'take sound' compile "$tmp/whisper" -o "$tmp/artefact" --exe
refused 2 'transcribe sound' generate "$tmp/whisper" -p a
refused 2 'do not transcribe sound' transcribe "$tmp/clip" "$sound"
refused 1 'ffmpeg' transcribe "$tmp/whisper" "$source/README.md"

echo "$cases runs, $failures failures"
[ $failures = 0 ]
