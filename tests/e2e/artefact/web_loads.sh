# shellcheck shell=sh
# web_loads.sh: a part of test_deploy.sh web. load() calls the entries of decoders of tokens, with lengths that they take,
# and leaves other models alone.
"$sinter" compile "$source/tests/data/onnx/samples" --name sound -o web --target wasm32 || fail "a model of sound"
cat >texts.c <<'END'
#include <sinter/models.h>
/* A prompt of 2 to 6 tokens at positions from P on. */
static void part(sn_module *m, const char *entry, sn_dim T, sn_dim P) {
    sn_entry_begin(m, entry);
    sn_tensor x = sn_nn_embedding(sn_input(m, "tokens", SN_I32, T), "table", 12, 4);
    sn_output("logits", sn_add(x, sn_dim_tensor(m, SN_F32, P)));
}

SN_MODEL(m, o) {
    (void)o;
    sn_dim P = sn_symbol(m, "P", 1, 64);
    part(m, "prefill", sn_symbol(m, "T", 2, 6), P);
    part(m, "decode", 1, P);
}
END
sed 's/"tokens"/"ids"/' texts.c >ids.c
for name in texts ids; do "$sinter" compile $name.c --name $name -o web --target wasm32 || fail "a model in C"; done
cat >web/loads.js <<'END'
const called = [];
const load = async (name) => {
  const part = await import(`./${name}.js`), { run } = part.Model.prototype;
  part.Model.prototype.run = function (entry, dims, ...rest) {
    called.push(entry, dims.T, dims.P);
    return run.call(this, entry, dims, ...rest);
  };
  const m = await part.load({ tokenizer: false });
  console.log(name, m.has('prefill') && m.has('decode'), ...called.splice(0));
  return part;
};
await load('sound');
await load('ids');
const { load: again, Model, State } = await load('texts');
// an entry that fails leaves no state
const { free } = State.prototype;
let freed = 0;
State.prototype.free = function () { freed++; free.call(this); };
Model.prototype.run = () => { throw new Error('none'); };
await again().catch((e) => console.log('fails', e.message, freed));
END
node web/loads.js >web/out 2>&1 || fail "loading in Node ends with $?"
for line in "sound true" "ids true" "texts true prefill 6 1 decode undefined 1" "fails none 1"; do
    grep -qxF "$line" web/out || fail "no line \"$line\" in: $(cat web/out)"
done
