/* levels.js: fused against unfused: bars by fusion level. */
(() => {
  const {data, el, scaled, time, digits, css, tipped} = Report;

  const measures = [
    {key: "ms", title: "time of a run", show: time, words: ["faster", "slower"]},
    {key: "bytes", title: "bytes read and written by kernels", show: (v) => scaled(v, "B")},
    {key: "written_bytes", title: "bytes written by kernels", show: (v) => scaled(v, "B")},
    {key: "workspace_bytes", title: "working memory, with the threads' scratch", show: (v) => scaled(v, "B")},
    {key: "calls", title: "kernel calls", show: String, words: ["fewer", "more"]},
    {key: "barriers", title: "barriers", show: String, words: ["fewer", "more"]},
  ];

  function bars(levels, m, base) {
    const W = 560, ROW = 26, L = 64, H = levels.length * ROW + 6, most = Math.max(...levels.map((l) => l[m.key] || 0));
    const svg = el("svg", {viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "img", "aria-label": m.title, style: "max-width:100%"});
    levels.forEach((l, i) => {
      const v = l[m.key], y = i * ROW + 4, w = v ? Math.max(2, (W - L - 190) * v / most) : 0, b = base[m.key], [less, more] = m.words || ["less", "more"];
      svg.append(el("text", {x: 0, y: y + 14}, `level ${l.level}`));
      if (v === undefined) { svg.append(el("text", {class: "dim", x: L, y: y + 14}, "not measured")); return; }
      const ratio = !b || !v || l === base ? "" : Math.max(b / v, v / b) < 1.005 ? "the same" : b > v ? `${digits(b / v)} × ${less}` : `${digits(v / b)} × ${more}`;
      svg.append(tipped(el("rect", {x: L, y, width: w, height: ROW - 8, rx: 3, fill: css(l.level === data.model.level ? "accent" : "other")}),
        `level ${l.level}: ${l.text}\n${m.title}: ${m.show(v)}`),
      el("text", {x: L + w + 8, y: y + 14}, `${m.show(v)}${ratio ? " · " + ratio : ""}`));
    });
    return svg;
  }

  Report.add({id: "levels", title: "Fused against unfused",
    make(panel, e) {
      const levels = [...e.levels].sort((a, b) => a.level - b.level), base = levels[0];
      panel.replaceChildren(el("p", {class: "lead"}, `The same entry at ${levels.length} fusion level${levels.length > 1 ? "s" : ""}, on the same inputs ` +
        `(${e.sizes.replace(/,/g, ", ")}); ratios are to level ${base.level}. The coloured bar is the level of this report.`));
      const grid = el("div", {class: "maps"});
      for (const m of measures) if (levels.some((l) => l[m.key] !== undefined)) grid.append(el("figure", {}, el("h3", {}, m.title), bars(levels, m, base)));
      panel.append(grid, el("h2", {}, "The numbers"), el("table", {}, el("thead", {}, el("tr", {}, ["level", "what is fused", "time", "bytes", "written",
        "working memory", "FLOP", "calls", "barriers"].map((t, i) => el("th", {class: i === 1 ? "t" : null}, t)))),
      el("tbody", {}, levels.map((l) => el("tr", {}, el("td", {}, String(l.level)), el("td", {class: "t wide"}, l.text), el("td", {}, time(l.ms)),
        el("td", {}, scaled(l.bytes, "B")), el("td", {}, scaled(l.written_bytes, "B")), el("td", {}, scaled(l.workspace_bytes, "B")),
        el("td", {}, scaled(l.flop, "")), el("td", {}, String(l.calls)), el("td", {}, String(l.barriers)))))));
    }});
})();
