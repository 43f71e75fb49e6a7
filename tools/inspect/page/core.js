/* core.js: the data, the tabs, and what all views share: text, numbers, colours, tooltips. */
const Report = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const views = []; /* {id, title, lead, make(panel), show(entry), hover?} in the order of the tabs */
  const state = {entry: 0, tab: 0, listeners: []};
  const errors = [];
  window.addEventListener("error", (e) => errors.push(String(e.message)));
  window.addEventListener("unhandledrejection", (e) => errors.push(String(e.reason)));

  const $ = (id) => document.getElementById(id);

  /* An element: el("td", {class: "t", onclick: f}, "text", child, …). */
  function el(tag, attributes, ...children) {
    const svg = ["svg", "g", "path", "rect", "line", "circle", "text", "title", "polyline"].includes(tag);
    const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [k, v] of Object.entries(attributes || {})) {
      if (v === undefined || v === null || v === false) continue;
      if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
      else e.setAttribute(k, v === true ? "" : v);
    }
    for (const c of children.flat()) if (c !== undefined && c !== null) e.append(c);
    return e;
  }

  function digits(v) {
    const a = Math.abs(v);
    return a >= 100 ? v.toFixed(0) : a >= 10 ? v.toFixed(1) : a >= 1 ? v.toFixed(2) : v.toPrecision(2);
  }
  /* "1.24 M" and a unit. */
  function scaled(v, unit) {
    if (v === null || v === undefined || !isFinite(v)) return "–";
    if (v === 0) return "0 " + unit;
    const prefix = ["", "k", "M", "G", "T", "P"];
    let k = 0;
    while (Math.abs(v) >= 999.5 && k < 5) v /= 1000, k++;
    return (k || v % 1 ? digits(v) : String(v)) + " " + prefix[k] + unit;
  }
  function time(ms) {
    if (ms === null || ms === undefined) return "–";
    return ms >= 1000 ? digits(ms / 1000) + " s" : ms >= 1 ? digits(ms) + " ms" : digits(ms * 1000) + " µs";
  }
  const percent = (x) => x === null || x === undefined ? "–" : (100 * x).toFixed(x && x < 0.0995 ? 1 : 0) + " %";

  /* ---- colours: one for each kernel family ---- */
  let cache = {};
  const families = ["map_reduce", "column", "gemm", "flash", "flash_grad", "pack", "cumsum", "scatter", "primitive"];
  function css(name) {
    return cache[name] || (cache[name] = getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim());
  }
  const familyColour = (f) => css(families.includes(f) ? f : f === "onednn" ? "primitive" : "other");
  const titles = {map_reduce: "rows and elements (map_reduce)", column: "column reduction", gemm: "matrix product (gemm)",
    flash: "attention (flash)", flash_grad: "attention gradient", pack: "packing", scan: "running sum", scatter: "scatter"};
  function legend(list, extra) {
    const box = el("div", {class: "legend"});
    for (const f of list) box.append(el("span", {}, el("i", {style: "background:" + familyColour(f)}), titles[f] || f));
    for (const [c, t] of extra || []) box.append(el("span", {}, el("i", {style: "background:" + c}), t));
    return box;
  }
  const familiesOf = (entry) => [...new Set(entry.calls.map((c) => c.kernel))];

  /* ---- tooltip ---- */
  const tip = $("tip");
  function showTip(text, x, y) {
    if (!text) { tip.hidden = true; return; }
    tip.textContent = text;
    tip.hidden = false;
    const w = tip.offsetWidth, h = tip.offsetHeight;
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - w - 6)) + "px";
    tip.style.top = Math.max(4, y + 18 + h > innerHeight ? y - h - 8 : y + 18) + "px";
  }
  /* Text for an element under the mouse, or with the focus. */
  function tipped(e, text) {
    e.addEventListener("pointermove", (ev) => showTip(text, ev.clientX, ev.clientY));
    e.addEventListener("pointerleave", () => showTip(""));
    return e;
  }

  function callName(entry, i) {
    const c = entry.calls[i];
    return c ? `${i}: ${c.kernel}${c.where ? "  " + c.where : ""}` : "";
  }
  function callText(entry, i) {
    const c = entry.calls[i];
    if (!c) return "";
    const lines = [`kernel ${callName(entry, i)}`, c.result];
    if (c.fused) lines.push(c.fused);
    if (c.ms !== undefined) lines.push(`${time(c.ms)}, ${percent(c.share)} of the entry`);
    lines.push(`${scaled(c.flop, "FLOP")}, ${scaled(c.bytes, "B")}`);
    if (c.roof !== undefined) lines.push(`${percent(c.roof)} of the roofline, bound by ${c.bound}`);
    if (c.file) lines.push(`${fileName(c.file)}:${c.line}`);
    return lines.join("\n");
  }

  /* Width of a text in a font, in pixels. */
  const ruler = el("canvas", {}).getContext("2d");
  function textWidth(text, font) {
    ruler.font = font;
    return ruler.measureText(text).width;
  }
  /* The text, or as much of its end as fits. */
  function fitText(text, width, font) {
    if (textWidth(text, font) <= width) return text;
    let from = 0, to = text.length; /* the end from `to` on fits */
    while (from < to) {
      const at = (from + to) >> 1;
      if (textWidth("…" + text.slice(at), font) <= width) to = at; else from = at + 1;
    }
    return "…" + text.slice(from);
  }
  /* A source's name without the folder of the model. */
  function fileName(name) {
    const folder = data.model.name.replace(/[^/]*$/, "");
    return folder && name.startsWith(folder) ? name.slice(folder.length) : name.replace(/^(\.\.\/)+/, "");
  }
  /* "128 of B*T rows at a time, up to call 9": the last call of the loop that begins at call i; -1: none. */
  function loopEnd(entry, i) {
    const m = /up to call (\d+)/.exec(entry.calls[i].loop || "");
    return m ? Number(m[1]) : -1;
  }

  /* ---- canvas: sharp, redrawn at most once a frame ---- */
  function canvas(host, draw) {
    const c = el("canvas", {tabindex: 0});
    host.append(c);
    let waiting = false;
    const self = {element: c, width: 0, height: 0, frames: 0, spent: 0,
      paint() {
        const ratio = window.devicePixelRatio || 1, w = self.fixedWidth || host.clientWidth, h = self.fixedHeight || host.clientHeight;
        if (!w || !h) return;
        if (c.width !== Math.round(w * ratio) || c.height !== Math.round(h * ratio)) {
          c.width = Math.round(w * ratio); c.height = Math.round(h * ratio);
          c.style.width = w + "px"; c.style.height = h + "px";
        }
        self.width = w; self.height = h;
        const g = c.getContext("2d");
        g.setTransform(ratio, 0, 0, ratio, 0, 0);
        g.clearRect(0, 0, w, h);
        const begin = performance.now();
        draw(g, w, h);
        self.frames++;
        self.spent = performance.now() - begin;
      },
      redraw() {
        if (waiting) return;
        waiting = true;
        requestAnimationFrame(() => { waiting = false; self.paint(); });
      }};
    new ResizeObserver(() => self.redraw()).observe(host);
    return self;
  }

  /* ---- tabs ---- */
  function add(view) { views.push(view); }
  const entry = () => data.entries[state.entry];
  function show() {
    views.forEach((v, i) => {
      v.button.setAttribute("aria-selected", i === state.tab);
      v.button.tabIndex = i === state.tab ? 0 : -1;
      v.panel.hidden = i !== state.tab;
    });
    refresh(views[state.tab]);
    showTip("");
    location.hash.startsWith("#selftest") || history.replaceState(null, "", "#" + views[state.tab].id + "/" + entry().entry);
  }
  /* A view is made for an entry when it is seen. */
  function refresh(v) {
    if (v.seen !== state.entry) {
      v.seen = state.entry;
      v.make(v.panel, entry());
    }
    if (v.shown) v.shown();
  }
  function openTab(id) {
    const i = views.findIndex((v) => v.id === id);
    if (i >= 0) { state.tab = i; show(); }
    return views[i];
  }
  function openEntry(i) {
    state.entry = i;
    $("entry").value = i;
    show();
  }

  /* ---- search ---- */
  function search(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean), out = [];
    if (!words.length) return out;
    const e = entry(), last = new Map();
    e.stages.forEach((s, i) => s.nodes.forEach((id) => { if (!last.has(id)) last.set(id, i); }));
    for (const n of e.nodes) {
      const where = `${n.name || ""} ${n.op} ${n.type} %${n.id}`;
      if (last.has(n.id) && words.every((w) => where.toLowerCase().includes(w)))
        out.push({kind: "node", id: n.id, stage: last.get(n.id), title: n.name || n.op, text: `${n.op} ${n.type}`,
          score: (n.name ? 0 : 2) + (["param", "input", "state"].includes(n.op) ? 0 : 1) + last.get(n.id) / 100});
    }
    e.calls.forEach((c, i) => {
      if (words.every((w) => `${c.kernel} ${c.where} ${c.fused}`.toLowerCase().includes(w)))
        out.push({kind: "call", id: i, title: callName(e, i), text: c.result, score: 0.5});
    });
    return out.sort((a, b) => a.score - b.score).slice(0, 60);
  }
  function goTo(hit) {
    const v = openTab(hit.kind === "call" ? "kernels" : "graph");
    v.find(hit);
  }
  function startSearch() {
    const input = $("search"), list = $("found");
    let hits = [], at = 0;
    const draw = () => {
      list.replaceChildren(...hits.map((h, i) => el("li", {role: "option", "aria-selected": i === at, onpointerdown: (ev) => {
        ev.preventDefault(); at = i; take(); }}, h.title + " ", el("small", {}, h.text + (h.kind === "call" ? " (kernel)" : "")))));
      if (!hits.length) list.append(el("li", {}, "nothing found"));
      list.hidden = !input.value.trim();
      const on = list.children[at];
      if (on) on.scrollIntoView({block: "nearest"});
    };
    const take = () => { if (hits[at]) { list.hidden = true; input.blur(); goTo(hits[at]); } };
    input.addEventListener("input", () => { hits = search(input.value); at = 0; draw(); });
    input.addEventListener("keydown", (ev) => {
      if (ev.key === "ArrowDown") at = Math.min(at + 1, hits.length - 1);
      else if (ev.key === "ArrowUp") at = Math.max(at - 1, 0);
      else if (ev.key === "Enter") return take();
      else if (ev.key === "Escape") { list.hidden = true; return input.blur(); }
      else return;
      ev.preventDefault(); draw();
    });
    input.addEventListener("blur", () => { list.hidden = true; });
    document.addEventListener("keydown", (ev) => {
      if (ev.key === "/" && !/INPUT|SELECT|TEXTAREA/.test(ev.target.tagName)) { ev.preventDefault(); input.focus(); input.select(); }
    });
  }

  /* ---- start ---- */
  function setTheme(t) {
    if (t === "auto") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.setAttribute("data-theme", t);
    $("theme").textContent = t;
    cache = {};
    views.forEach((v) => { v.seen = -1; });
    if (views.length && views[0].panel) show();
  }
  function describe() {
    const m = data.model, k = data.machine;
    const name = m.name.replace(/.*\/(?=[^/])/, "");
    $("title").textContent = `Sinter report: ${name}`;
    $("title").title = m.name;
    document.title = `${name}: Sinter report`;
    const facts = [m.type, m.parameters ? scaled(m.parameters, "").trim() + " parameters" : "", m.random_weights ? "random weights" : "",
      `level ${m.level}`, `target ${m.target}`, `${k.threads} thread${k.threads > 1 ? "s" : ""}`,
      `${m.kernels} kernels in ${digits(m.compile_seconds)} s`, m.sizes ? "sizes " + m.sizes.replace(/,/g, ", ") : "",
      `machine: ${scaled(k.peak_gflops * 1e9, "FLOP/s")} f32, reads ${scaled(k.read_gbytes * 1e9, "B/s")}`, k.note];
    $("facts").textContent = facts.filter(Boolean).join(" · ");
  }
  /* The entry to open: of a training graph the step. */
  function firstEntry(list) {
    return Math.max(0, list.findIndex((e) => e.entry === "train_step"));
  }
  function start() {
    describe();
    data.entries.forEach((e, i) => $("entry").append(el("option", {value: i}, e.entry)));
    $("entry").addEventListener("change", () => openEntry(Number($("entry").value)));
    views.forEach((v, i) => {
      v.button = el("button", {role: "tab", id: "tab-" + v.id, "aria-controls": v.id, onclick: () => { state.tab = i; show(); }}, v.title);
      v.panel = el("section", {class: "panel " + (v.className || ""), role: "tabpanel", id: v.id, "aria-labelledby": "tab-" + v.id,
        "data-title": v.title, hidden: true});
      $("tabs").append(v.button);
      $("panels").append(v.panel);
    });
    $("tabs").addEventListener("keydown", (ev) => {
      const by = {ArrowRight: 1, ArrowLeft: -1}[ev.key];
      if (!by) return;
      state.tab = (state.tab + by + views.length) % views.length;
      show();
      views[state.tab].button.focus();
    });
    const themes = ["auto", "light", "dark"];
    $("theme").addEventListener("click", () => setTheme(themes[(themes.indexOf($("theme").textContent) + 1) % 3]));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme($("theme").textContent));
    let onScreen = "auto"; /* paper is light */
    window.addEventListener("beforeprint", () => {
      onScreen = $("theme").textContent;
      setTheme("light");
      views.forEach((v) => { v.panel.hidden = false; refresh(v); if (v.paint) v.paint(); });
    });
    window.addEventListener("afterprint", () => setTheme(onScreen));
    startSearch();
    const [id, name, theme] = location.hash.slice(1).split("/");
    const at = data.entries.findIndex((e) => e.entry === name);
    state.entry = at >= 0 ? at : firstEntry(data.entries);
    $("entry").value = state.entry;
    state.tab = Math.max(0, views.findIndex((v) => v.id === id));
    if (themes.includes(theme)) setTheme(theme); else show();
    if (location.hash.startsWith("#selftest")) Report.selftest();
  }
  return {data, views, state, errors, el, scaled, time, percent, digits, css, familyColour, familiesOf, legend, textWidth, fitText, fileName, loopEnd, showTip, tipped, tip, callName,
    callText, canvas, add, entry, show, openTab, openEntry, firstEntry, search, goTo, setTheme, start};
})();
