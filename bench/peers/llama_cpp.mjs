// llama_cpp.mjs: llama.cpp (npm package node-llama-cpp) on a GGUF file, to compare Sinter with:
//   node llama_cpp.mjs next FILE "[1,5,70]"       the five most likely next tokens after these ids
//   node llama_cpp.mjs ids FILE TEXTS             token ids of each line of a text file
//   node llama_cpp.mjs speed FILE [PROMPT [N [THREADS]]]   prefill and decode, tokens a second
// Run it where the package is installed: npm install node-llama-cpp --ignore-scripts
import fs from "fs";
import {createRequire} from "module";
import {pathToFileURL} from "url";

const path = createRequire(process.cwd() + "/").resolve("node-llama-cpp");
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(path).href);
const [, , action, file, ...rest] = process.argv;
const llama = await getLlama({gpu: false, build: "never", logLevel: LlamaLogLevel.error});
const start = performance.now();
const model = await llama.loadModel({modelPath: file, vocabOnly: action === "ids"});

async function next(ids) {
    const context = await model.createContext({contextSize: 512, threads: 2});
    const ask = {generateNext: {probabilities: true, options: {temperature: 0}}};
    const input = ids.map((t, i) => (i === ids.length - 1 ? [t, ask] : t));
    const out = await context.getSequence().controlledEvaluate(input);
    for (const [id, p] of [...out[out.length - 1].next.probabilities].slice(0, 5))
        console.log(id, p.toFixed(6));
}

async function speed(prompt = 256, n = 32, threads = 2) {
    const size = Number(prompt) + Number(n) + 8;
    const context = await model.createContext({contextSize: size, threads: Number(threads)});
    console.log(`open ${(performance.now() - start).toFixed(0)} ms`);
    const sequence = context.getSequence();
    const ids = [...Array(Number(prompt))].map((_, i) => 3 + ((i * 7) % 250));
    for (let round = 0; round < 3; round++) {
        await sequence.clearHistory();
        const begin = performance.now();
        let first, count = 0;
        for await (const _ of sequence.evaluate(ids, {temperature: 0, yieldEogToken: true})) {
            if (!count++) first = performance.now();
            if (count > Number(n)) break;
        }
        const end = performance.now();
        const rate = (tokens, ms) => ((tokens / ms) * 1000).toFixed(1);
        console.log(`prefill ${rate(ids.length, first - begin)}, decode ${rate(n, end - first)} tokens/s`);
    }
}

if (action === "next") await next(JSON.parse(rest[0]));
else if (action === "speed") await speed(...rest);
else if (action === "ids")
    for (const line of fs.readFileSync(rest[0], "utf8").split("\n"))
        console.log(model.tokenize(line).join(" "));
process.exit(0);
