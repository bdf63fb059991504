// What keys, pointer and buttons do.

const view = { axis: "time", from: 0, to: 1, top: 0 };
const layout = new Layout();
const painter = new Painter(document.getElementById("canvas"));
const canvas = painter.canvas;
let chosenEvent = NONE, chosenFinding = NONE, asked = false, frameTimes = [];

function repaint() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(paintNow);
}

function paintNow() {
  asked = false;
  const begin = performance.now();
  painter.paint(view, layout, chosenEvent, chosenFinding);
  frameTimes.push(performance.now() - begin);
  if (frameTimes.length > 500) frameTimes = frameTimes.slice(-250);
}

function arrange() {
  painter.fit();
  layout.arrange(painter.height);
  scrollTo(view.top);
}

function scrollTo(top) {
  view.top = Math.max(0, Math.min(layout.height - (painter.height - RULER), top));
  repaint();
}

function setRange(from, to) {
  const length = model.length[view.axis];
  const span = Math.max(view.axis === "time" ? 4 : 2, Math.min(to - from, length * 1.08));
  const start = Math.max(-length * 0.04, Math.min(from + (to - from - span) / 2, length * 1.04 - span));
  view.from = start;
  view.to = start + span;
  repaint();
}

function showAll() { setRange(-model.length[view.axis] * 0.012, model.length[view.axis] * 1.012); }

function zoom(factor, x = (painter.width + GUTTER) / 2) {
  painter.view = view;
  const still = painter.valueAt(Math.max(GUTTER, x));
  setRange(still - (still - view.from) * factor, still + (view.to - still) * factor);
}

function pan(share) { setRange(view.from + (view.to - view.from) * share, view.to + (view.to - view.from) * share); }

// Bring lines into sight, opening their ranks first.
function reveal(rows, open) {
  if (open) for (const row of rows) layout.isOpen[model.rows[row].rank] = true;
  arrange();
  const lines = rows.map((row) => layout.lineFor(row)).filter((line) => line !== undefined);
  if (!lines.length) return;
  const room = painter.height - RULER;
  const top = Math.min(...lines.map((line) => line.y)), bottom = Math.max(...lines.map((line) => line.y + line.height));
  if (top < view.top || bottom > view.top + room) scrollTo(bottom - top > room - 60 ? top - 24 : (top + bottom - room) / 2);
}

// Zoom so that values of the axis fill a part of the width.
function zoomTo(values, share = 0.5) {
  const low = Math.min(...values), high = Math.max(...values);
  const least = view.axis === "time" ? Math.max(200, model.length.time / 400) : 12;
  const span = Math.max((high - low) / share, least);
  setRange((low + high - span) / 2, (low + high + span) / 2);
}

const valueOf = (side) => (view.axis === "time" ? side.time : side.step);

function selectEvent(event, move = false) {
  [chosenEvent, chosenFinding] = [event, NONE];
  panel.showEvent(event);
  if (move) {
    reveal([model.events.row[event]], true);
    const { begins, ends } = model;
    const low = begins[view.axis][event], high = isPoint(event) ? low : ends[view.axis][event];
    if (low < view.from || high > view.to) zoomTo([low, high], 0.4);
  }
  repaint();
}

function selectFinding(number) {
  const finding = raw.findings[number];
  [chosenEvent, chosenFinding] = [NONE, number];
  panel.showFinding(number);
  const shown = finding.sides.filter((side) => side.row !== NONE);
  if (shown.length) {
    reveal(shown.slice(0, 8).map((side) => side.row), shown.length <= 8);
    zoomTo(shown.map(valueOf), finding.kind === "race" ? 0.4 : 0.7);
  }
  repaint();
}

function selectSide(number, index) {
  const side = raw.findings[number].sides[index];
  chosenFinding = number;
  chosenEvent = side.event;
  if (side.row !== NONE) {
    reveal([side.row], true);
    if (valueOf(side) < view.from || valueOf(side) > view.to) zoomTo([valueOf(side)]);
  }
  repaint();
}

function selectNothing() {
  chosenEvent = chosenFinding = NONE;
  panel.clear();
  repaint();
}

function stepFinding(by) {
  const open = raw.findings.map((_, number) => number).filter((number) => !panel.list.querySelector(`[data-finding="${number}"]`).hidden);
  if (!open.length) return;
  const at = open.indexOf(chosenFinding);
  selectFinding(open[(at + by + open.length + (at < 0 && by < 0 ? 1 : 0)) % open.length]);
}

function setAxis(axis) {
  if (view.axis === axis) return;
  view.axis = axis;
  for (const name of ["time", "order"]) document.getElementById(`axis-${name}`).setAttribute("aria-pressed", String(name === axis));
  if (chosenFinding !== NONE && chosenEvent === NONE) selectFinding(chosenFinding);
  else showAll();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  painter.readColours();
  repaint();
}

// Filter: words that all have to hold. "kernel:", "tensor:", "kind:" and "rank:" (2, 0-3, or 0,2) look at one thing, others at all texts.
let matching = [], matchAt = -1;

function wordTest(word) {
  const [, key, wanted] = word.match(/^(kernel|tensor|rank|kind):(.*)$/) ?? [null, "", word];
  if (key === "rank") {
    const ranges = wanted.split(",").filter(Boolean).map((part) => part.split("-").map(Number));
    return (fields) => !ranges.length || ranges.some(([low, high = low]) => fields.rank >= low && fields.rank <= high);
  }
  return (fields) => (key ? fields[key] : fields.all).includes(wanted);
}

function eventFields(event) {
  const kernel = kernelOf(event).toLowerCase(), tensor = text(model.events.word[event]).toLowerCase(), kind = kindOf(event);
  return { kernel, tensor, kind, rank: model.rows[model.events.row[event]].rank, all: `${kernel} ${titleOf(event).toLowerCase()} ${kind}` };
}

function findingMatches(finding, tests) {
  const all = `${finding.kind} ${finding.text}`.toLowerCase();
  const ranks = finding.sides.filter((side) => side.row !== NONE).map((side) => model.rows[side.row].rank);
  return (ranks.length ? ranks : [NONE]).some((rank) =>
    tests.every((test) => test({ kernel: all, tensor: finding.tensor.toLowerCase() || all, kind: finding.kind, rank, all })));
}

function applyFilter() {
  const tests = document.getElementById("filter").value.toLowerCase().split(/\s+/).filter(Boolean).map(wordTest);
  matchAt = -1;
  if (!tests.length) {
    layout.filter(null);
    matching = [];
    panel.filter(raw.findings.map(() => true));
  } else {
    const mask = new Uint8Array(model.count);
    matching = [];
    for (let event = 0; event < model.count; event++) {
      const fields = eventFields(event);
      if (tests.every((test) => test(fields))) {
        mask[event] = 1;
        matching.push(event);
      }
    }
    layout.filter(mask);
    panel.filter(raw.findings.map((finding) => findingMatches(finding, tests)));
  }
  document.getElementById("matches").textContent = tests.length ? `${grouped(matching.length)} events` : "";
  view.top = 0;
  arrange();
}

function nextMatch() {
  if (!matching.length) return;
  matchAt = (matchAt + 1) % matching.length;
  selectEvent(matching[matchAt], true);
}

const panel = new Panel({ event: (event) => selectEvent(event, true), finding: selectFinding, side: selectSide });

// Pointer

const tooltip = document.getElementById("tooltip");
let drag = null;

canvas.addEventListener("pointerdown", (event) => {
  drag = { x: event.clientX, y: event.clientY, from: view.from, to: view.to, top: view.top, moved: false };
  canvas.setPointerCapture(event.pointerId);
});

canvas.addEventListener("pointermove", (event) => {
  if (drag === null) {
    hover(event);
    return;
  }
  const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
  drag.moved ||= Math.abs(dx) + Math.abs(dy) > 3;
  if (!drag.moved) return;
  tooltip.hidden = true;
  const shift = (dx / (painter.width - GUTTER)) * (drag.to - drag.from);
  setRange(drag.from - shift, drag.to - shift);
  scrollTo(drag.top - dy);
});

canvas.addEventListener("pointerup", (event) => {
  const moved = drag !== null && drag.moved;
  drag = null;
  if (moved) return;
  const found = painter.at(event.offsetX, event.offsetY);
  if (found === null) selectNothing();
  else if ("finding" in found) selectFinding(found.finding);
  else if (found.event !== NONE) selectEvent(found.event);
  else if (found.line.row === NONE) toggle(found.line.rank);
  else selectNothing();
});

canvas.addEventListener("pointerleave", () => { tooltip.hidden = true; });
canvas.addEventListener("pointercancel", () => { drag = null; });
canvas.addEventListener("dblclick", (event) => zoom(0.4, event.offsetX));

canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const by = event.deltaMode === 1 ? 16 : 1;
  if (event.shiftKey || event.offsetX < GUTTER) scrollTo(view.top + (event.deltaY || event.deltaX) * by);
  else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX * by) / painter.width);
  else zoom(Math.exp(event.deltaY * by * 0.0018), event.offsetX);
}, { passive: false });

function toggle(rank) {
  layout.isOpen[rank] = !layout.isOpen[rank];
  arrange();
}

function hover(event) {
  const found = painter.at(event.offsetX, event.offsetY);
  const lines = found === null ? [] : tooltipLines(found);
  canvas.style.cursor = lines.length || (found !== null && found.line?.row === NONE) ? "pointer" : "default";
  tooltip.hidden = !lines.length;
  if (!lines.length) return;
  tooltip.replaceChildren(...lines.map((line) => element("div", {}, line)));
  const right = event.offsetX + 14 + tooltip.offsetWidth > painter.width;
  const below = event.offsetY + 18 + tooltip.offsetHeight < painter.height;
  tooltip.style.left = `${Math.max(0, right ? event.offsetX - tooltip.offsetWidth - 8 : event.offsetX + 14)}px`;
  tooltip.style.top = `${below ? event.offsetY + 16 : event.offsetY - tooltip.offsetHeight - 8}px`;
}

function tooltipLines(found) {
  if ("finding" in found) {
    const finding = raw.findings[found.finding];
    return [finding.title, `${finding.sides[found.side].role}: ${shortText(finding.sides[found.side].what)}`];
  }
  if (found.event === NONE) return [];
  const { begins, ends, open } = model;
  const long = open[found.event] ? "has not ended" : timeText(ends.time[found.event] - begins.time[found.event]);
  return [titleOf(found.event), `${whoOf(found.event)}${isPoint(found.event) ? "" : ` \u00b7 ${long}`}`, placeText(model.events.place[found.event])]
    .filter(Boolean);
}

// Keys

const KEYS = {
  w: () => zoom(0.7), "+": () => zoom(0.7), "=": () => zoom(0.7), s: () => zoom(1 / 0.7), "-": () => zoom(1 / 0.7),
  a: () => pan(-0.2), ArrowLeft: () => pan(-0.2), d: () => pan(0.2), ArrowRight: () => pan(0.2),
  ArrowUp: () => scrollTo(view.top - 60), ArrowDown: () => scrollTo(view.top + 60),
  PageUp: () => scrollTo(view.top - painter.height), PageDown: () => scrollTo(view.top + painter.height),
  n: () => stepFinding(1), p: () => stepFinding(-1), f: showAll, 0: showAll, o: () => setAxis(view.axis === "time" ? "order" : "time"),
  t: () => toggleTheme(), "/": () => document.getElementById("filter").focus(), "?": () => toggleKeys(),
  c: () => { if (chosenEvent !== NONE && model.events.cause[chosenEvent] !== NONE) selectEvent(model.events.cause[chosenEvent], true); },
  e: () => { layout.isOpen.fill(!layout.isOpen.some(Boolean)); arrange(); },
  Enter: () => { if (chosenEvent !== NONE) zoomTo([model.begins[view.axis][chosenEvent], model.ends[view.axis][chosenEvent]], 0.4); },
  Escape: () => { toggleKeys(false); selectNothing(); },
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const place = event.target;
  if (place instanceof HTMLInputElement) {
    if (event.key === "Enter") nextMatch();
    if (event.key === "Escape") {
      if (place.value) {
        place.value = "";
        applyFilter();
      }
      canvas.focus();
    }
    return;
  }
  const scrolls = ["ArrowUp", "ArrowDown", "PageUp", "PageDown"].includes(event.key) && place instanceof Element && place.closest("aside");
  if (scrolls || (event.key === "Enter" && place instanceof HTMLButtonElement)) return;
  const action = KEYS[event.key];
  if (action === undefined) return;
  event.preventDefault();
  action();
});

function toggleTheme() { setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); }

function toggleKeys(shown = document.getElementById("keys").hidden) {
  document.getElementById("keys").hidden = !shown;
  document.getElementById("help").setAttribute("aria-expanded", String(shown));
}

// Buttons, the side's width, and the beginning

document.getElementById("axis-time").addEventListener("click", () => setAxis("time"));
document.getElementById("axis-order").addEventListener("click", () => setAxis("order"));
document.getElementById("fit").addEventListener("click", showAll);
document.getElementById("theme").addEventListener("click", toggleTheme);
document.getElementById("help").addEventListener("click", () => toggleKeys());
let filterTimer = 0;
document.getElementById("filter").addEventListener("input", () => {
  clearTimeout(filterTimer);
  filterTimer = setTimeout(applyFilter, model.count > 20000 ? 150 : 0);
});

const divider = document.getElementById("divider"), side = document.querySelector("aside");
const setSide = (width) => {
  document.documentElement.style.setProperty("--side", `${Math.max(240, Math.min(window.innerWidth - 320, width))}px`);
};
divider.addEventListener("pointerdown", (event) => divider.setPointerCapture(event.pointerId));
divider.addEventListener("pointermove", (event) => {
  if (divider.hasPointerCapture(event.pointerId)) setSide(window.innerWidth - event.clientX);
});
divider.addEventListener("keydown", (event) => {
  const by = { ArrowLeft: 24, ArrowRight: -24 }[event.key];
  if (by === undefined) return;
  event.stopPropagation();
  setSide(side.offsetWidth + by);
});

const dark = window.matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
setTheme(dark.matches ? "dark" : "light");
new ResizeObserver(() => { arrange(); }).observe(canvas);
fillLegend(painter);
panel.clear();
arrange();
showAll();
if (raw.findings.length) selectFinding(0);
paintNow();

// For tests: the state, and how long frames take.
window.report = { view, model, layout, painter, frameTimes: () => frameTimes, chosen: () => ({ event: chosenEvent, finding: chosenFinding }) };
