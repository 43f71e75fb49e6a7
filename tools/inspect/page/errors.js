/* errors.js: the levels against the evaluator in double precision. */
(() => {
  const {data, el, css, tipped} = Report;
  const short = (v) => v === null ? "not finite" : v === 0 ? "0" : v.toExponential(1);

  function picture(levels, outputs) {
    const L = 150, W = 760, STEP = 19, ROW = levels.length * STEP + 14, H = outputs.length * ROW + 62, all = levels.flatMap((l) => l.errors.map((x) => x.rel_rms)).filter((v) => v > 0);
    const low = Math.min(1e-8, ...all) / 2, high = Math.max(1e-5, ...all) * 2;
    const x = (v) => L + (W - L - 20) * Math.log(Math.max(v, low) / low) / Math.log(high / low);
    const svg = el("svg", {viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "img", "aria-label": "errors by level", style: "max-width:100%"});
    for (let p = Math.ceil(Math.log10(low)); p <= Math.log10(high); p++)
      svg.append(el("line", {class: "grid", x1: x(10 ** p), x2: x(10 ** p), y1: 4, y2: H - 40}), el("text", {class: "dim", x: x(10 ** p), y: H - 24, "text-anchor": "middle"}, `1e${p}`));
    const eps = 2 ** -24;
    svg.append(el("line", {x1: x(eps), x2: x(eps), y1: 4, y2: H - 40, stroke: css("accent"), "stroke-dasharray": "4 3"}),
      el("text", {x: x(eps) + 4, y: 14}, "half an ulp of f32"), el("text", {x: (L + W) / 2, y: H - 6, "text-anchor": "middle"}, "relative RMS error"));
    outputs.forEach((name, i) => {
      const y = i * ROW + 34, at = levels.map((l) => l.errors.find((o) => o.output === name)).map((o) => o ? o.rel_rms : 0).filter((v) => v > 0);
      svg.append(el("text", {x: 0, y: y + 4}, name.length > 20 ? name.slice(0, 19) + "…" : name));
      if (at.length && i) svg.append(el("line", {class: "grid", x1: 0, x2: W, y1: y - STEP, y2: y - STEP}));
      levels.forEach((l, row) => {
        const o = l.errors.find((v) => v.output === name);
        if (!o || o.rel_rms === null) return;
        const text = `${name}, level ${l.level}\nrelative RMS error ${short(o.rel_rms)}\nlargest error ${short(o.max_abs)}, where the RMS is ${short(o.rms)}`;
        svg.append(tipped(el("circle", {cx: x(o.rel_rms), cy: y + row * STEP, r: 9, fill: css(l.level === data.model.level ? "accent" : "other"), tabindex: 0}, el("title", {}, text)), text),
          el("text", {x: x(o.rel_rms), y: y + row * STEP + 4, "text-anchor": "middle", "pointer-events": "none", style: `fill:${css("bg")};font-weight:600`}, String(l.level)),
        el("text", {class: "dim", x: x(o.rel_rms) + 14, y: y + row * STEP + 4}, short(o.rel_rms)));
      });
    });
    return svg;
  }

  Report.add({id: "errors", title: "Errors",
    make(panel, e) {
      const ref = e.reference, levels = [...e.levels].filter((l) => l.errors && l.errors.length).sort((a, b) => a.level - b.level);
      const lead = el("p", {class: "lead"});
      panel.replaceChildren(lead);
      if (!ref) { lead.textContent = "Nothing was run, so there are no errors."; return; }
      lead.textContent = "Each level's outputs against the evaluator, which computes the graph as it was written in double precision" +
        ` (at ${ref.sizes.replace(/,/g, ", ")}, states zero). The evaluator is slow: it is asked for up to ${Report.scaled(ref.max_products, "").trim()} multiplications.`;
      if (ref.unknown || !levels.length) { panel.append(el("p", {class: "note"}, `There are no errors: ${ref.unknown || "the entry was not run at these sizes"}.`)); return; }
      const outputs = [...new Set(levels.flatMap((l) => l.errors.map((o) => o.output)))];
      panel.append(picture(levels, outputs), el("h2", {}, "The numbers"), el("table", {}, el("thead", {}, el("tr", {}, ["output", "elements", "level", "relative RMS error",
        "largest error", "RMS of the output"].map((t, i) => el("th", {class: i ? null : "t"}, t)))),
      el("tbody", {}, outputs.flatMap((name) => levels.map((l) => {
        const o = l.errors.find((v) => v.output === name);
        return o ? el("tr", {}, el("td", {class: "t"}, name), el("td", {}, String(o.elements)), el("td", {}, String(l.level)), el("td", {}, short(o.rel_rms)),
          el("td", {}, short(o.max_abs)), el("td", {}, short(o.rms))) : null;
      })))));
    }});
})();
