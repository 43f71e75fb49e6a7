// workers.js: the threads of a module. Each worker runs this script, with an instance of the module over the same memory.

const node = globalThis.process?.versions?.node
  ? { ...await import('node:worker_threads'), ...await import('node:os') } : null;
const ROLE = 'worker of NAME', MOST = 8, LIMIT = 64;

// Some systems do not reserve 4 GiB.
function sharedMemory() {
  const initial = artefact.memory / PAGE;
  for (let maximum = 65536;; maximum /= 2) {
    try {
      return new WebAssembly.Memory({ initial, maximum, shared: true });
    } catch (e) {
      if (maximum / 2 < initial) throw new SinterError(`no memory that threads share: ${e.message}; compile without workers`);
    }
  }
}

// Pages that are not isolated cannot give memory to workers. By default half of the logical CPUs work: all wait for the last,
// and the second thread of a core helps little.
function countThreads(asked) {
  if (asked !== undefined && !(Number.isInteger(asked) && asked >= 1 && asked <= LIMIT))
    throw new SinterError(`threads: ${asked} is not a number from 1 to ${LIMIT}`);
  if (globalThis.crossOriginIsolated === false) return 1;
  return asked || Math.max(1, Math.min(MOST, (node ? node.availableParallelism() : navigator.hardwareConcurrency) >> 1));
}

// Whether this thread may sleep: that of a page may not.
function maySleep(memory) {
  try {
    return Atomics.wait(new Int32Array(memory.buffer), 0, ~Atomics.load(new Int32Array(memory.buffer), 0)) === 'not-equal';
  } catch {
    return false;
  }
}

Model.imports = () => ({ env: { memory: sharedMemory() } });

const { call } = Model.prototype;
Object.assign(Model.prototype, {
  async start(module, asked) {
    this.workers = [];
    this.threads = countThreads(asked);
    this.exports.team(this.threads, this.threads > 1 && maySleep(this.memory));
    const numbers = Array.from({ length: this.threads - 1 }, (_, i) => i + 1);
    await Promise.all(numbers.map((number) => this.startWorker(module, number)));
    for (const worker of this.workers) worker.unref?.(); // Node ends when all else has
  },

  // Resolves when it waits for work. A worker that is lost later ends the model.
  startWorker(module, number) {
    const url = new URL(import.meta.url), options = { type: 'module', name: ROLE, workerData: ROLE, execArgv: [] };
    const worker = new (node ? node.Worker : Worker)(url, options), size = this.exports.__stack_pointer.value;
    this.workers.push(worker);
    worker.postMessage({ module, memory: this.memory, number, stack: this.heap.allocate(size).at + size });
    return new Promise((started, failed) => {
      const fail = (e) => {
        if (!this.workers.includes(worker)) return; // close() ended it
        const which = `worker ${number} of ${this.threads - 1}`, what = e.message || e.data || 'its script cannot be loaded';
        failed(new SinterError(`${which} does not start: ${what}; load({ threads: 1 }) needs none`));
        this.end(`${which} is lost (${what})`);
      };
      const on = node ? (type, f) => worker.on(type, (e) => f(e instanceof Error ? e : { data: e }))
        : (type, f) => worker.addEventListener(type, f);
      on('message', (e) => (e.data === ROLE ? started() : fail(e)));
      on('error', fail);
      on('exit', () => fail({ message: 'it has ended' }));
    });
  },

  close() {
    for (const worker of this.workers) worker.terminate();
    this.workers = [];
    this.threads = 1;
    this.exports.leave(this.at);
  },

  // After a trap threads are in the middle of a run, and may write until they have ended.
  end(reason) {
    this.ended ??= reason;
    this.close();
  },

  call(...args) {
    if (this.ended) throw new SinterError(`${this.ended}: load the model again`);
    try {
      return call.apply(this, args);
    } catch (e) {
      if (e instanceof WebAssembly.RuntimeError || e instanceof RangeError) this.end(`a call failed (${e.message})`);
      throw e;
    }
  },
});

// In a worker.
if ((node ? node.workerData : globalThis.name) === ROLE && !globalThis.document) {
  const port = node ? node.parentPort : globalThis;
  port.onmessage = ({ data: { module, memory, number, stack } }) => {
    let exports;
    try {
      ({ exports } = new WebAssembly.Instance(module, { env: { memory } }));
      exports.__stack_pointer.value = stack;
      port.postMessage(ROLE);
      exports.work(number);
    } catch (e) {
      exports?.fail(number);
      port.postMessage(e.message);
    }
  };
}
