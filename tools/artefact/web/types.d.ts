
/** Sizes, types and ids of this artefact. */
export const artefact: {
  name: string; version: string; target: string; weightBytes: number; stateBytes: number;
  context: number; vocab: number; tokenizer: string | null; bos: number; eos: number[]; labels: (string | null)[];
  pixels: { side: number; channels: number; scale: number; mean: number[]; std: number[] } | null;
};

export class SinterError extends Error {
  /** The number of the error's kind; 0: a mistake of the caller. */
  kind: number;
}

/** Caches of one sequence, or the parameters and optimizer states of a training step. */
export class State {
  /** Tokens that generateTokens has put into it. */
  length: number;
  /** The bytes and the length. */
  save(): Uint8Array;
  restore(saved: ArrayBuffer | ArrayBufferView): void;
  free(): void;
}

export interface Sampling {
  /** 0 (the default): the likeliest token. */
  temperature?: number;
  topK?: number;
  topP?: number;
  seed?: number | bigint;
  maxTokens?: number;
  /**
   * Continues what this state has read; without it a new one, which is freed. The last token of a run was not read:
   * the next ids begin with it.
   */
  state?: State;
}

export interface LoadOptions {
  code?: string | URL;
  weights?: string | URL | ArrayBuffer | ArrayBufferView;
  /** The folder; false: only token ids. */
  tokenizer?: string | URL | false;
  /** The folder of the tokenizer for sources, where that is another one. */
  source?: string | URL;
  onProgress?: (bytes: number, of: number) => void;
  /** false: weights do not go to the browser's Cache. */
  cache?: boolean;
  /** Compares the checksum of the weights, which reads all of them. */
  verify?: boolean;
  /** false: loading a decoder does not call its entries once, so it ends earlier, and the first token comes later. */
  warmUp?: boolean;
  /** With --threads workers: how many; default: half of the CPUs, at most 8. 1 where pages are not isolated. */
  threads?: number;
}

export interface Class {
  label: string;
  index: number;
  probability: number;
}

export class Model {
  tokenizer?: { encode(text: string): number[]; decode(ids: number[]): string };
  /** How many threads work. */
  threads: number;
  /** Ends the workers. What the model does then works on one thread, unless a thread was lost in a call. */
  close(): void;
  newState(): State;
  has(entry: string): boolean;
  run<E extends keyof Entries>(entry: E, dims: Entries[E]['dims'], inputs: Entries[E]['inputs'],
                               state?: State | null): Entries[E]['outputs'];
  encode(text: string): number[];
  generateTokens(ids: number[], options?: Sampling): Generator<number>;
  generate(prompt: string, options?: Sampling): Generator<string>;
  /** Whether `forward` gives logits [B, labels], as classify needs. */
  classifies(): boolean;
  classify(input: string | Float32Array): Class[];
  embed(text: string): Float32Array;
  /** Whether it is an encoder-decoder of tokens. */
  translates(): boolean;
  /** A text in, its translation, summary or answer out: a search with as many beams as --beams said. */
  translate(text: string, options?: { maxTokens?: number; lengthPenalty?: number }): string;
  translateTokens(ids: number[], options?: { maxTokens?: number; lengthPenalty?: number }): number[];
  /** Whether `train_step` takes tokens and targets of T and B. */
  trains(): boolean;
  /** Trains on rows of `block` tokens (32) of a text, `batch` (4) at a time; gives the loss of each of `steps` (100) steps. */
  train(text: string, state: State, options?: { steps?: number; batch?: number; block?: number; seed?: number | bigint }):
    Generator<number>;
  pixels(rgba: Uint8ClampedArray | Uint8Array): Float32Array;
}

/** Loads the module and its weights, which lie beside this file. */
export function load(options?: LoadOptions): Promise<Model>;
