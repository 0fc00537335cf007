// Curves of runs: a panel for each column of the log, by epoch, update or time. Stages are marked.

const AXES = { epoch: "epoch", update: "update", minutes: "minute" };
const GROUPS = [
  ["Validation", /^valid\//],
  ["Training", /^train\/(reward|loss|xent|entropy|length_ratio)$/],
  ["More of training", /^(train\/|rate$|seconds$)/],
  ["Side effects on the validation split", /^effects\//],
];
const FIRST = ["reward", "loss", "xent", "entropy", "length_ratio"];
const MEANING = {
  perplexity: "of a reference word", loss: "what is minimised, a sentence", xent: "nats a reference word",
  reward: "mean of the samples", entropy: "of the samples, nats a word", gradient: "norm before clipping",
  length_ratio: "words written / words of the references", cut: "share without an end", own_words: "share not forced",
  explained: "variance of the reward that the baseline removes", advantage: "reward − expected reward",
  unfinished: "share that ends with such as “of”", repetition: "share of words that repeat an n-gram",
  unk: "share of unknown words", rate: "learning rate", seconds: "of an epoch", kl: "nats a sentence from the start",
};
const LOGARITHMIC = /perplexity|rate$/;
const HEIGHT = 190, LEFT = 48, RIGHT = 10, TOP = 18, BOTTOM = 22;

const sum = (values) => values.reduce((a, b) => a + b, 0);
const closings = (history) => history.events.filter((event) => event.event === "epoch");

const columns = (event) => {
  const found = {};
  for (const group of ["valid", "train", "effects"])
    for (const [name, value] of Object.entries(event[group] ?? {})) found[`${group}/${name}`] = value;
  return { ...found, rate: event.rate, seconds: sum(Object.values(event.seconds)) };
};

// A stage in a word: its s, or the algorithm's name.
const brief = (stage) => /\bs = \d+/.exec(stage)?.[0] ?? stage.split(",")[0];

// Round values from low to high, about n of them.
const ticks = (low, high, n) => {
  const rough = (high - low) / n || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((times) => times * power >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
};
const powers = (low, high) => {
  const found = [];
  for (let p = Math.floor(Math.log10(low)); 10 ** p <= high; p++)
    for (const digit of [1, 2, 5]) if (digit * 10 ** p >= low && digit * 10 ** p <= high) found.push(digit * 10 ** p);
  return found.length >= 2 ? found : [low, high];
};
const tick = (value) => (Math.abs(value) >= 1000 ? grouped(value) : String(parseFloat(value.toPrecision(4))));

// Where stages begin, which is where the epoch before ends, in the colour of the run; common ones in none of a run.
const stages = (runs, axis) => {
  const found = new Map();
  for (const run of runs)
    for (const [x, label] of run.stages(axis)) {
      const key = `${x} ${label}`;
      found.set(key, [x, label, found.has(key) || runs.length === 1 ? "var(--soft)" : run.colour]);
    }
  return [...found.values()].sort((a, b) => a[0] - b[0]);
};

class Panel {
  constructor(curves, column) {
    this.curves = curves;
    this.column = column;
    this.name = column.replace(/^\w+\//, "");
    this.drawing = svg("svg", { tabindex: 0, role: "slider", "aria-label": column.replace("/", " "), height: HEIGHT,
      onpointermove: (event) => curves.focus(this.valueAt(event.offsetX)), onpointerleave: () => curves.focus(null),
      onkeydown: (event) => curves.key(event), onblur: () => curves.focus(null) });
    this.readout = el("p", { class: "readout" });
    this.element = el("figure", { class: "panel" },
      el("figcaption", {}, el("b", {}, this.name), ` ${MEANING[this.name] ?? ""}`), this.drawing, this.readout);
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  draw() {
    const width = this.drawing.clientWidth, { runs, axis, last } = this.curves;
    if (!width) return;
    const lines = runs.filter((run) => run.visible).map((run) => ({ run, points: run.points(this.column, axis) }))
      .filter((line) => line.points.length);
    const values = lines.flatMap((line) => line.points.map((point) => point[1]));
    if (!values.length) return void this.drawing.replaceChildren();
    let low = Math.min(...values), high = Math.max(...values);
    const log = LOGARITHMIC.test(this.column) && low > 0 && high / low > 20, warp = log ? Math.log : (y) => y;
    if (low === high) [low, high] = [low - (Math.abs(low) || 1) / 10, high + (Math.abs(high) || 1) / 10];
    const bottom = HEIGHT - BOTTOM, inside = width - LEFT - RIGHT;
    this.x = (x) => LEFT + (x / last) * inside;
    this.back = (pixel) => ((pixel - LEFT) / inside) * last;
    const y = (value) => bottom - ((warp(value) - warp(low)) / (warp(high) - warp(low))) * (bottom - TOP);
    const text = (x, y, content, anchor) => svg("text", { x, y, "text-anchor": anchor }, content);

    const parts = [];
    for (const value of log ? powers(low, high) : ticks(low, high, 4))
      parts.push(svg("path", { class: "grid", d: `M${LEFT},${y(value)}H${width - RIGHT}` }),
        text(LEFT - 6, y(value) + 4, tick(value), "end"));
    for (const value of ticks(0, last, width / 90).filter((x) => axis === "minutes" || Number.isInteger(x)))
      parts.push(text(this.x(value), HEIGHT - 5, tick(value), "middle"));
    let free = 0;
    for (const [x, label, colour] of stages(lines.map((line) => line.run), axis)) {
      const style = `--colour: ${colour}`;
      parts.push(svg("path", { class: "stage", style, d: `M${this.x(x)},${TOP}V${bottom}` }));
      if (this.x(x) < free) continue;
      parts.push(svg("text", { class: "stage", style, x: this.x(x) + 2, y: 11 }, label));
      free = this.x(x) + 8 + 6 * label.length;
    }
    for (const { run, points } of lines) {
      const at = points.map((point) => `${this.x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`);
      const style = `--colour: ${run.colour}`, dots = points.length === 1 ? points : [];
      parts.push(svg("path", { class: run.dashed ? "line dashed" : "line", style, d: `M${at.join("L")}` }));
      const best = this.column.startsWith("valid/") && points.findLast((point) => point[2].best);
      for (const dot of best ? [...dots, best] : dots)
        parts.push(svg("circle", { class: "best", style, cx: this.x(dot[0]), cy: y(dot[1]), r: 3.5 }));
    }
    this.cross = svg("path", { class: "cross" });
    this.drawing.replaceChildren(...parts, this.cross);
    this.read();
  }

  valueAt(pixel) {
    return this.curves.nearest(this.back?.(pixel));
  }

  // What the curves are at the focus, or where they end.
  read() {
    const { runs, axis, at, last } = this.curves;
    const found = runs.filter((run) => run.visible).map((run) => {
      const points = run.points(this.column, axis);
      return [run, at == null ? points.at(-1) : points.findLast((point) => point[0] <= at)];
    }).filter(([, point]) => point);
    this.cross?.setAttribute("d", at == null ? "" : `M${this.x(at)},${TOP}V${HEIGHT - BOTTOM}`);
    const where = at == null ? "last" : `${AXES[axis]} ${tick(at)}`;
    this.readout.replaceChildren(el("span", {}, where), ...found.map(([run, point]) =>
      el("span", {}, swatch(run.colour), runs.length > 1 ? `${run.label} ` : "", el("b", {}, shown(point[1])))));
    const spoken = `${where}: ${found.map(([run, point]) => `${run.label} ${shown(point[1])}`).join(", ")}`;
    const now = { "aria-valuemin": 0, "aria-valuemax": last, "aria-valuenow": at ?? last };
    made(this.drawing, { ...now, "aria-valuetext": spoken }, []);
  }
}

class Curves {
  constructor(root, histories) {
    this.histories = histories;
    this.axis = "epoch";
    this.panels = new Map();
    this.runs = histories.map((history) => new History(history));
    this.groups = GROUPS.map(([title]) => ({ title, grid: el("div", { class: "panels" }) }));
    const axes = Object.keys(AXES).filter((axis) => axis !== "update" || histories.every((one) => one.batches));
    root.replaceChildren(
      el("div", { class: "tools" },
        el("fieldset", { hidden: this.runs.length < 2 }, el("legend", {}, "Runs"), this.runs.map((run) =>
          el("label", {}, el("input", { type: "checkbox", checked: true, onchange: (event) => {
            run.visible = event.target.checked;
            this.update();
          } }), swatch(run.colour), run.label))),
        choice("x axis", axes.map((axis) => [axis, AXES[axis]]), this.axis, (axis) => {
          this.axis = axis;
          this.update();
        })),
      ...this.groups.map(({ title, grid }, i) => el("details", { open: i < 2 }, el("summary", {}, title), grid)));
  }

  // Read the events anew, and draw.
  update() {
    for (const run of this.runs) run.read();
    const order = (name) => (FIRST.indexOf(name.replace(/^\w+\//, "")) + 1 || 99) + (name.endsWith("perplexity") ? 1 : 0);
    const names = [...new Set(this.runs.flatMap((run) => [...run.names]))].sort((a, b) => order(a) - order(b));
    for (const name of names.filter((each) => !this.panels.has(each))) {
      this.panels.set(name, new Panel(this, name));
      this.groups[GROUPS.findIndex(([, pattern]) => pattern.test(name))].grid.append(this.panels.get(name).element);
    }
    for (const { grid } of this.groups) grid.parentElement.hidden = !grid.children.length;
    const visible = this.runs.filter((run) => run.visible && run.length);
    this.xs = [...new Set(visible.flatMap((run) => run.x[this.axis]))].sort((a, b) => a - b);
    this.last = this.xs.at(-1) ?? 1;
    for (const panel of this.panels.values()) panel.draw();
  }

  nearest(value) {
    if (value == null || !this.xs.length) return null;
    return this.xs.reduce((a, b) => (Math.abs(b - value) < Math.abs(a - value) ? b : a));
  }

  focus(at) {
    if (at === this.at) return;
    this.at = at;
    for (const panel of this.panels.values()) panel.read();
  }

  key(event) {
    const i = this.at == null ? this.xs.length : this.xs.indexOf(this.at), last = this.xs.length - 1;
    const to = { ArrowLeft: i - 1, ArrowRight: i + 1, ArrowDown: i - 1, ArrowUp: i + 1, Home: 0, End: last }[event.key];
    if (to == null) return;
    event.preventDefault();
    this.focus(this.xs[Math.max(0, Math.min(last, to))] ?? null);
  }
}

class History {
  constructor(history) {
    Object.assign(this, { history, label: history.label, colour: history.colour, dashed: history.dashed });
    this.visible = true;
  }

  read() {
    const events = closings(this.history), rows = events.map(columns);
    let seconds = 0;
    this.length = events.length;
    this.events = events;
    this.rows = rows;
    this.names = new Set(rows.flatMap(Object.keys));
    this.x = {
      epoch: events.map((event) => event.epoch),
      update: events.map((event) => event.epoch * this.history.batches),
      minutes: rows.map((row) => (seconds += row.seconds) / 60),
    };
  }

  points(column, axis) {
    const found = this.rows.map((row, i) => [this.x[axis][i], row[column], this.events[i]]);
    return found.filter((point) => Number.isFinite(point[1]));
  }

  stages(axis) {
    const names = this.events.map((event) => brief(event.stage)), x = this.x[axis];
    return names.flatMap((name, i) => (i && name === names[i - 1] ? [] : [[i ? x[i - 1] : 0, name]]));
  }
}
