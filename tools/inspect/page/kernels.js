/* kernels.js: the kernel calls: a table with costs and reasons, and the roofline. */
(() => {
  const {data, el, scaled, time, percent, digits, css, familyColour, familiesOf, legend, tipped, callName, callText} = Report;
  let entry, rows = [], sort = null;

  /* What a call took by which rule, why its result is in memory, and what the passes said about its line. */
  Report.callDetail = (e, i) => {
    const c = e.calls[i], box = el("div", {}), dl = el("dl", {});
    const put = (k, v) => { if (v) dl.append(el("dt", {}, k), el("dd", {}, v)); };
    put("kernel", callName(e, i)); put("result", c.result); put("function", c.symbol);
    if (c.file) put("source", `${Report.fileName(c.file)}:${c.line}`);
    if (c.ms !== undefined) put("time", `${time(c.ms)}, ${percent(c.share)} of the entry`);
    if (c.roof !== undefined) put("roofline", `${percent(c.roof)}; ${c.bound} need at least ${time(c.least_ms)}`);
    box.append(dl);
    const list = (title, items) => { if (items.length) box.append(el("h3", {}, title), el("ul", {class: "plain"}, items.map((t) => el("li", {}, t)))); };
    list("What it computes, and by which rule", c.why.map((w) => `${w.operations}: ${w.rule}${w.level ? ` (from level ${w.level} on)` : ""}`));
    const because = new Map();
    for (const m of c.in_memory) because.set(m.because, (because.get(m.because) || []).concat(m.reader >= 0 ? [m.reader] : []));
    list("Why its result is in memory", [...because].map(([why, readers]) => why + (readers.length ? ` (read by ${readers.slice(0, 4).map((r) =>
      callName(e, r)).join("; ")}${readers.length > 4 ? ` and ${readers.length - 4} more` : ""})` : "")));
    list("Notes", c.notes.split("\n").filter(Boolean));
    const place = c.file ? `${c.file}:${c.line}:` : null;
    list("What the passes say about this line", place ? data.remarks.filter((r) => r.includes(place)).map((r) => r.replace(place, "").replace(/\s+/g, " ")) : []);
    return box;
  };

  function open(i, tr) {
    const next = tr.nextElementSibling;
    if (next && next.classList.contains("details")) { next.remove(); tr.classList.remove("open"); return; }
    tr.classList.add("open");
    tr.after(el("tr", {class: "details"}, el("td", {class: "more", colspan: 12}, Report.callDetail(entry, i))));
  }
  function line(i, times) {
    const c = entry.calls[i], ms = c.ms, share = c.share * times, seconds = ms / 1000;
    const tr = el("tr", {class: "row", tabindex: 0, "data-call": i, onclick: () => open(i, tr),
      onkeydown: (ev) => { if (ev.key === "Enter" || ev.key === " ") { ev.preventDefault(); open(i, tr); } }},
      el("td", {}, String(i)), el("td", {class: "t"}, el("span", {class: "chip", style: `background:${familyColour(c.kernel)}`}, c.kernel)),
      el("td", {class: "t wide"}, times > 1 ? c.where.replace(/\d+/, "*") : c.where), el("td", {class: "t"}, c.result),
      el("td", {}, percent(share), el("span", {class: "barbox"}, el("span", {class: "bar", style: `width:${(100 * share / top()).toFixed(1)}%;background:${familyColour(c.kernel)}`}))),
      el("td", {}, ms === undefined ? "–" : time(ms)), el("td", {}, c.flop ? scaled(c.flop, "") : "–"), el("td", {}, scaled(c.bytes, "B")),
      el("td", {}, ms && c.flop ? digits(c.flop / seconds / 1e9) : "–"), el("td", {}, ms ? digits(c.bytes / seconds / 1e9) : "–"),
      el("td", {}, c.roof === undefined ? "–" : percent(c.roof) + (c.above_peak ? " (above the measured peak: the machine was busy)" : "")), el("td", {class: "t wide"}, c.fused + (c.when || "")));
    tr.firstChild.dataset.tip = callText(entry, i);
    tipped(tr.children[1], callText(entry, i));
    tipped(tr.children[2], callText(entry, i));
    return tr;
  }
  let most = 0;
  const top = () => most || 1;
  const columns = [["call", null], ["kernel", "t"], ["where", "t"], ["result", "t"], ["share of time", null, "share"], ["time", null, "ms"],
    ["FLOP", null, "flop"], ["bytes", null, "bytes"], ["GFLOP/s", null], ["GB/s", null], ["of the roofline", null, "roof"], ["fused operations", "t"]];

  function fill(body) {
    rows = [];
    const times = entry.calls.map(() => 1), skip = entry.calls.map(() => false), head = new Map();
    for (const d of entry.folds) {
      head.set(d.first, d);
      for (let i = d.first; i < d.first + d.period * d.times; i++) {
        if (i < d.first + d.period) times[i] = d.times; else skip[i] = true;
      }
    }
    most = Math.max(...entry.calls.map((c, i) => c.share * times[i]));
    const order = entry.calls.map((c, i) => i).filter((i) => !skip[i]);
    if (sort) order.sort((a, b) => (entry.calls[b][sort] || 0) * (sort === "roof" ? 1 : times[b]) - (entry.calls[a][sort] || 0) * (sort === "roof" ? 1 : times[a]) || a - b);
    const out = [];
    for (const i of order) {
      const d = head.get(i);
      if (d && !sort) out.push(el("tr", {class: "fold"}, el("td", {colspan: 12}, `calls ${d.first} to ${d.first + d.period * d.times - 1}: ` +
        `${d.times} times the same ${d.period} calls; shares are of all, times of one`)));
      const end = Report.loopEnd(entry, i);
      if (end >= 0 && !sort) out.push(el("tr", {class: "fold"}, el("td", {colspan: 12}, `calls ${i} to ${end} are a loop: ${entry.calls[i].loop.replace(/,[^,]*$/, "")}`)));
      out.push(line(i, times[i]));
      const last = entry.folds.find((f) => f.first + f.period - 1 === i);
      if (last && !sort) out.push(el("tr", {class: "fold"}, el("td", {colspan: 12}, "")));
    }
    body.replaceChildren(...out);
  }

  /* ---- the roofline ---- */

  function roofline(e) {
    const k = data.machine, W = 760, H = 330, L = 62, R = 14, T = 14, B = 40;
    const points = e.calls.map((c, i) => ({c, i})).filter((p) => p.c.ms > 0 && p.c.flop > 0 && p.c.bytes > 0);
    if (!points.length || !k.peak_gflops) return el("p", {class: "lead"}, "No times were measured, so there is no roofline.");
    const x = points.map((p) => p.c.flop / p.c.bytes), y = points.map((p) => p.c.flop / p.c.ms / 1e6);
    const xs = [Math.min(0.05, ...x), Math.max(100, ...x) * 1.5], ys = [Math.min(...y) / 2, Math.max(k.peak_gflops, ...y) * 1.6];
    const log = (v, [a, b], p, q) => p + (q - p) * Math.log(v / a) / Math.log(b / a);
    const px = (v) => log(v, xs, L, W - R), py = (v) => log(v, ys, H - B, T);
    const svg = el("svg", {viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "img", "aria-label": "roofline", style: "max-width:100%"});
    const ticks = (range) => { const out = []; for (let p = Math.ceil(Math.log10(range[0])); p <= Math.log10(range[1]); p++) out.push(10 ** p); return out; };
    for (const v of ticks(xs)) svg.append(el("line", {class: "grid", x1: px(v), x2: px(v), y1: T, y2: H - B}),
      el("text", {class: "dim", x: px(v), y: H - B + 16, "text-anchor": "middle"}, String(v < 1 ? +v.toPrecision(1) : v)));
    for (const v of ticks(ys)) svg.append(el("line", {class: "grid", x1: L, x2: W - R, y1: py(v), y2: py(v)}),
      el("text", {class: "dim", x: L - 6, y: py(v) + 4, "text-anchor": "end"}, String(v < 1 ? +v.toPrecision(1) : v)));
    const ridge = k.peak_gflops / k.read_gbytes, from = Math.max(xs[0], ys[0] / k.read_gbytes);
    svg.append(el("polyline", {points: `${px(from)},${py(from * k.read_gbytes)} ${px(ridge)},${py(k.peak_gflops)} ${px(xs[1])},${py(k.peak_gflops)}`,
      fill: "none", stroke: css("dim"), "stroke-width": 2}),
    el("text", {x: W - R - 4, y: py(k.peak_gflops) - 6, "text-anchor": "end"}, `f32 multiply-add peak ${digits(k.peak_gflops)} GFLOP/s`),
    el("text", {x: px(Math.sqrt(from * ridge)) + 8, y: py(Math.sqrt(from * ridge) * k.read_gbytes) + 16}, `reading memory ${digits(k.read_gbytes)} GB/s`),
    el("text", {x: (L + W - R) / 2, y: H - 6, "text-anchor": "middle"}, "FLOP per byte read or written"),
    el("text", {x: 14, y: (T + H - B) / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${(T + H - B) / 2})`}, "GFLOP/s"));
    points.sort((a, b) => b.c.ms - a.c.ms);
    points.forEach(({c, i}, at) => {
      const dot = el("circle", {cx: px(c.flop / c.bytes), cy: py(c.flop / c.ms / 1e6), r: Math.max(3.5, Math.min(16, 28 * Math.sqrt(c.share))),
        fill: familyColour(c.kernel), "fill-opacity": 0.65, stroke: css("bg"), tabindex: at < 40 ? 0 : null, onclick: () => find({kind: "call", id: i})},
      el("title", {}, callText(e, i)));
      svg.append(tipped(dot, callText(e, i)));
    });
    return svg;
  }

  /* "h.3" of "h.3.attn.c_attn": the layer that a call belongs to; "": none. */
  function layerOf(c) {
    const m = /(?:^|\+)([A-Za-z_]+(?:\.[A-Za-z_]+)*\.?\d+)(?:\.|$)/.exec(c.where);
    return m ? m[1] : "";
  }
  /* Time by layer, stacked by kernel family; null: there are no layers. */
  function layers(e) {
    const rows = new Map();
    e.calls.forEach((c) => {
      const name = layerOf(c), of = rows.get(name) || rows.set(name, {total: 0, family: new Map()}).get(name), v = c.ms === undefined ? c.share : c.ms;
      of.total += v;
      of.family.set(c.kernel, (of.family.get(c.kernel) || 0) + v);
    });
    const list = [...rows].sort((a, b) => (a[0] === "") - (b[0] === "")).slice(0, 100);
    if (list.length < 3) return null;
    const W = 760, ROW = 20, L = 170, high = Math.max(...list.map(([, r]) => r.total)), measured = e.calls.some((c) => c.ms !== undefined);
    const show = (v) => measured ? time(v) : percent(v), wide = (v) => (W - L - 90) * v / high;
    const svg = el("svg", {viewBox: `0 0 ${W} ${list.length * ROW + 4}`, width: W, height: list.length * ROW + 4, role: "img", "aria-label": "time by layer",
      style: "max-width:100%"});
    list.forEach(([name, r], i) => {
      let x = L;
      svg.append(el("text", {x: 0, y: i * ROW + 15}, Report.fitText(name || "outside of layers", L - 8, "12px system-ui, sans-serif")));
      for (const [family, v] of r.family) {
        svg.append(tipped(el("rect", {x, y: i * ROW + 3, width: Math.max(0.5, wide(v)), height: ROW - 5, fill: familyColour(family)}),
          `${name || "outside of layers"}\n${family}: ${show(v)}, ${percent(v / r.total)} of ${show(r.total)}`));
        x += wide(v);
      }
      svg.append(el("text", {x: x + 6, y: i * ROW + 15}, show(r.total)));
    });
    return svg;
  }

  function find(h) {
    if (sort) { sort = null; Report.openTab("kernels"); }
    let i = h.id;
    for (const d of entry.folds) if (i >= d.first && i < d.first + d.period * d.times) i = d.first + (i - d.first) % d.period;
    const tr = document.querySelector(`#kernels tr[data-call="${i}"]`);
    if (!tr) return;
    if (!tr.classList.contains("open")) open(i, tr);
    tr.scrollIntoView({block: "center"});
    tr.focus({preventScroll: true});
  }

  Report.add({id: "kernels", title: "Kernels",
    make(panel, e) {
      entry = e;
      const measured = e.calls.some((c) => c.ms !== undefined), body = el("tbody", {});
      const head = el("tr", {}, columns.map(([t, c, key]) => el("th", {class: c, scope: "col"}, key ? el("button", {title: "sort by this",
        onclick: () => { sort = sort === key ? null : key; fill(body); }}, t + " ⇅") : t)));
      fill(body);
      panel.replaceChildren(el("p", {class: "lead"}, `Entry ${e.entry}: ${e.calls.length} kernel calls, ${e.calls.filter((c) => c.barrier).length} barriers, ` +
        `${scaled(e.flop, "FLOP")}, ${scaled(e.bytes, "B")} read and written (${e.sizes.replace(/,/g, ", ")}). ` +
        (measured ? "Times are medians of several runs, first thread's begin to last one's end." : "Not measured: shares are estimated from operations and bytes.") +
        " Click a row to see what was fused by which rule, and why the kernel ends there."),
      e.not_measured ? el("p", {class: "note"}, `The entry could not be run: ${e.not_measured}`) : "",
      legend(familiesOf(e)), el("table", {}, el("thead", {}, head), body),
      el("h2", {}, "Roofline"), el("p", {class: "lead"}, "Each circle is a kernel call; its area is its share of the time. Circles above the slope have their operands in the cache."), roofline(e));
      const byLayer = layers(e);
      if (byLayer) panel.append(el("h2", {}, "By layer"), byLayer);
      const notes = data.remarks.filter((r) => !r.startsWith("choice"));
      if (notes.length) panel.append(el("h2", {}, "What the passes say"), el("ul", {class: "plain"}, notes.map((r) => el("li", {}, r))));
    }, find});
})();
