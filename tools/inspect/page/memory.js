/* memory.js: where each temporary lies in the workspace, and from which call to which. */
(() => {
  const {el, scaled, css, familyColour, familiesOf, legend, callName, showTip, tipped} = Report;
  let entry, plan, canvas;
  const LEFT = 78, BOTTOM = 34, TOP = 8;

  function live() {
    const sum = new Array(plan.calls).fill(0);
    for (const b of plan.buffers) for (let i = b.first; i <= b.last; i++) sum[i] += b.bytes;
    return sum;
  }
  function paint(g, w, h) {
    if (!plan) return;
    const most = Math.max(1, plan.workspace_bytes), x = (c) => LEFT + c / plan.calls * (w - LEFT - 8), y = (v) => h - BOTTOM - v / most * (h - BOTTOM - TOP);
    g.font = "11px system-ui, sans-serif"; g.lineWidth = 1;
    for (let i = 0; i <= 4; i++) {
      g.strokeStyle = css("line"); g.beginPath(); g.moveTo(LEFT, y(most * i / 4)); g.lineTo(w - 8, y(most * i / 4)); g.stroke();
      g.fillStyle = css("dim"); g.textAlign = "right"; g.fillText(scaled(most * i / 4, "B"), LEFT - 6, y(most * i / 4) + 4); g.textAlign = "left";
    }
    const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((s) => plan.calls / s <= 20) || 2000;
    g.fillStyle = css("dim");
    for (let c = 0; c < plan.calls; c += step) g.fillText(String(c), x(c) + 2, h - BOTTOM + 14);
    g.fillText("kernel call", (LEFT + w) / 2 - 24, h - 4);
    for (const b of plan.buffers) {
      const call = entry.calls[b.call], x0 = x(b.first), x1 = x(b.last + 1), y0 = y(b.offset + b.bytes), y1 = y(b.offset);
      g.fillStyle = familyColour(call ? call.kernel : "other"); g.globalAlpha = 0.75;
      g.fillRect(x0, y0, Math.max(1, x1 - x0 - 1), Math.max(1, y1 - y0 - (y1 - y0 > 4 ? 1 : 0)));
      g.globalAlpha = 1;
      const name = call ? `${b.call} ${call.where || call.kernel}` : "";
      if (y1 - y0 > 14 && x1 - x0 > Report.textWidth(name, g.font) + 8) {
        g.fillStyle = css("bg"); g.fillText(name, x0 + 4, y0 + 12);
      }
    }
    const sum = live();
    g.strokeStyle = css("text"); g.lineWidth = 2; g.setLineDash([5, 3]);
    g.beginPath();
    sum.forEach((v, i) => { g.lineTo(x(i), y(v)); g.lineTo(x(i + 1), y(v)); });
    g.stroke(); g.setLineDash([]);
  }
  function at(px, py) {
    const h = canvas.height, w = canvas.width, c = (px - LEFT) / (w - LEFT - 8) * plan.calls, v = (h - BOTTOM - py) / (h - BOTTOM - TOP) * plan.workspace_bytes;
    return plan.buffers.find((b) => c >= b.first && c < b.last + 1 && v >= b.offset && v < b.offset + b.bytes);
  }
  function tipOf(b) {
    if (!b) return "";
    const c = entry.calls[b.call];
    return `${scaled(b.bytes, "B")} at ${scaled(b.offset, "B")}, slot ${b.slot}\nmade by kernel ${callName(entry, b.call)}\n${c ? c.result : ""}\n` +
      `in use from call ${b.first} to call ${b.last}`;
  }

  Report.add({id: "memory", title: "Memory",
    make(panel, e) {
      entry = e; plan = e.memory;
      const parts = [["parameters", plan.parameters_bytes], ["states", plan.states_bytes], ["workspace", plan.workspace_bytes],
        ["inputs", plan.inputs_bytes], ["outputs", plan.outputs_bytes]];
      const peak = plan.calls ? Math.max(0, ...live()) : 0, most = Math.max(1, ...parts.map((p) => p[1]));
      const host = el("div", {style: "height:420px"});
      const W = 560, svg = el("svg", {viewBox: `0 0 ${W} ${parts.length * 24}`, width: W, height: parts.length * 24, role: "img", "aria-label": "memory by kind", style: "max-width:100%"});
      parts.forEach(([name, v], i) => svg.append(el("text", {x: 0, y: i * 24 + 15}, name), tipped(el("rect", {x: 92, y: i * 24 + 4, height: 15, rx: 3,
        width: Math.max(v ? 2 : 0, (W - 200) * v / most), fill: css("other")}), `${name}: ${scaled(v, "B")}`),
      el("text", {x: 98 + (W - 200) * v / most, y: i * 24 + 15}, scaled(v, "B"))));
      panel.replaceChildren(el("p", {class: "lead"}, `The workspace of ${e.entry}: ${plan.buffers.length} temporaries of ${scaled(plan.temporaries_bytes, "B")} in all share ` +
        `${plan.slots} slots of ${scaled(plan.workspace_bytes, "B")}; at most ${scaled(peak, "B")} are in use at once (dashed line). ` +
        "A rectangle is a temporary: its place in the workspace, and the calls during which it is needed; its colour is the kernel that makes it."),
      legend(familiesOf(e)), plan.buffers.length ? host : el("p", {class: "note"}, "This entry needs no temporaries."), el("h2", {}, "All memory of the entry"), svg);
      canvas = null;
      if (!plan.buffers.length) return;
      canvas = Report.canvas(host, paint);
      canvas.element.setAttribute("aria-label", "memory plan");
      canvas.element.addEventListener("pointermove", (ev) => showTip(tipOf(at(ev.offsetX, ev.offsetY)), ev.clientX, ev.clientY));
      canvas.element.addEventListener("pointerleave", () => showTip(""));
      canvas.paint();
    },
    shown() { if (canvas) canvas.redraw(); },
    paint() { if (canvas) canvas.paint(); },
    tipAt: (x, y) => tipOf(at(x, y)), canvas: () => canvas});
})();
