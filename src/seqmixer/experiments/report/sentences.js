// The sentences of a test set with what each run wrote: searched, sorted, walked through. A window of them is rendered.

const WINDOW = 25, LONG = 1500, MOST = 1e6;  // cards; characters before a text is folded; cells of a table of words
const SORTS = { number: "place in the file", gain: "gain", loss: "loss", score: "score", source: "length of the source",
  output: "length of the output" };

const words = (text) => (/\s/.test(text) ? text.match(/\s+|\S+/g) : [...text]) ?? [];
const isWord = (token) => /\S/.test(token);

// Which words of a are in no longest common subsequence with b.
const changed = (a, b) => {
  let from = 0, a1 = a.length, b1 = b.length;
  while (from < Math.min(a1, b1) && a[from] === b[from]) from++;
  while (a1 > from && b1 > from && a[a1 - 1] === b[b1 - 1]) a1--, b1--;
  const own = a.slice(from, a1), other = b.slice(from, b1), width = other.length + 1, found = new Set();
  if (own.length * width > MOST) {
    const known = new Set(other);
    own.forEach((word, i) => known.has(word) || found.add(from + i));
    return found;
  }
  const table = new Uint32Array((own.length + 1) * width);
  for (let i = own.length - 1; i >= 0; i--)
    for (let j = other.length - 1; j >= 0; j--)
      table[i * width + j] = own[i] === other[j] ? table[(i + 1) * width + j + 1] + 1
        : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
  for (let i = 0, j = 0; i < own.length; i++) {
    while (j < other.length && own[i] !== other[j] && table[i * width + j + 1] >= table[(i + 1) * width + j]) j++;
    if (j < other.length && own[i] === other[j]) j++;
    else found.add(from + i);
  }
  return found;
};

class Sentences {
  constructor(root, tests) {
    Object.assign(this, { root, tests, query: "", sort: "number", differing: false, from: 0, at: -1 });
    this.search = el("input", { type: "search", placeholder: "words", "aria-keyshortcuts": "/", oninput: () => {
      clearTimeout(this.later);
      this.later = setTimeout(() => this.set({ query: this.search.value }), 120);
    } });
    this.tools = el("div", { class: "tools", role: "search" });
    this.status = el("p", { class: "note", role: "status" });
    this.list = el("div", { class: "cards", role: "feed", "aria-label": "test sentences" });
    this.pages = el("nav", { class: "tools", "aria-label": "sentences" });
    root.replaceChildren(this.tools, this.status, this.list, this.pages, el("p", { class: "note keys" },
      el("kbd", {}, "/"), " searches, ", el("kbd", {}, "j"), " and ", el("kbd", {}, "k"),
      " go to the next and the previous sentence."));
    document.addEventListener("keydown", (event) => this.key(event));
    this.open(0);
  }

  open(index) {
    this.test = this.tests[index];
    const { systems, compared } = this.test;
    [this.a, this.b] = compared;
    this.metric = Object.keys(this.test.digits)[0];
    this.lengths = {};
    this.tools.replaceChildren(
      ...(this.tests.length > 1 ? [choice("test set", this.tests.map((test, i) => [i, test.name]), index, (i) => this.open(i))] : []),
      el("label", { class: "wide" }, "search ", this.search),
      choice("sort by", Object.entries(SORTS).filter(([key]) => systems.length > 1 || !/gain|loss/.test(key)), this.sort,
        (sort) => this.set({ sort })),
      choice("metric", Object.keys(this.test.digits).map((name) => [name, name]), this.metric, (metric) => this.set({ metric })),
      ...(systems.length > 1 ? [
        this.system("run", "b"), this.system("against", "a"),
        el("label", {}, el("input", { type: "checkbox", checked: this.differing,
          onchange: (event) => this.set({ differing: event.target.checked }) }), " only where they differ"),
      ] : []));
    this.texts = null;
    this.set({ from: 0 });
  }

  system(label, key) {
    return choice(label, this.test.systems.map((system, i) => [i, system.label]), this[key], (i) => this.set({ [key]: Number(i) }));
  }

  set(changes) {
    Object.assign(this, changes, { from: 0, at: -1 });
    this.order = this.chosen();
    this.tell();
    this.render();
  }

  score(system, i) {
    return this.test.systems[system].scores[this.metric]?.[i];
  }

  gain(i) {
    const a = this.score(this.a, i), b = this.score(this.b, i);
    return a == null || b == null || this.a === this.b ? null : b - a;
  }

  chosen() {
    const { sources, references, systems } = this.test, query = this.query.trim().toLowerCase();
    if (query)
      this.texts ??= sources.map((source, i) =>
        [source, ...references[i], ...systems.map((system) => system.outputs[i])].join("\n").toLowerCase());
    const [a, b] = [systems[this.a].outputs, systems[this.b].outputs];
    const found = sources.map((_, i) => i).filter((i) =>
      (!query || this.texts[i].includes(query)) && !(this.differing && a[i] === b[i]));
    const length = (name, texts) => {
      const known = (this.lengths[name] ??= texts.map((text) => words(text).filter(isWord).length));
      return (i) => -known[i];
    };
    const key = {
      gain: (i) => -(this.gain(i) ?? -Infinity), loss: (i) => this.gain(i) ?? Infinity,
      score: (i) => -(this.score(this.b, i) ?? -Infinity),
      source: length("source", sources), output: length(this.b, b),
    };
    if (this.sort === "number") return found;
    const by = key[this.sort], values = new Map(found.map((i) => [i, by(i)]));
    return found.sort((i, j) => values.get(i) - values.get(j) || i - j);
  }

  tell() {
    const { systems, sources } = this.test, gains = this.order.map((i) => this.gain(i)).filter((gain) => gain != null);
    const count = (test) => grouped(gains.filter(test).length);
    const names = [systems[this.b].label, systems[this.a].label];
    this.status.textContent = `${grouped(this.order.length)} of ${grouped(sources.length)} sentences` + (gains.length
      ? `; by ${this.metric}, ${names[0]} is better than ${names[1]} on ${count((gain) => gain > 0)}, worse on ` +
        `${count((gain) => gain < 0)}, equal on ${count((gain) => gain === 0)}` : "");
  }

  render() {
    const shown = this.order.slice(this.from, this.from + WINDOW), last = this.from + shown.length;
    this.list.replaceChildren(...shown.map((i, k) => this.card(i, this.from + k)));
    if (!shown.length) this.list.append(el("p", {}, "No sentence has these words."));
    const go = (to) => () => this.go(to, true);
    this.pages.replaceChildren(
      el("button", { type: "button", disabled: !this.from, onclick: go(this.from - WINDOW) }, "previous"),
      `${grouped(Math.min(this.from + 1, last))} to ${grouped(last)} of ${grouped(this.order.length)}`,
      el("button", { type: "button", disabled: last >= this.order.length, onclick: go(last) }, "next"));
  }

  // To a place in the order.
  go(to, page = false) {
    const place = Math.max(0, Math.min(this.order.length - 1, to)), from = place - (place % WINDOW);
    if (!this.order.length) return;
    if (from !== this.from) Object.assign(this, { from }), this.render();
    this.at = place;
    const card = this.list.children[place - from];
    card.focus({ preventScroll: true });
    card.scrollIntoView({ block: page ? "start" : "nearest" });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
      if (event.key === "Escape") event.target.blur();
      if (event.key === "Escape" && event.target === this.search) this.set({ query: (this.search.value = "") });
      return;
    }
    const inside = this.list.contains(event.target), { key } = event;
    const step = { j: 1, k: -1, ...(inside && { ArrowDown: 1, ArrowUp: -1 }) }[key];
    if (key === "/") this.search.focus();
    else if (step) this.go(this.at < 0 ? this.from : this.at + step);
    else return;
    event.preventDefault();
  }

  card(i, place) {
    const { sources, references, systems } = this.test, known = new Set(references[i].flatMap(words));
    const outputs = systems.map((system) => words(system.outputs[i])), gain = this.gain(i);
    const row = (kind, name, ...content) => el("div", { class: kind }, el("dt", {}, name), el("dd", { dir: "auto" }, content));
    const said = systems.map((system, s) => {
      const other = s === this.a ? this.b : this.a;
      const differs = s === other ? new Set() : changed(outputs[s], outputs[other]);
      const name = [swatch(system.colour), system.label, el("small", {}, this.number(this.score(s, i)))];
      return row("said", name, this.text(outputs[s], (token, at) => [differs.has(at), !known.has(token)]));
    });
    const badge = gain == null ? null
      : el("span", { class: gain > 0 ? "gain" : gain < 0 ? "gain loss" : "gain none" }, this.signed(gain));
    return el("article", { class: "card", tabindex: 0, "aria-posinset": place + 1, "aria-setsize": this.order.length,
      "aria-label": `sentence ${i + 1}`, onfocus: () => { this.at = place; } },
    el("header", {}, `Sentence ${grouped(i + 1)}`, badge),
    el("dl", {}, row("given", "source", this.text(words(sources[i]))),
      references[i].map((reference) => row("given", "reference", this.text(words(reference)))), said));
  }

  number(value) {
    return value == null ? "–" : value.toFixed(this.test.digits[this.metric]);
  }

  signed(value) {
    return `${value > 0 ? "+" : value < 0 ? "−" : ""}${this.number(Math.abs(value))} ${this.metric}`;
  }

  // Words as text, some of them marked (differs, in no reference); the end of a long text on demand.
  text(tokens, look = () => [false, false]) {
    let size = 0, end = tokens.findIndex((token) => (size += token.length) > LONG);
    if (end < 0) return tokens.length ? this.nodes(tokens, 0, tokens.length, look) : [el("i", {}, "nothing")];
    end = Math.max(end, 1);
    const more = el("button", { type: "button",
      onclick: () => more.replaceWith(...this.nodes(tokens, end, tokens.length, look)) }, "… show all of it");
    return [...this.nodes(tokens, 0, end, look), more];
  }

  nodes(tokens, from, to, look) {
    const kind = (at) => look(tokens[at], at).reduce((bits, flag) => 2 * bits + flag, 0), runs = [];
    for (let at = from; at < to; at++) {
      const between = !isWord(tokens[at]) && at > from && at + 1 < to;
      const bits = isWord(tokens[at]) ? kind(at) : between && kind(at - 1) === kind(at + 1) ? kind(at - 1) : 0;
      if (runs.at(-1)?.bits === bits) runs.at(-1).text += tokens[at];
      else runs.push({ bits, text: tokens[at] });
    }
    return runs.map(({ bits, text }) => {
      const node = bits & 1 ? el("u", {}, text) : text;
      return bits & 2 ? el("mark", {}, node) : node;
    });
  }
}
