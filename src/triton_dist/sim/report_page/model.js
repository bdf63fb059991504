// The events as typed columns, what belongs to whom, and how numbers read.

const raw = JSON.parse(document.getElementById("record").textContent);
const NONE = -1;

const model = (() => {
  const columns = raw.events;
  const count = columns.kind.length;
  const ints = (name) => Int32Array.from(columns[name]);
  const floats = (name) => Float64Array.from(columns[name]);
  const events = {
    kind: Uint8Array.from(columns.kind), row: ints("row"), name: ints("name"), detail: ints("detail"), word: ints("word"),
    place: ints("place"), parent: ints("parent"), cause: ints("cause"),
  };
  const begins = { time: floats("begin"), order: floats("first") };
  const ends = { time: floats("end"), order: floats("last") };
  // What never ended is drawn beyond the end of the run.
  const beyond = columns.last.includes(NONE) ? 1.1 : 1;
  const length = { time: raw.end[0] * beyond, order: raw.end[1] * beyond };
  const open = new Uint8Array(count);
  for (let i = 0; i < count; i++) {
    if (ends.order[i] !== NONE) continue;
    open[i] = 1;
    ends.time[i] = length.time;
    ends.order[i] = length.order;
  }
  const kindNumber = Object.fromEntries(raw.kinds.map((kind, number) => [kind, number]));
  const rows = raw.rows.map(([rank, kind, number]) => ({ rank, kind, number }));
  const effects = new Map(); // for a signal or a call of a host, the events that it caused
  for (let i = 0; i < count; i++) {
    const cause = events.cause[i];
    if (cause === NONE) continue;
    if (effects.has(cause)) effects.get(cause).push(i);
    else effects.set(cause, [i]);
  }
  return { count, events, begins, ends, length, open, rows, kindNumber, effects };
})();

const text = (number) => (number === NONE ? "" : raw.texts[number]);
const kindOf = (event) => raw.kinds[model.events.kind[event]];
const isStuck = (event) => Boolean(model.open[event]) && raw.findings.some((finding) => finding.kind === "deadlock");
const isPoint = (event) => kindOf(event) === "signal" || kindOf(event) === "submit";

function kernelOf(event) {
  const kind = kindOf(event);
  if (kind === "program" || kind === "launch") return text(model.events.name[event]);
  const parent = model.events.parent[event];
  return parent === NONE ? "" : kernelOf(parent);
}

function titleOf(event) {
  const { name, word, detail } = model.events;
  switch (kindOf(event)) {
    case "signal": return `${text(word[event])} ${text(detail[event])}`;
    case "wait": return `wait for ${text(word[event])} ${text(detail[event])}`;
    case "put": case "get": return `${kindOf(event)} of ${text(word[event])}, ${text(detail[event])}`;
    case "program": return `${text(name[event])}, ${text(detail[event])}`;
    case "submit": return `${text(name[event])} ${text(detail[event])}`;
    default: return text(name[event]);
  }
}

function rowName(row) {
  return { host: "host", stream: `stream ${row.number}`, sm: `SM ${row.number}`, puts: `puts ${row.number}` }[row.kind];
}

function whoOf(event) {
  const row = model.rows[model.events.row[event]];
  const parent = model.events.parent[event];
  if (parent !== NONE && kindOf(parent) === "program") {
    return `rank ${row.rank}, ${text(model.events.detail[parent])} of ${text(model.events.name[parent])}`;
  }
  return `rank ${row.rank}, ${rowName(row)}${parent === NONE ? "" : `, ${text(model.events.name[parent])}`}`;
}

// Files by their names alone, and with as many folders as it takes to tell them apart.
const shortFiles = (() => {
  const parts = raw.files.map((file) => file.name.split("/"));
  return parts.map((mine, number) => {
    let kept = 1;
    const tail = (path) => path.slice(-kept).join("/");
    while (kept < mine.length && parts.some((other, i) => i !== number && tail(other) === tail(mine))) kept++;
    return tail(mine);
  });
})();

function placeText(place) {
  if (place === NONE) return "";
  const [file, line] = raw.places[place];
  return `${shortFiles[file]}:${line}`;
}

// A text of a report with the short names of the files that the page has.
function shortText(words) {
  return raw.files.reduce((short, file, number) => (file.name.includes("/") ? short.replaceAll(file.name, shortFiles[number]) : short), words);
}

const grouped = (number) => Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, "\u2009");

// Nanoseconds with a unit that fits to ``step``, the resolution wanted.
function timeText(nanoseconds, step = nanoseconds) {
  const size = Math.abs(step) || Math.abs(nanoseconds);
  const [unit, scale] = size >= 1e6 ? ["ms", 1e6] : size >= 1e3 ? ["us", 1e3] : ["ns", 1];
  const digits = scale === 1 ? 0 : Math.max(0, Math.min(3, 2 - Math.floor(Math.log10(size / scale))));
  return `${(nanoseconds / scale).toFixed(digits)} ${unit}`;
}

const positionText = (value, axis, step) => (axis === "time" ? timeText(value, step) : grouped(value));

// The first index of a sorted array whose value is at least ``wanted`` (more than it, if ``after``).
function search(values, wanted, after = false) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (after ? values[middle] <= wanted : values[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}
