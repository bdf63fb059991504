// The lists beside the time line: what was found, and what is known of what is selected.

const MOST_SIDES = 60, MOST_PARTS = 30;
const NOT_KNOWN = "not known: a torch operator, an event that is left out, or the word had the value from the start";

class Panel {
  // show.event(number), show.finding(number), show.side(finding, side): what a click asks for.
  constructor(show) {
    this.show = show;
    this.list = document.getElementById("finding-list");
    this.details = document.getElementById("details");
    this.fillHead();
    this.fillFindings();
  }

  fillHead() {
    const counts = new Map();
    for (const finding of raw.findings) counts.set(finding.kind, (counts.get(finding.kind) ?? 0) + 1);
    const named = [...counts].map(([kind, count]) => `${count} ${kind === "race" ? "data race" : kind}${count > 1 ? "s" : ""}`);
    const verdict = document.getElementById("verdict");
    verdict.textContent = named.length ? named.join(", ") : raw.settings.check ? "no race found" : "run finished";
    verdict.classList.toggle("wrong", named.length > 0);
    const { ranks, nodes, seed, schedule, execute, gpu, check } = raw.settings;
    const facts = [`${ranks} rank${ranks > 1 ? "s" : ""}`, nodes > 1 ? `${nodes} nodes` : "", gpu, `seed ${seed}`, `schedule ${schedule}`,
      execute === "timing" ? "run for its time" : "", check ? "check race" : "", `${grouped(model.count)} events`,
      `${timeText(raw.end[0])} simulated`];
    document.getElementById("settings").textContent = facts.filter(Boolean).join(" \u00b7 ");
  }

  fillFindings() {
    raw.findings.forEach((finding, number) => {
      const lines = finding.text.split("\n");
      const first = finding.kind === "error" ? lines[0].replace(/^\w+: /, "") : lines.slice(1).find((line) => line.trim()) ?? "";
      this.list.append(element("li", { "data-finding": number },
        element("button", { type: "button", onclick: () => this.show.finding(number) },
          element("b", {}, finding.kind), element("span", {}, this.shortTitle(finding)), element("small", {}, shortText(first.trim())))));
    });
    if (!raw.findings.length) this.list.append(element("li", { class: "none" }, this.nothingFound()));
    const left = Object.entries(raw.leftOut);
    if (left.length) {
      const named = left.map(([kind, count]) => `${grouped(count)} ${kind}`).join(", ");
      this.list.append(element("li", { class: "none", id: "left-out" },
        `Left out, as this file has room for the latest ${grouped(raw.settings.limit)} events: ${named}.`));
    }
  }

  nothingFound() {
    return raw.settings.check ? "Nothing: the run finished, and the check found no race in this schedule."
      : "Nothing: the run finished. Data races were not looked for (check=\"race\").";
  }

  shortTitle(finding) { return finding.title.replace(/^data race on /, ""); }

  mark(finding) {
    for (const item of this.list.querySelectorAll("li[data-finding]")) {
      const current = Number(item.dataset.finding) === finding;
      item.firstElementChild.setAttribute("aria-current", String(current));
      if (current) item.scrollIntoView({ block: "nearest" });
    }
  }

  // matches: for each finding whether the filter lets it pass.
  filter(matches) {
    for (const item of this.list.querySelectorAll("li[data-finding]")) item.hidden = !matches[Number(item.dataset.finding)];
  }

  clear() {
    this.mark(NONE);
    this.details.replaceChildren(element("h2", {}, "Kernels"), this.kernels(), element("h2", {}, "Longest waits"), this.longestWaits());
  }

  // For each kernel: how many programs ran, how long, and which share of that they waited.
  kernels() {
    const rows = new Map();
    for (let event = 0; event < model.count; event++) {
      const kind = kindOf(event);
      if (kind !== "program" && kind !== "wait") continue;
      const kernel = kernelOf(event);
      if (!kernel || model.open[event]) continue;
      if (!rows.has(kernel)) rows.set(kernel, { programs: 0, time: 0, waiting: 0 });
      const row = rows.get(kernel), takes = model.ends.time[event] - model.begins.time[event];
      if (kind === "wait") row.waiting += takes;
      else {
        row.programs += 1;
        row.time += takes;
      }
    }
    if (!rows.size) return element("p", {}, "none has ended");
    const cells = (name, ...values) => element("tr", {}, ...values.map((value) => element(name, {}, value)));
    const lines = [...rows].map(([kernel, { programs, time, waiting }]) => cells("td", kernel, grouped(programs),
      programs ? timeText(time / programs) : "", time ? `${Math.round((100 * waiting) / time)} %` : ""));
    return element("table", {}, cells("th", "", "programs", "mean time", "waiting"), ...lines);
  }

  longestWaits() {
    const waits = [];
    for (let event = 0; event < model.count; event++) if (kindOf(event) === "wait" && !model.open[event]) waits.push(event);
    const takes = (event) => model.ends.time[event] - model.begins.time[event];
    const longest = waits.sort((a, b) => takes(b) - takes(a)).slice(0, 10).filter((event) => takes(event) > 0);
    if (!longest.length) return element("p", {}, "none");
    return element("ul", { class: "waits" }, ...longest.map((event) => element("li", {}, element("span", {}, timeText(takes(event))),
      element("button", { type: "button", class: "link", onclick: () => this.show.event(event) },
        `${text(model.events.word[event])} ${text(model.events.detail[event])}, ${whoOf(event)}`))));
  }

  showFinding(number) {
    this.mark(number);
    const finding = raw.findings[number];
    const parts = [element("h3", {}, finding.title)];
    if (finding.kind === "race") {
      parts.push(element("p", { class: "report missing" }, shortText(finding.text.split("\n").slice(3).join("\n").trim())));
    } else {
      if (finding.kind !== "deadlock") parts.push(element("p", { class: "report" }, shortText(finding.text.replace(/^\w+: /, ""))));
      if (finding.cycle.length) parts.push(this.cycle(number, finding));
    }
    parts.push(...this.sides(number, finding));
    if (finding.sides.length > MOST_SIDES) parts.push(element("p", {}, `and ${finding.sides.length - MOST_SIDES} more`));
    if (finding.kind !== "error") {
      parts.push(element("details", {}, element("summary", {}, "the report as text"), element("pre", { class: "report" }, finding.text)));
    }
    this.details.replaceChildren(...parts);
    this.details.scrollTop = 0;
  }

  cycle(number, finding) {
    const list = element("ol", { class: "cycle" });
    finding.cycle.forEach((index, i) => {
      const other = finding.sides[finding.cycle[(i + 1) % finding.cycle.length]];
      const words = `${this.who(finding.sides[index])} waits for a word that ${this.who(other)} would set`;
      list.append(element("li", {}, element("button", { type: "button", class: "link", onclick: () => this.show.side(number, index) }, words)));
    });
    return element("div", { class: "side" }, element("h2", {}, "Circle"), list);
  }

  who(side) { return side.event === NONE ? shortText(side.what) : whoOf(side.event); }

  // One block for each side of a race; for others one for each source line, with all who stand there.
  sides(number, finding) {
    const groups = new Map();
    finding.sides.slice(0, MOST_SIDES).forEach((side, index) => {
      const key = finding.kind === "race" ? index : `${side.role} ${side.place}`;
      if (groups.has(key)) groups.get(key).push(index);
      else groups.set(key, [index]);
    });
    return [...groups.values()].map((indices) => this.group(number, finding, indices));
  }

  group(number, finding, indices) {
    const { place } = finding.sides[indices[0]];
    const others = finding.sides.filter((one) => one.place !== NONE && place !== NONE && raw.places[one.place][0] === raw.places[place][0])
      .map((one) => raw.places[one.place][1]);
    const heads = indices.map((index) => {
      const side = finding.sides[index];
      const where = side.row === NONE ? null
        : element("button", { type: "button", class: "link", onclick: () => this.show.side(number, index) },
          `at ${timeText(side.time)}, event ${grouped(side.step)}`);
      return element("div", { class: "head" }, element("span", { class: "role" }, side.role), where,
        element("div", { class: "what" }, shortText(side.what)));
    });
    return element("div", { class: "side" }, ...heads, place === NONE ? null : sourceView(place, others));
  }

  showEvent(event) {
    this.mark(NONE);
    const { begins, ends, open } = model;
    const row = model.rows[model.events.row[event]], kind = kindOf(event);
    const facts = element("dl", { class: "facts" });
    const fact = (name, ...value) => {
      if (value.some((part) => part !== "" && part !== null)) facts.append(element("dt", {}, name), element("dd", {}, ...value));
    };
    fact("where", `rank ${row.rank}, ${rowName(row)}`);
    if (isPoint(event)) fact("at", timeText(begins.time[event], 1));
    else {
      fact("from", timeText(begins.time[event], 1));
      fact("to", open[event] ? "it has not ended" : timeText(ends.time[event], 1));
      fact("takes", open[event] ? "" : timeText(ends.time[event] - begins.time[event]));
    }
    fact("order", isPoint(event) ? `event ${grouped(begins.order[event])}` : `events ${grouped(begins.order[event])} to ${grouped(ends.order[event])}`);
    fact("what", text(model.events.detail[event]));
    fact("tensor", text(model.events.word[event]));
    const parent = model.events.parent[event];
    if (parent !== NONE) fact("part of", this.link(parent));
    const cause = model.events.cause[event];
    if (cause !== NONE) fact(kind === "wait" ? "ended by" : "queued by", this.link(cause));
    else if (kind === "wait") fact("ended by", open[event] ? "nobody: it had not ended when the run did" : NOT_KNOWN);
    const effects = model.effects.get(event) ?? [];
    if (effects.length) fact(kind === "signal" ? "ends" : "began", ...effects.slice(0, 12).map((one) => element("div", {}, this.link(one))),
      effects.length > 12 ? `and ${effects.length - 12} more` : "");
    const parts = kind === "program" || kind === "barrier" ? this.partsOf(event) : [];
    if (parts.length) fact("in it", ...parts.slice(0, MOST_PARTS).map((one) => element("div", {}, this.link(one, false))),
      parts.length > MOST_PARTS ? `and ${parts.length - MOST_PARTS} more` : "");
    const place = model.events.place[event];
    this.details.replaceChildren(element("h3", {}, titleOf(event)), element("p", {}, kind), facts,
      place === NONE ? "" : element("div", { class: "side" }, sourceView(place)));
    this.details.scrollTop = 0;
  }

  // What a program waited for, set and put, in order.
  partsOf(event) {
    const found = [];
    const program = kindOf(event) === "program" ? event : model.events.parent[event];
    const { first, last } = { first: model.begins.order[event], last: model.ends.order[event] };
    for (let one = event + 1; one < model.count && model.begins.order[one] <= last; one++) {
      if (model.events.parent[one] === program && model.begins.order[one] >= first) found.push(one);
    }
    return found;
  }

  link(event, tellsWho = true) {
    const words = tellsWho && (isPoint(event) || kindOf(event) === "wait") ? `${titleOf(event)}, by ${whoOf(event)}` : titleOf(event);
    return element("button", { type: "button", class: "link", onclick: () => this.show.event(event) }, words);
  }
}

function fillLegend(painter) {
  const legend = document.getElementById("legend");
  const entry = (colour, words) => {
    const patch = element("i");
    patch.style.background = `var(--${colour})`;
    legend.append(element("span", {}, patch, words));
  };
  for (const [name, number] of [...painter.colourOfName].slice(0, 12)) entry(`kernel-${number}`, text(name));
  const used = new Set(Array.from(model.events.kind, (number) => raw.kinds[number]));
  const names = { wait: "waits", barrier: "device barrier", signal: "sets a word", copy: "copy", operator: "torch operator",
    collective: "collective", put: "put or get under way", stream: "other work of a stream", "host wait": "host waits" };
  for (const [kind, words] of Object.entries(names)) {
    if (used.has(kind)) entry(kind === "host wait" ? "host" : kind, words);
  }
  if (raw.findings.some((finding) => finding.kind === "deadlock")) entry("never", "wait that never ends");
  if (raw.findings.length) entry("alarm", "finding");
}
