// The canvas. What is narrower than a pixel is painted once a pixel, so that a frame costs by what is seen and not by what there is.

const MOST_ARROWS = 500;
const KERNEL_COLOURS = 8;

class Painter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.colourOfName = new Map();
    for (let i = 0; i < model.count; i++) {
      const name = model.events.name[i];
      if (kindOf(i) === "program" && !this.colourOfName.has(name)) this.colourOfName.set(name, this.colourOfName.size % KERNEL_COLOURS);
    }
    this.widths = new Map(); // of labels
    this.readColours();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const names = ["ground", "panel", "ink", "muted", "line", "faint", "accent", "alarm", "wait", "never", "barrier", "signal", "host",
      "stream", "copy", "operator", "collective", "put", "arrow"];
    for (let i = 0; i < KERNEL_COLOURS; i++) names.push(`kernel-${i}`);
    this.colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    this.family = getComputedStyle(document.body).fontFamily;
  }

  colourOf(event) {
    const kind = kindOf(event);
    if ((kind === "wait" || kind === "host wait") && isStuck(event)) return this.colours.never;
    if (kind === "program" || kind === "launch") return this.colours[`kernel-${this.colourOfName.get(model.events.name[event]) ?? 7}`];
    return this.colours[{ "host wait": "host", get: "put", submit: "muted" }[kind] ?? kind];
  }

  fit() {
    const scale = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * scale);
    this.canvas.height = Math.round(this.height * scale);
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
  }

  x(value) { return GUTTER + ((value - this.view.from) / (this.view.to - this.view.from)) * (this.width - GUTTER); }

  valueAt(x) { return this.view.from + ((x - GUTTER) / (this.width - GUTTER)) * (this.view.to - this.view.from); }

  y(line) { return RULER + line.y - this.view.top; }

  // view: axis, from, to (of the axis), top (pixels scrolled). chosen: the selected event or NONE; finding: the selected finding or NONE.
  paint(view, layout, chosen, finding) {
    this.view = view;
    this.layout = layout;
    const { context, width, height, colours } = this;
    context.fillStyle = colours.ground;
    context.fillRect(0, 0, width, height);
    this.grid();
    context.save();
    context.beginPath();
    context.rect(GUTTER, RULER, width - GUTTER, height - RULER);
    context.clip();
    for (const line of layout.lines) {
      const y = this.y(line);
      if (y + line.height < RULER || y > height) continue;
      if (line.row === NONE) this.summary(line, y);
      else this.row(line, y);
    }
    this.arrows(chosen);
    if (chosen !== NONE) this.outline(chosen);
    this.markers(finding);
    context.restore();
    this.gutter();
    this.scrollMark();
    if (this.hiddenArrows) this.note(`zoom in for the arrows of ${grouped(this.hiddenArrows)} signals`);
  }

  note(words) {
    const { context, colours } = this;
    context.font = `11px ${this.family}`;
    const wide = context.measureText(words).width + 14;
    context.fillStyle = colours.panel;
    context.fillRect(this.width - wide - 12, this.height - 24, wide, 18);
    context.fillStyle = colours.muted;
    context.fillText(words, this.width - wide - 5, this.height - 14.5);
  }

  grid() {
    const { context, view, width, height, colours } = this;
    const span = view.to - view.from;
    const rough = (span / (width - GUTTER)) * 110;
    const power = 10 ** Math.floor(Math.log10(rough));
    let step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
    if (view.axis === "order") step = Math.max(1, Math.round(step));
    context.font = `11px ${this.family}`;
    context.textBaseline = "middle";
    context.textAlign = "left";
    for (let value = Math.ceil(view.from / step) * step; value <= view.to; value += step) {
      const x = Math.round(this.x(value)) + 0.5;
      context.fillStyle = colours.line;
      context.fillRect(x, 0, 1, height);
      context.fillStyle = colours.muted;
      if (x < width - 60 && value >= 0) context.fillText(positionText(value, view.axis, step), x + 4, 13);
    }
    context.fillStyle = colours.line;
    context.fillRect(0, RULER - 1, width, 1);
  }

  gutter() {
    const { context, layout, colours, height } = this;
    context.fillStyle = colours.panel;
    context.fillRect(0, 0, GUTTER, height);
    context.fillStyle = colours.muted;
    context.font = `11px ${this.family}`;
    context.fillText(this.view.axis === "time" ? "simulated time" : "order of events", 10, 13);
    context.save();
    context.beginPath();
    context.rect(0, RULER, this.width, height - RULER);
    context.clip();
    let written = -Infinity;
    for (const line of layout.lines) {
      const y = this.y(line);
      if (y + line.height < RULER || y > height) continue;
      const middle = y + line.height / 2 + 0.5;
      if (line.row === NONE) {
        context.fillStyle = colours.line;
        context.fillRect(0, y, line.height >= 14 ? this.width : GUTTER, 1);
        context.fillStyle = colours.muted;
        this.caret(11, middle, layout.isOpen[line.rank]);
        context.fillStyle = colours.ink;
        context.font = `600 ${line.height < 13 ? 10 : 12}px ${this.family}`;
        context.fillText(`rank ${line.rank}`, 22, middle);
        written = middle;
      } else if (middle - written >= 11 || line.height >= 12) {
        context.fillStyle = colours.muted;
        context.font = `${line.height < 12 ? 9.5 : 11}px ${this.family}`;
        context.fillText(rowName(model.rows[line.row]), 30, middle);
        written = middle;
      }
    }
    context.restore();
    context.fillStyle = colours.line;
    context.fillRect(GUTTER - 1, 0, 1, height);
    context.fillRect(0, RULER - 1, GUTTER, 1);
  }

  caret(x, y, open) {
    const { context } = this;
    context.beginPath();
    if (open) { context.moveTo(x - 4, y - 2.5); context.lineTo(x + 4, y - 2.5); context.lineTo(x, y + 3); }
    else { context.moveTo(x - 2.5, y - 4); context.lineTo(x - 2.5, y + 4); context.lineTo(x + 3, y); }
    context.fill();
  }

  scrollMark() {
    const seen = this.height - RULER;
    if (this.layout.height <= seen) return;
    this.context.fillStyle = this.colours.muted;
    this.context.globalAlpha = 0.5;
    const size = Math.max(24, (seen * seen) / this.layout.height);
    const room = this.layout.height - seen;
    this.context.fillRect(this.width - 5, RULER + (this.view.top / room) * (seen - size), 4, size);
    this.context.globalAlpha = 1;
  }

  // A closed rank: for each pixel how many of its SMs run programs and how many of those wait, and under it whether something is copied.
  summary(line, y) {
    const { colours, view, width } = this;
    if (this.layout.isOpen[line.rank]) return; // its rows say it
    const { lanes, programs, waits, copies, operators } = this.layout.summary(line.rank, view.axis);
    const room = line.height - 3, each = (view.to - view.from) / (width - GUTTER);
    const first = Math.max(GUTTER, Math.floor(this.x(0)));
    const count = Math.min(width, Math.ceil(this.x(model.length[view.axis]))) - first;
    if (count <= 0) return;
    const begin = view.from + (first - GUTTER) * each;
    const runs = programs.means(begin, each, count), rests = waits.means(begin, each, count);
    const high = (share) => (share * room < 0.2 ? 0 : Math.max(1, Math.min(1, share) * room));
    if (runs !== null) {
      this.columns(first, count, colours["kernel-0"], (i) => [y + 2 + room - high(runs[i] / lanes), high(runs[i] / lanes)]);
    }
    if (runs !== null && rests !== null) {
      this.columns(first, count, colours.wait, (i) => [y + 2 + room - high(runs[i] / lanes), high(Math.min(runs[i], rests[i]) / lanes)]);
    }
    for (const [density, colour, top] of [[copies, colours.copy, y + line.height - 3], [operators, colours.operator, y + 2]]) {
      const shares = density.means(begin, each, count);
      if (shares !== null) this.columns(first, count, colour, (i) => [top, shares[i] > 0.01 ? 2 : 0]);
    }
  }

  // Columns of one pixel, neighbours of one height together. column(i): [top, height].
  columns(first, count, colour, column) {
    const { context } = this;
    context.fillStyle = colour;
    let begun = 0, [top, height] = column(0);
    for (let i = 1; i <= count; i++) {
      const [nextTop, nextHeight] = i < count ? column(i) : [NaN, NaN];
      if (Math.abs(nextHeight - height) < 0.25 && Math.abs(nextTop - top) < 0.25) continue;
      if (height > 0) context.fillRect(first + begun, top, i - begun, height);
      [begun, top, height] = [i, nextTop, nextHeight];
    }
  }

  row(line, y) {
    const { view } = this;
    const { shown, ghosts } = this.layout.layers(line.row, view.axis);
    const height = line.height;
    this.spans(ghosts, (event, x, wide) => this.box(event, x, y + 1, wide, height - 2, 0.12));
    this.spans(shown[0], (event, x, wide) => {
      this.box(event, x, y + 1, wide, height - 2, 1);
      this.label(event, x, y, wide, height);
    });
    for (const [layer, inset] of [[shown[1], 1], [shown[2], height > 12 ? 2 : 1]]) {
      this.spans(layer, (event, x, wide) => {
        this.box(event, x, y + 1 + inset, wide, height - 2 - 2 * inset, 1);
        if (height > 12) this.label(event, x, y, wide, height);
      });
    }
    this.points(shown[3], y, height);
  }

  spans(layer, paint) {
    const { view, width } = this;
    const ends = model.ends[view.axis], total = layer.members.length;
    const pixel = (view.to - view.from) / (width - GUTTER);
    let i = search(layer.reach, view.from);
    while (i < total && layer.begins[i] < view.to) {
      const event = layer.members[i];
      if (ends[event] < view.from) { i++; continue; }
      const left = Math.max(GUTTER - 2, this.x(layer.begins[i])), right = Math.min(width + 2, this.x(ends[event]));
      paint(event, left, Math.max(1, right - left));
      if (right - left >= 1) { i++; continue; }
      // The rest of this pixel is painted; only the last one that begins in it may be longer.
      const next = search(layer.begins, view.from + (Math.floor(left - GUTTER) + 1) * pixel);
      i = Math.max(i + 1, next - 1);
    }
  }

  box(event, x, y, wide, high, alpha) {
    const { context } = this;
    context.globalAlpha = alpha;
    context.fillStyle = this.colourOf(event);
    context.fillRect(x, y, wide > 3 ? wide - 0.75 : wide, high);
    context.globalAlpha = 1;
  }

  label(event, x, y, wide, high) {
    if (wide < 30 || high < 14) return;
    const { context } = this;
    const left = Math.max(x, GUTTER) + 4, room = x + wide - left - 3;
    if (room < 22) return;
    const whole = kindOf(event) === "wait" && isStuck(event) ? `${titleOf(event)}: never ends` : titleOf(event);
    context.font = `10.5px ${this.family}`;
    context.fillStyle = this.colours.ink;
    context.fillText(this.shortened(whole, room), left, y + high / 2 + 0.5);
  }

  // As much of a text as there is room for.
  shortened(whole, room) {
    let wide = this.widths.get(whole);
    if (wide === undefined) this.widths.set(whole, wide = this.context.measureText(whole).width);
    if (wide <= room) return whole;
    const fitting = Math.floor((whole.length * (room - 8)) / wide);
    return fitting > 2 ? `${whole.slice(0, fitting)}\u2026` : "";
  }

  points(layer, y, high) {
    const { view, context, width } = this;
    const pixel = (view.to - view.from) / (width - GUTTER);
    for (let i = search(layer.begins, view.from); i < layer.members.length && layer.begins[i] <= view.to;) {
      const event = layer.members[i], x = this.x(layer.begins[i]);
      context.fillStyle = this.colourOf(event);
      context.fillRect(Math.round(x) - 1, y + 1, 2, high - 2);
      i = Math.max(i + 1, search(layer.begins, view.from + (Math.floor(x - GUTTER) + 1) * pixel));
    }
  }

  arrows(chosen) {
    const { members, ends } = this.layout.arrows(this.view.axis);
    const begin = search(ends, this.view.from), end = search(ends, this.view.to, true);
    this.hiddenArrows = end - begin > MOST_ARROWS ? end - begin : 0;
    this.context.strokeStyle = this.colours.arrow;
    this.context.lineWidth = 1;
    this.context.globalAlpha = end - begin > 150 ? 0.35 : 0.6;
    if (!this.hiddenArrows) for (let i = begin; i < end; i++) this.arrow(model.events.cause[members[i]], members[i], true);
    this.context.globalAlpha = 1;
    if (chosen === NONE) return;
    this.context.strokeStyle = this.colours.accent;
    this.context.lineWidth = 2;
    if (model.events.cause[chosen] !== NONE) this.arrow(model.events.cause[chosen], chosen, true);
    for (const effect of (model.effects.get(chosen) ?? []).slice(0, 64)) this.arrow(chosen, effect, true);
    this.context.lineWidth = 1;
  }

  arrow(from, to, head) {
    const { axis } = this.view;
    const tail = this.layout.lineFor(model.events.row[from]), tip = this.layout.lineFor(model.events.row[to]);
    if (tail === undefined || tip === undefined) return;
    const value = kindOf(to) === "wait" ? model.ends[axis][to] : model.begins[axis][to];
    this.curve(this.x(model.begins[axis][from]), this.y(tail) + tail.height / 2, this.x(value), this.y(tip) + tip.height / 2, head);
  }

  curve(x0, y0, x1, y1, head) {
    if ((y0 < RULER && y1 < RULER) || (y0 > this.height && y1 > this.height)) return;
    const { context } = this;
    const bend = Math.max(8, Math.min(60, Math.abs(x1 - x0) / 2));
    const over = Math.abs(y1 - y0) < 1 ? 11 : 0; // within a row, over what is written there
    context.beginPath();
    context.moveTo(x0, y0 - over);
    context.bezierCurveTo(x0 + bend, y0 - over, x1 - bend, y1 - over, x1, y1);
    if (head) {
      context.moveTo(x1 - 5, y1 - 3);
      context.lineTo(x1, y1);
      context.lineTo(x1 - 5, y1 + 3);
    }
    context.stroke();
  }

  // An arrow that leaves and comes from the left on its way up and the right on its way down, so that two of them do not lie upon each other.
  bow(from, to) {
    const { context } = this;
    const aside = from.y > to.y ? -1 : 1, far = aside * (26 + Math.abs(to.y - from.y) / 12);
    context.beginPath();
    context.moveTo(from.x + aside * 6, from.y);
    context.bezierCurveTo(from.x + far, from.y, to.x + far, to.y, to.x + aside * 7, to.y);
    context.moveTo(to.x + aside * 12, to.y - 4);
    context.lineTo(to.x + aside * 7, to.y);
    context.lineTo(to.x + aside * 12, to.y + 4);
    context.stroke();
  }

  // Where an event is on the canvas; null if its row is not shown.
  rectangle(event) {
    const line = this.layout.lineFor(model.events.row[event]);
    if (line === undefined) return null;
    const { axis } = this.view;
    const left = this.x(model.begins[axis][event]);
    const right = isPoint(event) ? left : this.x(model.ends[axis][event]);
    return { left, right, top: this.y(line), height: line.height };
  }

  outline(event) {
    const found = this.rectangle(event);
    if (found === null) return;
    this.context.strokeStyle = this.colours.accent;
    this.context.lineWidth = 2;
    const left = Math.max(GUTTER - 4, found.left - 1), right = Math.min(this.width + 4, Math.max(found.right, found.left + 3) + 1);
    this.context.strokeRect(left, found.top + 0.5, right - left, found.height - 1);
    this.context.lineWidth = 1;
  }

  spot(side) {
    const line = side.row === NONE ? undefined : this.layout.lineFor(side.row);
    if (line === undefined) return null;
    return { x: this.x(this.view.axis === "time" ? side.time : side.step), y: this.y(line) + line.height / 2 };
  }

  markers(chosen) {
    raw.findings.forEach((finding, number) => {
      const spots = finding.sides.map((side) => this.spot(side));
      if (number === chosen) this.connection(finding, spots);
      spots.slice(0, 300).forEach((spot) => { if (spot !== null) this.diamond(spot.x, spot.y, number === chosen ? 6 : 4.5); });
    });
  }

  connection(finding, spots) {
    const { context, colours } = this;
    context.strokeStyle = colours.alarm;
    context.lineWidth = 1.75;
    if (finding.kind === "race" && spots[0] !== null && spots[1] !== null) {
      context.setLineDash([5, 4]);
      context.beginPath();
      context.moveTo(spots[0].x, spots[0].y);
      context.lineTo(spots[1].x, spots[1].y);
      context.stroke();
      context.setLineDash([]);
    }
    finding.cycle.forEach((from, i) => {
      const one = spots[from], other = spots[finding.cycle[(i + 1) % finding.cycle.length]];
      if (one !== null && other !== null) this.bow(one, other);
    });
    context.lineWidth = 1;
  }

  diamond(x, y, size) {
    const { context, colours } = this;
    context.beginPath();
    context.moveTo(x, y - size);
    context.lineTo(x + size, y);
    context.lineTo(x, y + size);
    context.lineTo(x - size, y);
    context.closePath();
    context.fillStyle = colours.alarm;
    context.fill();
    context.strokeStyle = colours.panel;
    context.lineWidth = 1.25;
    context.stroke();
  }

  // What is at a point of the canvas: { line, event } where event is NONE on no event, or { finding, side }; null outside of all lines.
  at(x, y) {
    for (let number = raw.findings.length - 1; number >= 0; number--) {
      const side = raw.findings[number].sides.findIndex((one) => {
        const spot = this.spot(one);
        return spot !== null && Math.abs(spot.x - x) + Math.abs(spot.y - y) <= 7;
      });
      if (side >= 0 && x >= GUTTER) return { finding: number, side };
    }
    const line = y < RULER ? null : this.layout.lineAt(y - RULER + this.view.top);
    if (line === null) return null;
    if (line.row === NONE || x < GUTTER) return { line, event: NONE };
    return { line, event: this.eventAt(line.row, x) };
  }

  eventAt(row, x) {
    const { shown } = this.layout.layers(row, this.view.axis);
    const slack = (3 / (this.width - GUTTER)) * (this.view.to - this.view.from), value = this.valueAt(x);
    for (const layer of [shown[3], shown[2], shown[1], shown[0]]) {
      let best = NONE, nearest = slack;
      for (let i = search(layer.reach, value - slack); i < layer.members.length && layer.begins[i] <= value + slack; i++) {
        const event = layer.members[i];
        const end = isPoint(event) ? layer.begins[i] : model.ends[this.view.axis][event];
        const away = Math.max(0, layer.begins[i] - value, value - end);
        if (away < nearest || (away === 0 && nearest === 0)) [best, nearest] = [event, away];
      }
      if (best !== NONE) return best;
    }
    return NONE;
  }
}
