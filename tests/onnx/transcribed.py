#!/usr/bin/python3
# transcribed.py SINTER FOLDER SOUND.wav ...: a model of samples that others exported and quantised, from sound to text: `sinter
# transcribe` beside ONNX Runtime on the same files, token by token. FOLDER has encoder_model.onnx, decoder_model_merged.onnx and
# config.json; sound is 16-bit PCM of 16 kHz, one channel, at most 30 s. Needs node and onnxruntime-node ($PEER_NODE_MODULES).
import json
import subprocess
import sys
import wave

STEP = 384  # samples of a position of Moonshine

NODE = """
const ort = require(process.env.PEER_NODE_MODULES + '/onnxruntime-node'), fs = require('fs');
const given = JSON.parse(fs.readFileSync(0)), clock = () => performance.now(), least = (x) => Math.min(...x).toFixed(2);
(async () => {
  const open = (file) => ort.InferenceSession.create(given.folder + '/' + file + '_model' + (file === 'decoder' ? '_merged' : '') +
                                                     '.onnx', {intraOpNumThreads: 2});
  const encoder = await open('encoder'), decoder = await open('decoder');
  const cache = decoder.inputMetadata.filter((i) => i.name.startsWith('past_key_values.'));
  const times = {encoder: [], step: []}, all = [];
  for (const sound of given.sounds) {
    const x = Float32Array.from(sound, (s) => s / 32768), ids = [given.start];
    let past = {}, from = clock();
    const hidden = (await encoder.run({input_values: new ort.Tensor('float32', x, [1, x.length])})).last_hidden_state;
    times.encoder.push((clock() - from) / x.length * 16000);
    for (const i of cache) { // nothing is cached before the first token
      const shape = i.shape.map((n) => typeof n === 'number' ? n : 1);
      past[i.name] = new ort.Tensor('float32', new Float32Array(0), [0, ...shape.slice(1)]);
    }
    for (let begun = false; ids.length < given.context; begun = true) {
      from = clock();
      const y = await decoder.run({...past, encoder_hidden_states: hidden, use_cache_branch: new ort.Tensor('bool', [begun], [1]),
        input_ids: new ort.Tensor('int64', BigInt64Array.of(BigInt(ids[ids.length - 1])), [1, 1])});
      times.step.push(clock() - from);
      for (const name of decoder.outputNames.filter((n) => n.startsWith('present.')))
        if (!begun || !name.includes('.encoder.')) past[name.replace('present', 'past_key_values')] = y[name];
      const id = y.logits.data.reduce((best, v, i, l) => v > l[best] ? i : best, 0);
      if (id === given.end) break;
      ids.push(id);
    }
    all.push(ids.slice(1));
  }
  console.error('ONNX Runtime: ' + least(times.encoder) + ' ms of the encoder for 1 s, ' + least(times.step) + ' ms a token at least');
  console.log(JSON.stringify(all));
})();
"""


def samples(path):
    with wave.open(path) as w:
        if (w.getframerate(), w.getnchannels(), w.getsampwidth()) != (16000, 1, 2):
            sys.exit(f"{path}: not 16-bit PCM of 16 kHz and one channel")
        return memoryview(w.readframes(w.getnframes())).cast("h").tolist()


def main():
    sinter, folder, *sounds = sys.argv[1:]
    with open(f"{folder}/config.json") as f:
        config = json.load(f)
    given = {"folder": folder, "sounds": [], "start": config["decoder_start_token_id"], "end": config["eos_token_id"],
             "context": config["max_position_embeddings"]}
    for path in sounds:
        x = samples(path)
        given["sounds"].append(x + [0] * (-len(x) % STEP))  # `sinter` fills the last position with silence
    peer = subprocess.run(["node", "-e", NODE], input=json.dumps(given), capture_output=True, text=True, check=True)
    print(peer.stderr.strip())
    failed = 0
    for path, want in zip(sounds, json.loads(peer.stdout)):
        ids = subprocess.run([sinter, "transcribe", folder, path, "--print-ids"], capture_output=True, text=True, check=True).stdout
        same = [int(i) for i in ids.split()] == want
        failed += not same
        print(f"{path}: {len(want)} tokens, {'equal' if same else 'not equal: ' + ids.strip() + ' instead of ' + str(want)}")
    print(f"{len(sounds) - failed} passed, {failed} failed")
    sys.exit(failed != 0)


main()
