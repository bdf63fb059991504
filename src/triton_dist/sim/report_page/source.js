// Source lines, with the ones that matter marked. All text becomes text nodes.

const AROUND = 4;
const WORDS = new Set(("False None True and as assert async await break class continue def del elif else except finally for from global if "
  + "import in is lambda nonlocal not or pass raise return try while with yield").split(" "));
const TOKENS = /(#.*$)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|([A-Za-z_]\w*)/g;

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== false && value !== null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function tokens(line) {
  const parts = [];
  let end = 0;
  for (const found of line.matchAll(TOKENS)) {
    const [whole, comment, string, word] = found;
    const style = comment ? "comment" : string ? "string" : WORDS.has(word) ? "keyword" : null;
    if (style === null) continue;
    if (found.index > end) parts.push(line.slice(end, found.index));
    parts.push(element("span", { class: style }, whole));
    end = found.index + whole.length;
  }
  parts.push(line.slice(end));
  return parts;
}

// Take away the indentation that all lines have, for a narrow pane.
function dedent(body) {
  const texts = [...body.querySelectorAll(".text")].filter((line) => line.textContent.trim());
  const common = Math.min(...texts.map((line) => line.textContent.match(/^ */)[0].length));
  if (!Number.isFinite(common) || common < 4) return;
  for (const line of texts) {
    const first = line.firstChild;
    if (first.nodeType === Node.TEXT_NODE) first.textContent = first.textContent.slice(common);
  }
}

// The lines around a place. others: more lines of that file to mark faintly. whole: all of the file.
function sourceView(place, others = [], whole = false) {
  const [fileNumber, line] = raw.places[place];
  const file = raw.files[fileNumber];
  const head = element("div", { class: "place", title: file.name }, placeText(place));
  if (file.text === null) return element("div", {}, head);
  const lines = file.text.split("\n");
  const from = whole ? 1 : Math.max(1, line - AROUND), to = whole ? lines.length : Math.min(lines.length, line + AROUND);
  const body = element("div", { class: "source", role: "group", tabindex: "0", "aria-label": `source of ${placeText(place)}` });
  for (let number = from; number <= to; number++) {
    const kind = number === line ? "row here" : others.includes(number) ? "row other" : "row";
    body.append(element("code", { class: kind },
      element("span", { class: "number" }, String(number)), element("span", { class: "text" }, ...tokens(lines[number - 1]))));
  }
  if (!whole) dedent(body);
  const view = element("div", {}, head, body);
  if (lines.length > to - from + 1 || whole) {
    const more = element("button", { type: "button", class: "link more", onclick: () => {
      const swapped = sourceView(place, others, !whole);
      view.replaceWith(swapped);
      swapped.querySelector(".here")?.scrollIntoView({ block: "center" });
    } }, whole ? "fewer lines" : `all ${lines.length} lines`);
    view.append(more);
  }
  return view;
}
