/* graph.js: the model's lines beside its graph, before and after each pass. */
(() => {
  const {data, el, css, familyColour, legend, familiesOf, callName, callText, showTip, textWidth, fitText} = Report;
  const BOLD = "600 12px system-ui, sans-serif", PLAIN = "11px system-ui, sans-serif", TITLE = "600 11.5px system-ui, sans-serif", COUNT = "600 14px system-ui, sans-serif", MAX_TEXT = 214;
  const LEAVES = ["input", "param", "state"];
  const VIEWS = ["broadcast", "reshape", "transpose", "slice", "result", "stop_gradient", "cast"];
  let entry, byId, stage = 0, drawn = null, selected = -1, hovered = null, canvas, parts = {};
  const options = {fold: true, boxes: true, views: false, params: true};
  const look = {x: 0, y: 0, scale: 1};
  const layouts = new Map();

  /* ---- what is shown ---- */

  /* Position in the stage's order of the node that stands for position i: in folded layers, the one of the first layer. */
  function stand(s, i) {
    if (!options.fold) return i;
    for (const d of s.folds) if (i >= d.first && i < d.first + d.period * d.times) return d.first + (i - d.first) % d.period;
    return i;
  }
  function isHidden(n) {
    if (!n.in.length && !LEAVES.includes(n.op)) return !options.views;
    if (n.op === "param") return !options.params;
    return !options.views && VIEWS.includes(n.op) && n.in.length === 1;
  }
  function label(n, kernel) {
    const call = kernel >= 0 ? entry.calls[kernel] : null;
    if (n.name) return n.name;
    return call && ["map_reduce", "gemm", "flash", "flash_grad"].includes(n.op) ? call.where || n.type : n.type;
  }

  function build() {
    const key = [Report.state.entry, stage, options.fold, options.boxes, options.views, options.params].join();
    if (layouts.has(key)) return layouts.get(key);
    const s = entry.stages[stage], at = new Map(s.nodes.map((id, i) => [id, i]));
    const shown = [], index = new Map(); /* position -> index in shown */
    s.nodes.forEach((id, i) => {
      const n = byId.get(id);
      if (stand(s, i) !== i || isHidden(n)) return;
      const kernel = s.kernels[i], text = label(n, kernel);
      index.set(i, shown.length);
      const v = {id, n, kernel, at: i, line: fitText(text, MAX_TEXT, PLAIN), w: 0, h: 34, group: options.boxes ? kernel : -1};
      v.w = 16 + Math.ceil(Math.max(textWidth(n.op, BOLD), textWidth(v.line, PLAIN)));
      shown.push(v);
    });
    /* leaves and constants join the kernel of their only reader */
    const edges = [], seen = new Set(), readers = new Map();
    const sources = (i, out, depth) => { /* what position i shows, through hidden nodes */
      const j = stand(s, i);
      if (index.has(j)) out.add(index.get(j));
      else if (depth < 50) for (const id of byId.get(s.nodes[i]).in) if (at.has(id)) sources(at.get(id), out, depth + 1);
      return out;
    };
    s.nodes.forEach((id, i) => {
      const to = index.get(stand(s, i));
      if (to === undefined) return;
      /* of folded layers the first one is drawn; what later ones read outside the layers is left out */
      if (stand(s, i) !== i && !inLast(s, i)) return;
      for (const input of byId.get(id).in) {
        if (!at.has(input)) continue;
        for (const from of sources(at.get(input), new Set(), 0)) {
          const k = from * shown.length + to;
          if (from >= to || seen.has(k)) continue; /* backwards: to the next of the folded layers */
          seen.add(k);
          edges.push([from, to]);
          readers.set(from, (readers.get(from) || new Set()).add(shown[to].group));
        }
      }
    });
    shown.forEach((v, i) => {
      const of = readers.get(i);
      if (v.group < 0 && !v.n.in.length && of && of.size === 1) v.group = [...of][0];
    });
    const picture = Layout.nested(shown, edges, (g) => 20 + Math.ceil(textWidth(callName(entry, g), TITLE)));
    Object.assign(picture, {shown, edges, index, stage: s});
    /* where folded layers begin and end */
    picture.folds = !options.fold ? [] : s.folds.map((d) => {
      /* leaves stand beside what reads them, which has a bracket of its own */
      const of = shown.filter((v) => v.at >= d.first && v.at < d.first + d.period && !LEAVES.includes(v.n.op));
      if (!of.length) return null;
      const y0 = Math.min(...of.map((v) => v.y)) - 12, y1 = Math.max(...of.map((v) => v.y + v.h)) + 12;
      /* on the left of all that is beside the layer */
      const beside = [...shown, ...picture.boxes].filter((v) => v.y < y1 && v.y + v.h > y0);
      const name = (v) => v.n.name || (v.kernel >= 0 ? entry.calls[v.kernel].where : "");
      const named = of.map((v) => /^@?([A-Za-z_.]*?)\.?\d/.exec(name(v))).find((m) => m && m[1]);
      const text = `${d.times} × ${named ? named[1] : "equal parts"}`;
      return {y0, y1, text, x: Math.min(...beside.map((v) => v.x)) - 26, w: textWidth(text, COUNT) + 12};
    }).filter(Boolean);
    picture.folds.forEach((f, i) => { /* side by side: of an encoder and a decoder */
      for (const g of picture.folds.slice(0, i)) if (f.y0 < g.y1 && g.y0 < f.y1 && Math.abs(f.x - g.x) < 24) f.x = g.x - 90;
    });
    picture.left = Math.min(0, ...picture.folds.map((f) => f.x - f.w));
    /* loops over rows: a bracket on the right of the kernels that are run again and again */
    picture.loops = [];
    entry.calls.forEach((c, i) => {
      const end = Report.loopEnd(entry, i), of = picture.boxes.filter((b) => b.group >= i && b.group <= end);
      if (of.length) picture.loops.push({y0: Math.min(...of.map((b) => b.y)) - 8, y1: Math.max(...of.map((b) => b.y + b.h)) + 8,
        x: Math.max(...of.map((b) => b.x + b.w)) + 14, text: "loop: " + c.loop.replace(/,[^,]*$/, "")});
    });
    picture.rows = [...shown.keys()].sort((a, b) => shown[a].y - shown[b].y);
    layouts.set(key, picture);
    return picture;
  }
  function inLast(s, i) {
    return s.folds.some((d) => i >= d.first + d.period && i < d.first + 2 * d.period);
  }

  /* ---- drawing ---- */

  function curve(g, p, straight) {
    g.moveTo(p[0][0], p[0][1]);
    for (let i = 1; i < p.length; i++) {
      const [x0, y0] = p[i - 1], [x1, y1] = p[i], m = (y0 + y1) / 2;
      if (x0 === x1 || straight) g.lineTo(x1, y1); else g.bezierCurveTo(x0, m, x1, m, x1, y1);
    }
  }
  function near(p) {
    return hovered && hovered.node >= 0 && (p[0] === hovered.node || p[1] === hovered.node);
  }
  function paint(g, w, h) {
    if (!drawn) return;
    const k = look.scale, x0 = -look.x / k, y0 = -look.y / k, x1 = x0 + w / k, y1 = y0 + h / k;
    const visible = (b) => b.x < x1 && b.x + b.w > x0 && b.y < y1 && b.y + b.h > y0;
    const plain = k < 0.3; /* too small for texts and corners: what is alike is one path */
    const alike = new Map(), keep = (colour, b) => { if (!alike.has(colour)) alike.set(colour, []); alike.get(colour).push(b); };
    g.save();
    g.translate(look.x, look.y);
    g.scale(k, k);
    for (const f of drawn.folds) {
      g.strokeStyle = css("dim"); g.lineWidth = 2 / Math.min(1, k);
      g.beginPath(); g.moveTo(f.x + 10, f.y0); g.lineTo(f.x, f.y0); g.lineTo(f.x, f.y1); g.lineTo(f.x + 10, f.y1); g.stroke();
      g.fillStyle = css("text"); g.font = `600 ${Math.max(14, 12 / k)}px system-ui, sans-serif`; g.textAlign = "right";
      /* beside the bracket, or at the window's edge */
      const w = g.measureText(f.text).width, at = f.x < x0 ? f.x - 6 : Math.max(f.x - 6, x0 + 4 / k + w);
      const line = Math.min(Math.max(f.y0 + 16, y0 + 30 / k), f.y1);
      g.fillText(f.text, at, line);
      g.textAlign = "left";
    }
    for (const f of drawn.loops) {
      g.strokeStyle = css("accent"); g.lineWidth = 2 / Math.min(1, k); g.setLineDash([6, 4]);
      g.beginPath(); g.moveTo(f.x - 10, f.y0); g.lineTo(f.x, f.y0); g.lineTo(f.x, f.y1); g.lineTo(f.x - 10, f.y1); g.stroke(); g.setLineDash([]);
      g.fillStyle = css("text"); g.font = `600 ${Math.max(12, 10 / k)}px system-ui, sans-serif`;
      g.fillText(f.text, f.x + 6, Math.min(Math.max(f.y0 + 16, y0 + 30 / k), f.y1));
    }
    for (const b of drawn.boxes) {
      if (!visible(b)) continue;
      const call = entry.calls[b.group], colour = familyColour(call ? call.kernel : "other");
      const on = hovered && hovered.kernel === b.group;
      if (plain && !on) { keep(colour, b); continue; }
      g.globalAlpha = on ? 0.3 : 0.13; g.fillStyle = colour;
      g.beginPath(); g.roundRect(b.x, b.y, b.w, b.h, 8); g.fill();
      g.globalAlpha = 1; g.strokeStyle = colour; g.lineWidth = on ? 3 : 1.4; g.stroke();
      if (!plain) {
        g.fillStyle = css("text"); g.font = TITLE;
        g.fillText(callName(entry, b.group), b.x + 9, b.y + 15);
      }
    }
    for (const [colour, list] of alike) {
      g.beginPath();
      for (const b of list) g.rect(b.x, b.y, b.w, b.h);
      g.globalAlpha = 0.13; g.fillStyle = colour; g.fill();
      g.globalAlpha = 1; g.strokeStyle = colour; g.lineWidth = 1.4; g.stroke();
    }
    alike.clear();
    /* edges that may cross the window, in one path */
    g.strokeStyle = css("dim"); g.globalAlpha = 0.55; g.lineWidth = Math.max(1, 0.7 / k);
    g.beginPath();
    const strong = [];
    drawn.edges.forEach((e, i) => {
      const p = drawn.paths[i], a = p[0], b = p[p.length - 1];
      if (Math.max(a[1], b[1]) < y0 || Math.min(a[1], b[1]) > y1) return;
      if (near(e)) strong.push(p); else curve(g, p, plain);
    });
    g.stroke();
    g.globalAlpha = 1;
    if (strong.length) {
      g.strokeStyle = css("accent"); g.lineWidth = Math.max(2, 1.5 / k);
      g.beginPath(); strong.forEach((p) => curve(g, p)); g.stroke();
    }
    for (const i of drawn.rows) {
      const v = drawn.shown[i];
      if (v.y > y1) break;
      if (!visible(v)) continue;
      const leaf = LEAVES.includes(v.n.op), call = v.kernel >= 0 ? entry.calls[v.kernel] : null;
      const colour = call ? familyColour(call.kernel) : css("dim");
      if (plain && v.id !== selected && !(hovered && hovered.node === i)) { keep(colour, v); continue; }
      g.fillStyle = css(leaf ? "panel" : "bg");
      g.strokeStyle = v.id === selected ? css("accent") : colour;
      g.lineWidth = v.id === selected ? 4 : hovered && hovered.node === i ? 3 : 1.2;
      g.beginPath(); g.roundRect(v.x, v.y, v.w, v.h, leaf ? 16 : 5); g.fill(); g.stroke();
      if (plain) continue;
      g.fillStyle = css("text"); g.font = BOLD;
      g.fillText(v.n.op, v.x + 8, v.y + 14);
      g.fillStyle = css("dim"); g.font = PLAIN;
      g.fillText(v.line, v.x + 8, v.y + 28);
    }
    for (const [colour, list] of alike) {
      g.fillStyle = colour;
      for (const v of list) g.fillRect(v.x, v.y, v.w, v.h);
    }
    g.restore();
  }

  function hit(px, py) {
    if (!drawn) return null;
    const x = (px - look.x) / look.scale, y = (py - look.y) / look.scale;
    for (let i = 0; i < drawn.shown.length; i++) {
      const v = drawn.shown[i];
      if (x >= v.x && x <= v.x + v.w && y >= v.y && y <= v.y + v.h) return {node: i, kernel: v.group};
    }
    for (const b of drawn.boxes) if (x >= b.x && x <= b.x + b.w && y >= b.y && y <= b.y + b.h) return {node: -1, kernel: b.group};
    return null;
  }
  function tipOf(h) {
    if (!h) return "";
    if (h.node < 0) return callText(entry, h.kernel);
    const v = drawn.shown[h.node], n = v.n, lines = [`${n.op}${n.name ? "  " + n.name : ""}`, n.type];
    if (n.attributes) lines.push(n.attributes);
    if (n.file !== undefined) lines.push(`${Report.fileName(data.files[n.file].name)}:${n.line}`);
    if (v.kernel >= 0) lines.push(`in kernel ${callName(entry, v.kernel)}`);
    return lines.join("\n");
  }

  /* ---- moving ---- */

  const wide = () => drawn.width - drawn.left; /* with the names of brackets */
  function fit() {
    const w = canvas.width || 800, h = canvas.height || 600;
    look.scale = Math.min(1.2, Math.max(Math.min((w - 20) / wide(), (h - 30) / drawn.height), 0.02));
    look.x = (w - wide() * look.scale) / 2 - drawn.left * look.scale;
    look.y = 15;
    canvas.redraw();
  }
  /* The whole width, or what is readable, from the top. */
  function top() {
    const w = canvas.width || 800;
    look.scale = Math.min(1, Math.max(0.55, (w - 20) / wide()));
    const first = drawn.boxes.find((b) => b.group === 0) || drawn.shown[drawn.rows[0]] || {x: 0, w: 0};
    look.x = wide() * look.scale <= w - 19 ? (w - wide() * look.scale) / 2 - drawn.left * look.scale : w / 2 - (first.x + first.w / 2) * look.scale;
    look.y = 15;
    canvas.redraw();
  }
  function zoom(by, px, py) {
    const k = Math.min(4, Math.max(0.02, look.scale * by));
    look.x = px - (px - look.x) * k / look.scale;
    look.y = py - (py - look.y) * k / look.scale;
    look.scale = k;
    canvas.redraw();
  }
  function centre(b) {
    look.scale = Math.max(look.scale, 0.75);
    look.x = canvas.width / 2 - (b.x + b.w / 2) * look.scale;
    look.y = canvas.height / 2 - (b.y + b.h / 2) * look.scale;
    canvas.redraw();
  }
  function listen(c) {
    let drag = null;
    const moved = (e) => Math.abs(e.offsetX - drag.x0) + Math.abs(e.offsetY - drag.y0) > 4;
    c.addEventListener("pointerdown", (e) => { drag = {x: e.offsetX, y: e.offsetY, x0: e.offsetX, y0: e.offsetY}; c.setPointerCapture(e.pointerId); });
    c.addEventListener("pointermove", (e) => {
      if (drag) {
        look.x += e.offsetX - drag.x; look.y += e.offsetY - drag.y;
        drag.x = e.offsetX; drag.y = e.offsetY;
        showTip(""); canvas.redraw();
        return;
      }
      const h = hit(e.offsetX, e.offsetY), same = JSON.stringify(h) === JSON.stringify(hovered);
      hovered = h;
      if (!same) canvas.redraw();
      showTip(tipOf(h), e.clientX, e.clientY);
    });
    c.addEventListener("pointerleave", () => { hovered = null; showTip(""); canvas.redraw(); });
    c.addEventListener("pointerup", (e) => {
      const click = drag && !moved(e);
      drag = null;
      if (!click) return;
      const h = hit(e.offsetX, e.offsetY);
      if (h && h.node >= 0) select(drawn.shown[h.node].id); else if (h) selectCall(h.kernel); else select(-1);
    });
    c.addEventListener("wheel", (e) => {
      e.preventDefault();
      if (e.ctrlKey || !e.shiftKey && Math.abs(e.deltaY) >= Math.abs(e.deltaX)) zoom(Math.exp(-e.deltaY * 0.0015), e.offsetX, e.offsetY);
      else { look.x -= e.deltaX || e.deltaY; canvas.redraw(); }
    }, {passive: false});
    c.addEventListener("dblclick", fit);
    c.addEventListener("keydown", (e) => {
      const step = 60, w = canvas.width / 2, h = canvas.height / 2;
      const keys = {ArrowLeft: () => { look.x += step; }, ArrowRight: () => { look.x -= step; }, ArrowUp: () => { look.y += step; },
        ArrowDown: () => { look.y -= step; }, "+": () => zoom(1.25, w, h), "=": () => zoom(1.25, w, h), "-": () => zoom(0.8, w, h),
        "0": fit, "1": top, "[": () => setStage(stage - 1), "]": () => setStage(stage + 1)};
      if (!keys[e.key]) return;
      e.preventDefault();
      keys[e.key]();
      canvas.redraw();
    });
  }

  /* ---- source and details ---- */

  function showSource(file, line) {
    if (parts.file !== file) {
      parts.file = file;
      const used = new Map();
      for (const id of entry.stages[stage].nodes) {
        const n = byId.get(id);
        if (n.file === file) used.set(n.line, (used.get(n.line) || 0) + 1);
      }
      const text = data.files[file] ? data.files[file].text.replace(/\n$/, "") : "";
      parts.lines = text.split("\n").map((t, i) => {
        const count = used.get(i + 1);
        return el("span", {class: "l" + (count ? " has" : ""), title: count ? `${count} nodes` : null,
          onclick: count ? () => selectLine(i + 1) : null}, el("b", {}, String(i + 1)), t || " ");
      });
      parts.code.replaceChildren(...(text ? parts.lines : [el("span", {class: "l"}, "  the source could not be read")]));
      parts.files.value = file;
    }
    for (const l of parts.lines) l.classList.remove("on");
    const at = parts.lines[line - 1], used = parts.lines.find((l) => l.classList.contains("has"));
    if (!at && used) parts.source.scrollTop = Math.max(0, used.offsetTop - 60); /* the first line that made a node */
    if (at) { at.classList.add("on"); parts.source.scrollTop = at.offsetTop - parts.source.clientHeight / 2; }
  }
  function selectLine(line) {
    const v = drawn.shown.find((s) => s.n.file === parts.file && s.n.line === line);
    if (v) { select(v.id); centre(v); }
    else showSource(parts.file, line);
  }
  function row(dl, name, value) {
    if (value !== undefined && value !== "" && value !== null) dl.append(el("dt", {}, name), el("dd", {}, value));
  }
  function select(id) {
    selected = id;
    const n = byId.get(id), box = parts.detail;
    canvas.redraw();
    if (!n) { box.replaceChildren(help()); return; }
    if (n.file !== undefined) showSource(n.file, n.line);
    const s = entry.stages[stage], at = s.nodes.indexOf(id), kernel = at >= 0 ? s.kernels[at] : -1, dl = el("dl", {});
    row(dl, "operation", n.op); row(dl, "name", n.name); row(dl, "type", n.type); row(dl, "attributes", n.attributes);
    row(dl, "node", "%" + n.id);
    if (n.file !== undefined) row(dl, "source", `${Report.fileName(data.files[n.file].name)}:${n.line}`);
    if (kernel >= 0) row(dl, "kernel", el("button", {class: "link", onclick: () => Report.goTo({kind: "call", id: kernel})}, callName(entry, kernel)));
    const links = (list) => list.slice(0, 12).map((i) => {
      const o = byId.get(i);
      return el("div", {}, el("button", {class: "link", onclick: () => find({kind: "node", id: i, stage})}, `%${i} ${o.op}`), " " + (o.name || o.type));
    });
    const users = s.nodes.filter((i) => byId.get(i).in.includes(id));
    box.replaceChildren(el("h3", {}, n.name || n.op), dl, n.in.length ? el("h3", {}, "operands") : "", ...links(n.in),
      users.length ? el("h3", {}, `read by ${users.length}`) : "", ...links(users));
  }
  function selectCall(i) {
    selected = -1;
    canvas.redraw();
    parts.detail.replaceChildren(el("h3", {}, "kernel"), Report.callDetail(entry, i),
      el("button", {onclick: () => Report.goTo({kind: "call", id: i})}, "show in the table"));
    const c = entry.calls[i];
    if (c.source !== undefined) showSource(c.source, c.line);
  }
  function help() {
    return el("div", {}, el("h3", {}, "How to read this"), el("ul", {class: "plain"},
      el("li", {}, "A rectangle is an operation; a rounded one is an input, a parameter or a state."),
      el("li", {}, "A coloured box is the kernel that computes what is in it in the end."),
      el("li", {}, "“12 ×” beside a bracket: so many layers or parts are the same; one is drawn."),
      el("li", {}, "A dashed bracket: a loop over blocks of rows."),
      el("li", {}, "Move the slider (keys [ and ]) to see the graph after each pass."),
      el("li", {}, "Drag to move, turn the wheel or press + and − to zoom, 0 shows all, 1 the beginning."),
      el("li", {}, "Click an operation to see its line of C; click a marked line to see its operations.")),
      legend(familiesOf(entry)));
  }

  /* ---- stages ---- */

  function setStage(i, keep) {
    const last = selected >= 0 && drawn ? entry.stages[stage].kernels[entry.stages[stage].nodes.indexOf(selected)] : -1;
    stage = Math.max(0, Math.min(entry.stages.length - 1, i));
    const s = entry.stages[stage];
    parts.slider.value = stage;
    parts.name.textContent = stage ? `after ${s.name}` : s.name;
    parts.why.textContent = `${s.purpose}${s.rewrites ? ` · ${s.rewrites} rewrites in all entries` : ""} · ${s.nodes.length} nodes` +
      `${s.file ? " · " + s.file : ""}`;
    drawn = build();
    hovered = null;
    if (!s.nodes.includes(selected)) selected = -1;
    const file = parts.file;
    parts.file = -1;
    const scrolled = parts.source.scrollTop;
    if (file >= 0) { showSource(file, 0); parts.source.scrollTop = scrolled; }
    if (keep) return;
    const box = drawn.boxes.find((b) => b.group === last);
    if (last >= 0 && box) centre(box); else top();
    if (selected < 0) parts.detail.replaceChildren(help()); else select(selected);
  }
  function find(h) {
    if (h.kind === "call") return;
    if (h.stage !== undefined && h.stage !== stage) setStage(h.stage, true);
    let s = entry.stages[stage], at = s.nodes.indexOf(h.id);
    if (at >= 0 && !drawn.index.has(stand(s, at))) { /* hidden */
      options.views = options.params = true;
      parts.boxes.views.checked = parts.boxes.params.checked = true;
      drawn = build();
      s = entry.stages[stage];
    }
    if (at < 0) return;
    const v = drawn.shown[drawn.index.get(stand(s, at))];
    select(v.id);
    centre(v);
  }

  const view = {id: "graph", title: "Graph", className: "graph",
    make(panel, e) {
      entry = e;
      byId = new Map(e.nodes.map((n) => [n.id, n]));
      layouts.clear();
      selected = -1;
      parts = {boxes: {}, file: -1, lines: []};
      const counts = new Map();
      for (const n of e.nodes) if (n.file !== undefined) counts.set(n.file, (counts.get(n.file) || 0) + 1);
      const own = (f) => data.files[f].name === data.model.name; /* the model's own file first, then those with most nodes */
      const files = [...counts.keys()].sort((a, b) => own(b) - own(a) || counts.get(b) - counts.get(a));
      const toggle = (key, text) => el("label", {}, parts.boxes[key] = el("input", {type: "checkbox", checked: options[key], onchange: (ev) => {
        options[key] = ev.target.checked; setStage(stage); }}), " " + text);
      const bar = el("div", {class: "stagebar"},
        el("label", {for: "stage"}, "pass"), parts.slider = el("input", {id: "stage", type: "range", min: 0, max: e.stages.length - 1, value: 0,
          oninput: () => setStage(Number(parts.slider.value))}),
        parts.name = el("output", {for: "stage"}), toggle("boxes", "kernels"), toggle("fold", "fold equal layers"),
        toggle("params", "parameters"), toggle("views", "views and constants"),
        el("button", {onclick: () => fit(), title: "show the whole graph (0)"}, "all"), parts.why = el("p", {class: "why"}));
      parts.files = el("select", {"aria-label": "source file", onchange: () => showSource(Number(parts.files.value), 0)},
        ...files.map((f) => el("option", {value: f}, Report.fileName(data.files[f].name))));
      parts.code = el("pre", {});
      parts.source = el("div", {class: "source", tabindex: 0, "aria-label": "source"}, parts.files, parts.code);
      parts.detail = el("div", {class: "detail"});
      const host = el("div", {class: "view"});
      panel.replaceChildren(bar, parts.source, host, parts.detail, el("div", {class: "hint"}, "drag · wheel · click · + − 0 1 · [ ] passes"));
      panel.classList.toggle("nosource", !files.length);
      canvas = Report.canvas(host, paint);
      canvas.element.setAttribute("aria-label", "graph");
      listen(canvas.element);
      canvas.paint();
      setStage(Math.min(stage, e.stages.length - 1));
      if (files.length) showSource(files[0], 0);
      select(-1);
    },
    shown() { if (canvas && !canvas.width) { canvas.paint(); top(); } },
    paint() { fit(); canvas.paint(); },
    find, setStage, hit,
    /* for tests */
    inspect: () => ({canvas, drawn, look, fit, top, zoom, stages: entry.stages.length}),
    draw(picture) { drawn = picture; hovered = null; },
  };
  Report.add(view);
})();
