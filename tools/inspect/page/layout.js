/* layout.js: layered layout [Sugiyama et al. 1981] in two storeys: the nodes of a kernel within its box, then the boxes.
 * The same graph always has the same picture. */
const Layout = (() => {
  const SWEEPS = 6, MAX_SPAN = 40;

  /* Items in topological order, {w, h}; edges [from, to] by index; those that go back do not count for the layers.
   * Sets x, y (top left) of the items; returns width, height and for long edges the points in between. */
  function layered(items, edges, gapX, gapY) {
    const n = items.length, forward = edges.filter(([a, b]) => a < b);
    const above = items.map(() => []), below = items.map(() => []);
    for (const [a, b] of forward) { above[b].push(a); below[a].push(b); }
    const rank = new Array(n).fill(0);
    for (let i = 0; i < n; i++) for (const a of above[i]) rank[i] = Math.max(rank[i], rank[a] + 1);
    for (let i = n - 1; i >= 0; i--) /* what has no operands lies just above its first user */
      if (!above[i].length && below[i].length) rank[i] = Math.min(...below[i].map((b) => rank[b])) - 1;
    /* cells: items, and places of long edges between */
    const cells = items.map((it, i) => ({item: i, w: it.w, h: it.h, rank: rank[i], up: [], down: [], x: 0}));
    const bends = new Map();
    for (const [a, b] of forward) {
      let last = a;
      if (rank[b] - rank[a] > 1 && rank[b] - rank[a] <= MAX_SPAN) {
        const points = [];
        for (let r = rank[a] + 1; r < rank[b]; r++) {
          cells.push({item: -1, w: 6, h: 0, rank: r, up: [last], down: [], x: 0});
          cells[last].down.push(cells.length - 1);
          last = cells.length - 1;
          points.push(last);
        }
        bends.set(a * n + b, points);
      }
      if (last !== a || rank[b] - rank[a] <= MAX_SPAN) { cells[b].up.push(last); cells[last].down.push(b); }
    }
    const rows = [];
    cells.forEach((c, i) => (rows[c.rank] = rows[c.rank] || []).push(i));
    for (let r = 0; r < rows.length; r++) rows[r] = rows[r] || [];
    const place = (row) => row.forEach((c, k) => { cells[c].at = k; });
    rows.forEach(place);
    const mean = (list, key, otherwise) => list.length ? list.reduce((s, c) => s + cells[c][key], 0) / list.length : otherwise;
    for (let s = 0; s < SWEEPS; s++) {
      const side = s % 2 ? "down" : "up";
      for (let k = 0; k < rows.length; k++) {
        const row = rows[s % 2 ? rows.length - 1 - k : k];
        for (const c of row) cells[c].key = mean(cells[c][side], "at", cells[c].at);
        row.sort((a, b) => cells[a].key - cells[b].key || cells[a].at - cells[b].at);
        place(row);
      }
    }
    /* x: towards the neighbours' centres, without overlap: the mean of the leftmost and the rightmost way */
    for (const row of rows) {
      let x = 0;
      for (const c of row) { cells[c].x = x + cells[c].w / 2; x += cells[c].w + gapX; }
      for (const c of row) cells[c].x -= (x - gapX) / 2;
    }
    for (let s = 0; s < 2 * SWEEPS; s++) {
      const sides = s % 3 === 2 ? ["up", "down"] : [s % 2 ? "down" : "up"];
      for (let k = 0; k < rows.length; k++) {
        const row = rows[s % 2 ? rows.length - 1 - k : k], left = [], right = [];
        for (const c of row) cells[c].want = mean(sides.flatMap((d) => cells[c][d]), "x", cells[c].x);
        for (let i = 0; i < row.length; i++) {
          const c = cells[row[i]], p = i ? cells[row[i - 1]] : null;
          left[i] = p ? Math.max(c.want, left[i - 1] + (p.w + c.w) / 2 + gapX) : c.want;
        }
        for (let i = row.length - 1; i >= 0; i--) {
          const c = cells[row[i]], p = i + 1 < row.length ? cells[row[i + 1]] : null;
          right[i] = p ? Math.min(c.want, right[i + 1] - (p.w + c.w) / 2 - gapX) : c.want;
        }
        row.forEach((c, i) => { cells[c].x = (left[i] + right[i]) / 2; });
      }
    }
    let y = 0;
    for (const row of rows) {
      const h = Math.max(0, ...row.map((c) => cells[c].h));
      for (const c of row) { cells[c].y = y + (h - cells[c].h) / 2; cells[c].top = y; cells[c].bottom = y + h; }
      y += h + gapY;
    }
    const low = Math.min(0, ...cells.map((c) => c.x - c.w / 2)), high = Math.max(1, ...cells.map((c) => c.x + c.w / 2));
    items.forEach((it, i) => { it.x = cells[i].x - cells[i].w / 2 - low; it.y = cells[i].y; });
    return {width: high - low, height: Math.max(1, y - gapY),
      bend: (a, b) => (bends.get(a * n + b) || []).map((c) => ({x: cells[c].x - low, y0: cells[c].top, y1: cells[c].bottom}))};
  }

  /* nodes: {w, h, group} in topological order, edges [from, to] by index; nodes with the same group >= 0 share a box.
   * Sets x, y of nodes; returns {boxes, paths (one for each edge: points), width, height}. */
  function nested(nodes, edges, title) {
    const PAD = 8, boxes = [], boxOf = new Array(nodes.length), byGroup = new Map();
    nodes.forEach((v, i) => {
      let k = v.group >= 0 ? byGroup.get(v.group) : undefined;
      if (k === undefined) {
        k = boxes.length;
        boxes.push({group: v.group, members: []});
        if (v.group >= 0) byGroup.set(v.group, k);
      }
      boxOf[i] = k;
      boxes[k].members.push(i);
    });
    /* a box comes after what its first member with operands in other boxes needs: the order of last members is topological
     * for all but recomputed nodes */
    const order = boxes.map((b, k) => k).sort((a, b) => Math.max(...boxes[a].members) - Math.max(...boxes[b].members));
    const rankOf = [];
    order.forEach((k, i) => { rankOf[k] = i; });
    const inside = boxes.map(() => []), outside = new Map();
    for (const [a, b] of edges) {
      const p = boxOf[a], q = boxOf[b];
      if (p === q) inside[p].push([a, b]);
      else outside.set(rankOf[p] * boxes.length + rankOf[q], [rankOf[p], rankOf[q]]);
    }
    const items = order.map((k) => {
      const b = boxes[k], local = new Map(b.members.map((v, i) => [v, i]));
      const framed = b.group >= 0;
      const inner = layered(b.members.map((v) => nodes[v]), inside[k].map(([x, y]) => [local.get(x), local.get(y)]), 14, 18);
      b.w = framed ? Math.max(inner.width + 2 * PAD, title(b.group)) : inner.width;
      b.h = inner.height + (framed ? 2 * PAD + 18 : 0);
      b.dx = (b.w - inner.width) / 2;
      b.dy = framed ? PAD + 18 : 0;
      return b;
    });
    const outer = layered(items, [...outside.values()], 26, 30);
    for (const b of boxes) for (const v of b.members) { nodes[v].x += b.x + b.dx; nodes[v].y += b.y + b.dy; }
    const paths = edges.map(([a, b]) => {
      const u = nodes[a], v = nodes[b], points = [[u.x + u.w / 2, u.y + u.h]];
      if (boxOf[a] !== boxOf[b])
        for (const p of outer.bend(rankOf[boxOf[a]], rankOf[boxOf[b]])) points.push([p.x, p.y0], [p.x, p.y1]);
      points.push([v.x + v.w / 2, v.y]);
      return points;
    });
    return {boxes: boxes.filter((b) => b.group >= 0), paths, width: outer.width, height: outer.height};
  }
  return {layered, nested};
})();
