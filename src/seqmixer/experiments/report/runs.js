// What happened in the runs, and the latest sentences of a run.

const told = (event) =>
  event.event === "bad numbers" ? `${event.quantities.join(", ")} not finite in batch ${event.batch}; ${event.done}`
  : event.event === "threads" ? `${event.threads} threads, measured`
  : [event.why, event.done].filter(Boolean).join(": ");

const notes = (root, histories) => {
  const lines = histories.flatMap((history) => {
    const found = history.events.filter((event) => event.event !== "epoch")
      .map((event) => [history, event.epoch, told(event)]);
    const last = closings(history).at(-1);
    return [...found, ...(last?.symptoms ?? []).map((text) => [history, last.epoch, text])];
  });
  root.replaceChildren(...lines.map(([history, epoch, text]) => el("li", {}, swatch(history.colour),
    histories.length > 1 ? `${history.label}, ` : "", epoch == null ? "" : `epoch ${epoch}: `, text)));
  root.parentElement.hidden = !lines.length;
};

const samples = (root, history) => {
  const last = closings(history).at(-1);
  root.replaceChildren(...(last?.samples ?? []).map((sample) => el("dl", { class: "card" },
    Object.entries(sample).map(([kind, text]) => el("div", { class: kind === "hypothesis" ? "said" : "given" },
      el("dt", {}, kind === "hypothesis" ? [swatch(history.colour), kind] : kind), el("dd", { dir: "auto" }, text))))));
  root.parentElement.hidden = !root.children.length;
};
// The page of a run that trains: asks for what is new in its log.

const EVERY = 2000;  // ms

const follow = (history, refresh) => {
  const state = document.getElementById("state");
  const ask = async () => {
    try {
      const answer = await fetch(`events?generation=${history.generation}&have=${history.events.length}`);
      if (!answer.ok) throw new Error(answer.statusText);
      const { generation, events, status } = await answer.json();
      const anew = generation !== history.generation;
      if (anew) history.events.length = 0;
      Object.assign(history, { generation }).events.push(...events);
      state.textContent = status;
      if (anew || events.length) refresh();
    } catch (error) {
      state.textContent = "no answer: `seqmixer watch` has ended";
    }
    setTimeout(ask, EVERY);
  };
  ask();
};

// The parts that this page has.

const place = (id, use) => {
  const root = document.getElementById(id);
  if (root) use(root);
};
place("sentences", (root) => new Sentences(root, DATA.tests));
place("curves", (root) => {
  const curves = new Curves(root, DATA.histories);
  const refresh = () => {
    curves.update();
    place("notes", (list) => notes(list, DATA.histories));
    place("samples", (list) => samples(list, DATA.histories[0]));
  };
  refresh();
  if (document.getElementById("state")) follow(DATA.histories[0], refresh);
});
