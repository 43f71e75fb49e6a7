/* timeline.js: one run on all threads. */
(() => {
  const {el, time, percent, css, familyColour, familiesOf, legend, callName, callText, showTip} = Report;
  let entry, canvas, line, from = 0, to = 1;
  const ROW = 46, LEFT = 76, TOP = 26;

  function ticks(span) {
    const step = 10 ** Math.floor(Math.log10(span / 5));
    return [1, 2, 5, 10].map((k) => k * step).find((s) => span / s <= 9);
  }
  function paint(g, w, h) {
    if (!line || !line.events.length) return;
    const x = (us) => LEFT + (us - from) / (to - from) * (w - LEFT - 10), step = ticks(to - from);
    g.font = "11px system-ui, sans-serif";
    g.strokeStyle = css("line"); g.fillStyle = css("dim"); g.lineWidth = 1;
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      g.beginPath(); g.moveTo(x(t), TOP - 6); g.lineTo(x(t), h); g.stroke();
      g.fillText(time(t / 1000), x(t) + 3, TOP - 10);
    }
    for (let t = 0; t < line.threads; t++) { g.fillStyle = css("text"); g.fillText(`thread ${t}`, 8, TOP + t * ROW + ROW / 2); }
    g.save();
    g.beginPath(); g.rect(LEFT, 0, w - LEFT, h); g.clip();
    for (const [thread, call, begin, end] of line.events) {
      if (end < from || begin > to) continue;
      const x0 = x(begin), width = Math.max(0.7, x(end) - x0), y = TOP + thread * ROW + 4, c = entry.calls[call];
      if (call < 0) {
        g.fillStyle = css("wait"); g.fillRect(x0, y + ROW / 2 - 8, width, 8);
        continue;
      }
      g.fillStyle = familyColour(c ? c.kernel : "other");
      g.fillRect(x0, y, width, ROW - 12);
      if (width > 3) { g.strokeStyle = css("bg"); g.strokeRect(x0, y, width, ROW - 12); }
      if (width > 44) {
        g.save(); g.beginPath(); g.rect(x0, y, width - 3, ROW); g.clip();
        g.fillStyle = css("bg"); g.font = "600 11px system-ui, sans-serif";
        const name = `${call} ${c.where || c.kernel}`;
        g.fillText(Report.textWidth(name, g.font) < width - 6 ? name : String(call), x0 + 4, y + 14);
        g.font = "10.5px system-ui, sans-serif";
        g.fillText(time((end - begin) / 1000), x0 + 4, y + 27);
        g.restore();
      }
    }
    g.restore();
  }
  function at(px, py) {
    if (!line) return null;
    const us = from + (px - LEFT) / (canvas.width - LEFT - 10) * (to - from), thread = Math.floor((py - TOP) / ROW);
    return line.events.find((e) => e[0] === thread && us >= e[2] && us <= e[3]);
  }
  function tipOf(e) {
    if (!e) return "";
    if (e[1] < 0) return `thread ${e[0]} waits ${time((e[3] - e[2]) / 1000)} for other threads`;
    return `thread ${e[0]}, ${time((e[3] - e[2]) / 1000)} from ${time(e[2] / 1000)}\n${callText(entry, e[1])}`;
  }
  function clamp() {
    const end = line.ms * 1000, span = Math.min(end, Math.max(to - from, end / 1e5));
    from = Math.max(0, Math.min(from, end - span));
    to = from + span;
    canvas.redraw();
  }
  function zoom(by, px) {
    const f = Math.max(0, (px - LEFT) / (canvas.width - LEFT - 10)), us = from + f * (to - from), span = (to - from) * by;
    from = us - f * span; to = from + span;
    clamp();
  }
  function listen(c) {
    let drag = null;
    c.addEventListener("pointerdown", (e) => { drag = e.offsetX; c.setPointerCapture(e.pointerId); });
    c.addEventListener("pointerup", () => { drag = null; });
    c.addEventListener("pointermove", (e) => {
      if (drag !== null) {
        const by = (drag - e.offsetX) / (canvas.width - LEFT) * (to - from);
        drag = e.offsetX; from += by; to += by; clamp();
      } else showTip(tipOf(at(e.offsetX, e.offsetY)), e.clientX, e.clientY);
    });
    c.addEventListener("pointerleave", () => showTip(""));
    c.addEventListener("dblclick", () => { from = 0; to = line.ms * 1000; clamp(); });
    c.addEventListener("wheel", (e) => { e.preventDefault(); zoom(Math.exp(e.deltaY * 0.0015), e.offsetX); }, {passive: false});
    c.addEventListener("keydown", (e) => {
      const move = (by) => { const d = by * (to - from); from += d; to += d; clamp(); };
      const keys = {ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), "+": () => zoom(0.8, canvas.width / 2), "=": () => zoom(0.8, canvas.width / 2),
        "-": () => zoom(1.25, canvas.width / 2), "0": () => { from = 0; to = line.ms * 1000; clamp(); }};
      if (keys[e.key]) { e.preventDefault(); keys[e.key](); }
    });
  }

  Report.add({id: "timeline", title: "Timeline",
    make(panel, e) {
      entry = e; line = e.timeline;
      if (!line || !line.events.length) {
        canvas = null;
        panel.replaceChildren(el("p", {class: "note"}, `There is no timeline: ${e.not_measured || "the entry was not run"}.`));
        return;
      }
      from = 0; to = line.ms * 1000;
      const host = el("div", {style: `height:${TOP + ROW * line.threads + 8}px`});
      const busy = new Array(line.threads).fill(0), waits = new Array(line.threads).fill(0), count = new Array(line.threads).fill(0);
      for (const [t, call, b, x] of line.events) { if (call < 0) waits[t] += x - b; else { busy[t] += x - b; count[t]++; } }
      panel.replaceChildren(el("p", {class: "lead"}, `One run of ${e.entry} (the one with the median time): ${time(line.ms)} on ${line.threads} thread${line.threads > 1 ? "s" : ""}, ` +
        `${e.calls.filter((c) => c.barrier).length} barriers. Thin grey bars: a thread waits at a barrier. Small calls run on one thread. ` +
        "Wheel or + − zoom, drag or arrows move, 0 shows all."), legend(familiesOf(e), [[css("wait"), "waiting for other threads"]]), host,
      line.left_out ? el("p", {class: "note"}, `The first events only; ${line.left_out} are left out.`) : "",
      el("h2", {}, "Threads"), el("table", {}, el("thead", {}, el("tr", {}, ["thread", "calls", "in kernels", "waiting", "between calls"].map((t) => el("th", {}, t)))),
        el("tbody", {}, busy.map((b, t) => el("tr", {}, el("td", {}, String(t)), el("td", {}, String(count[t])), el("td", {}, `${time(b / 1000)}  ${percent(b / 1000 / line.ms)}`),
          el("td", {}, `${time(waits[t] / 1000)}  ${percent(waits[t] / 1000 / line.ms)}`),
          el("td", {}, percent(Math.max(0, 1 - (b + waits[t]) / 1000 / line.ms))))))));
      canvas = Report.canvas(host, paint);
      canvas.element.setAttribute("aria-label", "timeline");
      listen(canvas.element);
      canvas.paint();
    },
    shown() { if (canvas) canvas.redraw(); },
    paint() { if (canvas) canvas.paint(); },
    tipAt: (x, y) => tipOf(at(x, y)), canvas: () => canvas});
})();
