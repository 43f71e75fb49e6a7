/* attention.js: which tiles of attention are skipped, computed with the mask, or without. */
(() => {
  const {data, el, css, percent, callName, showTip} = Report;
  const kinds = ["skipped", "with the mask", "full, without the mask"];
  let canvases = [];

  function colours() { return [css("line"), css("gemm"), css("flash")]; }
  function draw(a, rows) {
    return (g, w, h) => {
      const n = rows.length, m = rows[0].length, dx = w / m, dy = h / n, c = colours(), gap = Math.min(dx, dy) > 6 ? 1 : 0;
      rows.forEach((row, i) => {
        for (let k = 0; k < m; k++) {
          const x0 = Math.round(k * dx), y0 = Math.round(i * dy), x1 = Math.round((k + 1) * dx), y1 = Math.round((i + 1) * dy);
          g.fillStyle = c[Number(row[k])];
          g.fillRect(x0, y0, Math.max(1, x1 - x0 - gap), Math.max(1, y1 - y0 - gap));
          if (row[k] === "1" && dx > 9 && dy > 9) { /* not by colour alone */
            g.strokeStyle = css("bg"); g.lineWidth = 1.2;
            g.beginPath(); g.moveTo(x0 + 2, y1 - 3); g.lineTo(x1 - 3, y0 + 2); g.stroke();
          }
        }
      });
    };
  }
  function map(entry, a, m) {
    /* to scale: a query is as high as a key is wide */
    const rows = m.rows, unit = 300 / Math.max(a.queries, a.keys), w = Math.max(60, unit * a.keys), h = Math.max(24, unit * a.queries);
    const host = el("div", {style: `width:${w}px;height:${h}px;border:1px solid var(--line)`});
    const c = Report.canvas(host, draw(a, rows));
    c.element.setAttribute("aria-label", `tiles of call ${a.call}`);
    c.element.addEventListener("pointermove", (ev) => {
      const k = Math.floor(ev.offsetX / w * rows[0].length), i = Math.floor(ev.offsetY / h * rows.length);
      if (rows[i] === undefined || rows[i][k] === undefined) return showTip("");
      const q0 = i * a.tile_queries, k0 = k * a.tile_keys;
      showTip(`${kinds[Number(rows[i][k])]}\nabout queries ${q0} to ${Math.min(a.queries, q0 + a.tile_queries) - 1}\nkeys ${k0} to ` +
        `${Math.min(a.keys, k0 + a.tile_keys) - 1}\nkernel ${callName(entry, a.call)}`, ev.clientX, ev.clientY);
    });
    c.element.addEventListener("pointerleave", () => showTip(""));
    canvases.push(c);
    const heads = m.heads.length > 6 ? `heads ${m.heads[0]} to ${m.heads[m.heads.length - 1]}` : `head${m.heads.length > 1 ? "s" : ""} ${m.heads.join(", ")}`;
    return el("figure", {}, el("div", {class: "axis"}, `keys 0 to ${a.keys - 1} →`), host, el("figcaption", {}, `↓ queries 0 to ${a.queries - 1} · ${heads}`));
  }

  Report.add({id: "attention", title: "Attention",
    make(panel, e) {
      canvases = [];
      const list = e.attention || [];
      panel.replaceChildren(el("p", {class: "lead"}, list.length ? `Attention works on tiles of queries and keys. The kernel bounds the mask over each tile by the analysis of intervals ` +
        `and skips tiles that it hides, at ${e.attention_sizes.replace(/,/g, ", ")}. Tiles that are only partly hidden are computed with the mask. Equal layers and heads are drawn once.` :
        "This entry has no attention kernel at this level."));
      if (!list.length) return;
      panel.append(Report.legend([], [[colours()[0], "skipped"], [colours()[1], "computed with the mask (a diagonal stroke)"], [colours()[2], "full: computed without the mask"]]));
      const key = (a) => JSON.stringify([a.queries, a.keys, a.tile_queries, a.tile_keys, a.maps, a.unknown, e.calls[a.call].fused]);
      const same = new Map();
      for (const a of list) same.set(key(a), (same.get(key(a)) || []).concat(a.call));
      for (const a of list) {
        const calls = same.get(key(a));
        if (calls[0] !== a.call) continue;
        const c = e.calls[a.call], all = (a.skipped || 0) + (a.partial || 0) + (a.full || 0);
        panel.append(el("h2", {}, `kernel ${callName(e, a.call)}${calls.length > 1 ? `, and the same in ${calls.slice(1).map((i) => callName(e, i)).join("; ")}` : ""}`), el("p", {class: "lead"}, `${a.queries} queries, ${a.keys} keys, tiles of ${a.tile_queries} by ${a.tile_keys}` +
          (all ? `: ${percent(a.skipped / all)} skipped, ${percent(a.partial / all)} with the mask, ${percent(a.full / all)} without` : "") +
          `. ${c.fused ? c.fused + ". " : ""}${c.notes.split("\n").filter(Boolean).join("; ")}`));
        if (a.unknown) { panel.append(el("p", {class: "note"}, `There is no map: ${a.unknown}.`)); continue; }
        panel.append(el("div", {class: "maps"}, a.maps.map((m) => map(e, a, m))));
      }
      canvases.forEach((c) => c.paint());
    },
    shown() { canvases.forEach((c) => c.redraw()); },
    paint() { canvases.forEach((c) => c.paint()); }});
})();
