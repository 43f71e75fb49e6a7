/* selftest.js: opened with the fragment #selftest, the page walks through its views and writes what it found, as JSON,
 * into an element with the id "selftest". */
Report.selftest = () => {
  const {data, views, state, errors, tip, el} = Report;
  const out = {version: data.version, tabs: {}, errors};
  const frames = [];
  const texts = (p) => p.textContent.trim().length + [...p.querySelectorAll("canvas")].reduce((n, c) => n + inked(c), 0);

  /* Pixels that are not background, sampled. */
  function inked(c) {
    if (!c.width || !c.height) return 0;
    const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
    let n = 0;
    for (let i = 3; i < d.length; i += 4 * 97) n += d[i] > 0;
    return n;
  }
  const move = (c, x, y) => {
    const r = c.getBoundingClientRect();
    c.dispatchEvent(new PointerEvent("pointermove", {clientX: r.left + x, clientY: r.top + y, bubbles: true}));
  };
  const step = (f) => { try { return f(); } catch (e) { errors.push(`${e.message} ${(e.stack || "").split("\n")[1] || ""}`); return undefined; } };

  data.entries.forEach((e, i) => {
    step(() => Report.openEntry(i));
    views.forEach((v) => step(() => {
      Report.openTab(v.id);
      if (v.paint && v.id !== "graph") v.paint();
      const key = `${e.entry}/${v.id}`;
      out.tabs[key] = texts(v.panel);
      if (v.id !== "graph") return;
      const {canvas, stages} = v.inspect();
      canvas.paint();
      out.tabs[key] = inked(canvas.element);
      for (let s = 0; s < stages; s++) { /* every stage can be drawn */
        v.setStage(s);
        const {fit, top, drawn} = v.inspect();
        for (const f of [fit, top]) { f(); canvas.paint(); frames.push({nodes: drawn.shown.length, ms: canvas.spent}); }
      }
    }));
  });
  out.slowest_frame_ms = Math.max(0, ...frames.map((f) => f.ms));
  out.most_nodes = Math.max(0, ...frames.map((f) => f.nodes));

  /* brackets have names, and those of the first layers are within the window */
  step(() => {
    out.opens = Report.firstEntry([{entry: "loss"}, {entry: "train_step"}]);
    Report.openEntry(0);
    const v = Report.openTab("graph");
    v.setStage(0);
    v.inspect().top();
    const {drawn, look} = v.inspect();
    out.brackets = drawn.folds.map((f) => f.text);
    out.brackets_seen = drawn.folds.every((f) => look.x + (f.x - f.w) * look.scale >= 0);
  });
  /* hover names a kernel */
  step(() => {
    Report.openEntry(0);
    const v = Report.openTab("graph");
    v.setStage(v.inspect().stages - 1);
    const {canvas, drawn, look} = v.inspect(), b = drawn.boxes[drawn.boxes.length - 1];
    look.x = 20 - b.x * look.scale; look.y = 20 - b.y * look.scale;
    canvas.paint();
    move(canvas.element, 20 + b.w / 2 * look.scale, 20 + 8 * look.scale);
    out.hover_graph = tip.hidden ? "" : tip.textContent;
    const k = Report.openTab("kernels").panel.querySelector("tr.row td:nth-child(2)");
    k.dispatchEvent(new PointerEvent("pointermove", {clientX: 9, clientY: 9}));
    out.hover_kernels = tip.hidden ? "" : tip.textContent;
  });
  /* search finds a tensor, and the graph shows it */
  step(() => {
    const wanted = data.entries[0].nodes.find((n) => n.op === "param" && n.name && !n.name.startsWith("@")) || data.entries[0].nodes.find((n) => n.name);
    const input = document.getElementById("search");
    input.value = wanted.name;
    input.dispatchEvent(new Event("input"));
    out.search = wanted.name;
    out.found = document.getElementById("found").children.length && Report.search(wanted.name)[0].title;
    input.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter"}));
    out.found_detail = document.querySelector("#graph .detail").textContent.includes(wanted.name);
  });
  /* the same layout twice; many nodes stay fluid */
  step(() => {
    const many = (n) => {
      const nodes = [], edges = [];
      for (let i = 0; i < n; i++) {
        nodes.push({w: 80, h: 34, group: Math.floor(i / 7), id: -2, kernel: -1, n: {op: "add"}, line: "f32[B,T,64]"});
        if (i) edges.push([i - 1, i]);
        if (i > 30) edges.push([i - 30, i]);
      }
      return {nodes, picture: Layout.nested(nodes, edges, () => 90)};
    };
    const begin = performance.now(), a = many(5000);
    out.layout_5000_ms = performance.now() - begin;
    out.deterministic = JSON.stringify(a) === JSON.stringify(many(5000));
    /* from all of it to a few nodes, then along it; a pixel is read so that the frame is finished */
    const v = Report.openTab("graph"), {canvas, look, fit, zoom} = v.inspect(), edges = a.picture.paths.map(() => [-1, -1]);
    v.draw({...a.picture, shown: a.nodes, edges, folds: [], loops: [], left: 0, rows: a.nodes.map((_, i) => i).sort((i, j) => a.nodes[i].y - a.nodes[j].y)});
    fit();
    const times = [];
    for (let i = 0; i < 60; i++) {
      if (i < 30) zoom(1.2, canvas.width / 2, 40); else look.y -= a.picture.height * look.scale / 30;
      const from = performance.now();
      canvas.paint();
      canvas.element.getContext("2d").getImageData(0, 0, 1, 1);
      times.push(performance.now() - from);
    }
    times.sort((x, y) => x - y);
    out.frame_5000_ms = times[30];
    out.frame_5000_slowest_ms = times[59];
    v.setStage(0);
  });
  document.body.append(el("pre", {id: "selftest", hidden: true}, JSON.stringify(out)));
};
