/* Sortable tables and maps, and predictions of the model for values that the reader chooses. Nothing is fetched. */
"use strict";
(() => {
  const TYPES = {f8: Float64Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array};

  /* --- tables: a head is a button that sorts by its column --- */
  const value = cell => {
    const text = (cell.querySelector(".figure") || cell).textContent.replace(/\u2212/g, "-").replace(/[,%<>\s]/g, "");
    const number = parseFloat(text);
    return Number.isNaN(number) ? null : number;
  };
  for (const table of document.querySelectorAll("table")) {
    const heads = [...table.querySelectorAll("thead th")], body = table.querySelector("tbody");
    if (body.rows.length < 3) continue;
    heads.forEach((head, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.title = "Sort by this column";
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "descending";
        heads.forEach(each => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "ascending" : "descending");
        const sign = down ? 1 : -1, rows = [...body.rows];
        const key = new Map(rows.map(row => [row, place ? value(row.cells[place]) : row.cells[0].textContent]));
        rows.sort((a, b) => {
          const [x, y] = [key.get(a), key.get(b)];
          if (x === null || y === null) return (x === null) - (y === null);
          return sign * (place ? x - y : -x.localeCompare(y, undefined, {numeric: true}));
        });
        body.append(...rows);
      });
    });
  }

  /* --- the map of who borrows from whom: the reader chooses the order of its lines and columns --- */
  for (const map of document.querySelectorAll("[data-orders]")) {
    const orders = JSON.parse(map.dataset.orders), size = +map.dataset.size;
    const label = document.createElement("label"), select = document.createElement("select");
    for (const name of Object.keys(orders)) select.add(new Option(name));
    label.className = "order";
    label.append("Order: ", select);
    map.prepend(label);
    select.addEventListener("change", () => {
      const place = [];
      orders[select.value].forEach((line, at) => { place[line] = at; });
      for (const cell of map.querySelectorAll("rect[data-line]")) {
        cell.setAttribute("x", 92 + size * place[cell.dataset.at]);
        cell.setAttribute("y", 8 + size * place[cell.dataset.line]);
      }
      for (const name of map.querySelectorAll("text[data-line]")) {
        const at = place[name.dataset.line];
        name.setAttribute("y", 8 + size * (at + 0.5) + 3);
        name.setAttribute("visibility", at % +map.dataset.named ? "hidden" : "visible");
      }
    });
  }

  /* --- the model: from inputs to features, scores and predictions --- */
  const source = document.getElementById("model");
  if (!source) return;
  const unpack = part => {
    if (Array.isArray(part)) return part.map(unpack);
    if (part === null || typeof part !== "object") return part;
    if ("packed" in part) {
      const bytes = Uint8Array.from(atob(part.packed), c => c.charCodeAt(0));
      return new TYPES[part.type](bytes.buffer);
    }
    return Object.fromEntries(Object.entries(part).map(([name, inner]) => [name, unpack(inner)]));
  };
  const model = unpack(JSON.parse(source.textContent));
  const clip = (row, low, high) => Array.from(row, (x, i) => Math.min(Math.max(x, low[i]), high[i]));
  const oriented = (x, o) => Array.from(o.order, i => (x[i] - o.shift[i]) / o.scale[i]);
  const hidden = (x, map) => {
    const count = map.bias.length, units = Float64Array.from(map.bias);
    x.forEach((value, i) => {
      const z = (value - map.shift[i]) / map.scale[i];
      for (let j = 0; j < count; j++) units[j] += z * map.weights[i * count + j];
    });
    const shape = {relu: z => Math.max(z, 0), tanh: Math.tanh, cos: Math.cos,
      leaky_relu: z => Math.max(z, map.slope * z)}[map.activation];
    return units.map(z => map.factor * shape(z));
  };
  const spline = (value, knots) => {
    if (knots.length <= 2) return [value];
    const sign = Math.sign(knots[knots.length - 1] - knots[0]), inner = Array.from(knots, k => sign * k);
    const first = inner[0], last = inner[inner.length - 1];
    const t = [first, first, ...inner, last, last], x = Math.min(Math.max(sign * value, first), last);
    let at = 2;
    while (at < t.length - 4 && x >= t[at + 1]) at++;
    let basis = [1];  /* Cox and de Boor: the functions of degree 0, 1, 2 that are not zero here */
    for (let degree = 1; degree <= 2; degree++) {
      const next = new Array(degree + 1).fill(0);
      basis.forEach((b, k) => {
        const left = t[at - degree + 1 + k], right = t[at + 1 + k], part = b / (right - left);
        next[k] += (right - x) * part;
        next[k + 1] += (x - left) * part;
      });
      basis = next;
    }
    const all = new Array(t.length - 3).fill(0);
    basis.forEach((b, k) => { all[at - 2 + k] = b; });
    return all.slice(1);
  };
  const forest = (x, trees) => {
    let sum = trees.base;
    for (let node of trees.roots) {
      while (trees.left[node] !== node)
        node = x[trees.column[node]] > trees.number[node] ? trees.right[node] : trees.left[node];
      sum += trees.number[node];
    }
    return sum;
  };
  const placed = (x, units) => ({
    linear: Array.from(units.mean, (mean, i) => (x[i] - mean) / units.deviation[i]),
    curved: Array.from(units.median, (median, i) => {
      const distance = (x[i] - median) / units.spread[i];
      return Math.sign(distance) * Math.log1p(Math.abs(distance));
    }),
  });
  const square = (a, b, lengths) => a.reduce((sum, value, i) => sum + ((value - b[i]) / lengths[i]) ** 2, 0);
  const matern = square => {
    const distance = Math.sqrt(5 * square);
    return (1 + distance + 5 / 3 * square) * Math.exp(-distance);
  };
  const KINDS = {
    inputs: x => x,
    kernel: (x, map) => {
      const width = map.lengths.length, at = placed(x, map.units);
      const rows = flat => Array.from({length: flat.length / width},
        (_, k) => placed(flat.subarray(k * width, (k + 1) * width), map.units));
      const line = row => at.linear.reduce((sum, value, i) => sum + value * row.linear[i], 0) / width;
      const shared = rows(map.landmarks).map(row => map.shared_curve * matern(square(at.curved, row.curved, map.lengths))
        + map.shared_slopes * line(row) + map.shared_level);
      const own = rows(map.own_landmarks).map(row => Math.exp(-square(at.curved, row.curved, map.own_lengths) / 2));
      return [...at.linear, ...shared, ...own];
    },
    clipped: (x, map) => features(clip(x, map.low, map.high), map.inner),
    splines: (x, map) => map.knots.flatMap((knots, i) => spline(x[i], knots)),
    random: (x, map) => [...hidden(x, map), ...(map.constant ? [1] : [])],
    learned: (x, map) => {
      const inputs = oriented(x, map.oriented), units = hidden(inputs, map.wide);
      return [units.reduce((sum, unit, j) => sum + unit * map.head[j], 0), forest(inputs, map.trees)];
    },
    trees: (x, map) => [forest(oriented(x, map.oriented), map.trees)],
    joined: (x, map) => map.maps.flatMap(each => features(x, each)),
  };
  const features = (x, map) => KINDS[map.kind](x, map);
  const predict = x => {
    let found = features(x, model.map);
    if (model.low) found = clip(found, model.low, model.high);
    const outputs = model.intercept.length, scores = Array.from(model.intercept);
    found.forEach((u, i) => { for (let j = 0; j < outputs; j++) scores[j] += u * model.coef[i * outputs + j]; });
    const log = model.log;
    if (log !== null) return scores.map(s => log.smearing * Math.exp(Math.min(Math.max(s, log.low), log.high)));
    if (model.sharpness === null) return scores;
    const both = outputs === 1 ? [-scores[0], scores[0]] : scores, most = Math.max(...both);
    const parts = both.map(s => Math.exp(model.sharpness * (s - most))), total = parts.reduce((a, b) => a + b);
    return parts.map(p => p / total);
  };

  /* --- the panel: one control for each column --- */
  const inputs = Float64Array.from(model.start), panel = document.getElementById("panel");
  const result = document.getElementById("prediction"), remark = document.getElementById("outside");
  const shown = x => Number(x.toPrecision(4)).toLocaleString("en-US", {maximumSignificantDigits: 4});
  const update = () => {
    const found = predict([...inputs]);
    result.dataset.value = JSON.stringify(found);
    result.textContent = model.sharpness === null
      ? found.map((x, k) => (model.outputs[k] ? model.outputs[k] + ": " : "") + shown(x)).join(", ")
      : found.map((p, k) => model.outputs[k] + ": " + (100 * p).toFixed(1) + "%").join(", ");
    const outside = model.columns.filter(c => !c.levels && (inputs[c.places[0]] < c.focal[0]
      || inputs[c.places[0]] > c.focal[1])).map(c => c.name);
    remark.textContent = outside.length ? "Outside the range of the focal rows: " + outside.join(", ") + "." : "";
  };
  for (const column of model.columns) {
    const row = document.createElement("div"), label = document.createElement("label");
    const id = "w" + column.places[0];
    label.htmlFor = id;
    label.textContent = column.name;
    row.append(label);
    if (column.levels) {
      const choice = document.createElement("select");
      choice.id = id;
      column.levels.forEach((level, k) => choice.add(new Option(level, k, k === column.value, k === column.value)));
      choice.addEventListener("change", () => {
        column.places.forEach((place, k) => {
          inputs[place] = Number(column.places.length === 1 ? choice.value === "1" : Number(choice.value) === k);
        });
        update();
      });
      row.append(choice);
    } else {
      const slider = document.createElement("input"), box = document.createElement("input");
      slider.type = "range"; box.type = "number"; slider.id = id; box.step = "any";
      slider.min = column.range[0]; slider.max = column.range[1]; slider.step = column.step;
      slider.value = column.value; box.value = Number(column.value.toPrecision(6));
      box.setAttribute("aria-label", column.name + ", as a number");
      const set = (x, other) => { inputs[column.places[0]] = x; other.value = x; update(); };
      slider.addEventListener("input", () => set(Number(slider.value), box));
      box.addEventListener("input", () => { if (box.value !== "") set(Number(box.value), slider); });
      row.append(slider, box);
    }
    panel.append(row);
  }
  update();
})();
