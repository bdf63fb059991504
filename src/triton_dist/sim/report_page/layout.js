// Which lines the time line has: one for each rank, and under an open rank one for each of its rows. And what each line holds, sorted.

const RULER = 26, GUTTER = 118;
const LAYERS = { program: 0, launch: 0, copy: 0, operator: 0, collective: 0, stream: 0, put: 0, get: 0, "host wait": 0,
  barrier: 1, wait: 2, signal: 3, submit: 3 };

// Sorted begins of the events of one layer, with the greatest end up to each: where to begin to paint is a binary search in it.
class Layer {
  constructor(members, axis) {
    const begins = model.begins[axis], ends = model.ends[axis];
    this.members = Int32Array.from(members).sort((a, b) => begins[a] - begins[b] || a - b);
    this.begins = Float64Array.from(this.members, (event) => begins[event]);
    this.reach = new Float64Array(members.length);
    let furthest = -Infinity;
    this.members.forEach((event, i) => { this.reach[i] = furthest = Math.max(furthest, ends[event]); });
  }
}

// How many of some spans hold at a time, as an integral over time: the mean over an interval costs four binary searches.
class Density {
  constructor(members, axis) {
    const sums = (values) => {
      const sorted = Float64Array.from(values).sort();
      const total = new Float64Array(sorted.length + 1);
      sorted.forEach((value, i) => { total[i + 1] = total[i] + value; });
      return [sorted, total];
    };
    [this.begins, this.beginSums] = sums(members.map((event) => model.begins[axis][event]));
    [this.ends, this.endSums] = sums(members.map((event) => model.ends[axis][event]));
  }

  until(time) {
    const begun = search(this.begins, time), ended = search(this.ends, time);
    return begun * time - this.beginSums[begun] - (ended * time - this.endSums[ended]);
  }

  // The means over ``count`` intervals of a length, one after the other; null if there is nothing at all.
  means(from, length, count) {
    if (!this.begins.length) return null;
    const found = new Float64Array(count);
    let before = this.until(from);
    for (let i = 0; i < count; i++) {
      const after = this.until(from + (i + 1) * length);
      found[i] = (after - before) / length;
      before = after;
    }
    return found;
  }
}

class Layout {
  constructor() {
    this.byRow = model.rows.map(() => [[], [], [], []]);
    for (let i = 0; i < model.count; i++) this.byRow[model.events.row[i]][LAYERS[kindOf(i)]].push(i);
    this.rowsOf = Array.from({ length: raw.worldSize }, () => []);
    model.rows.forEach((row, number) => this.rowsOf[row.rank].push(number));
    this.isOpen = new Array(raw.worldSize).fill(model.rows.length <= 64);
    this.mask = null;
    this.cache = new Map();
    this.lines = [];
    this.height = 0;
  }

  // mask: for each event whether the filter lets it pass; null without a filter.
  filter(mask) {
    this.mask = mask;
    this.cache.clear();
  }

  shows(rowNumber) {
    return this.mask === null || this.byRow[rowNumber].some((layer) => layer.some((event) => this.mask[event]));
  }

  // Place the lines for a canvas of some height: where all ranks are closed they share it.
  arrange(height) {
    const ranks = [];
    for (let rank = 0; rank < raw.worldSize; rank++) {
      const rows = this.rowsOf[rank].filter((row) => this.shows(row));
      if (rows.length || this.mask === null) ranks.push([rank, rows]);
    }
    const closed = ranks.every(([rank]) => !this.isOpen[rank]);
    const share = Math.floor((height - RULER) / Math.max(1, ranks.length));
    const rankHeight = closed ? Math.max(11, Math.min(56, share)) : 20;
    const count = ranks.reduce((sum, [, rows]) => sum + rows.length, 0);
    const usual = Math.max(19, Math.min(32, Math.floor((height - RULER - 25 * ranks.length) / Math.max(1, count))));
    this.lines = [];
    let y = 0;
    for (const [rank, rows] of ranks) {
      this.lines.push({ rank, row: NONE, y, height: rankHeight });
      y += rankHeight;
      if (!this.isOpen[rank]) continue;
      const programs = rows.filter((row) => model.rows[row].kind === "sm").length;
      for (const row of rows) {
        const kind = model.rows[row].kind;
        const size = kind === "puts" ? 10 : kind === "sm" && programs > 16 ? (programs <= 48 ? 11 : 7) : usual;
        this.lines.push({ rank, row, y, height: size });
        y += size;
      }
      y += 5;
    }
    this.height = y;
    this.lineOfRow = new Map();
    this.lineOfRank = new Map();
    for (const line of this.lines) {
      if (line.row === NONE) this.lineOfRank.set(line.rank, line);
      else this.lineOfRow.set(line.row, line);
    }
  }

  // The line that shows a row: its own, or that of its rank while it is closed.
  lineFor(row) { return this.lineOfRow.get(row) ?? this.lineOfRank.get(model.rows[row].rank); }

  lineAt(y) {
    const at = search(this.lines.map((line) => line.y), y, true) - 1;
    const line = this.lines[at];
    return line !== undefined && y < line.y + line.height ? line : null;
  }

  // The layers of a row, and of its first one what the filter holds back.
  layers(row, axis) {
    return this.cached(`row ${row} ${axis}`, () => {
      const passes = (event) => this.mask === null || this.mask[event];
      const held = this.mask === null ? [] : this.byRow[row][0].filter((event) => !this.mask[event]);
      return { shown: this.byRow[row].map((members) => new Layer(members.filter(passes), axis)), ghosts: new Layer(held, axis) };
    });
  }

  // What a closed rank shows: programs that run and that wait, and copies.
  summary(rank, axis) {
    return this.cached(`rank ${rank} ${axis}`, () => {
      const passes = (event) => this.mask === null || this.mask[event];
      const rows = this.rowsOf[rank];
      const pick = (layer, wanted) =>
        rows.flatMap((row) => (wanted(model.rows[row].kind) ? this.byRow[row][layer].filter(passes) : []));
      const onStream = (kinds) => pick(0, (kind) => kind === "stream").filter((event) => kinds.includes(kindOf(event)));
      return {
        lanes: Math.max(1, rows.filter((row) => model.rows[row].kind === "sm").length),
        programs: new Density(pick(0, (kind) => kind === "sm"), axis),
        waits: new Density(pick(2, (kind) => kind === "sm"), axis),
        copies: new Density(onStream(["copy", "collective"]).concat(pick(0, (kind) => kind === "puts")), axis),
        operators: new Density(onStream(["operator"]), axis),
      };
    });
  }

  // Signals that ended waits, by where the wait ends.
  arrows(axis) {
    return this.cached(`arrows ${axis}`, () => {
      const wait = model.kindNumber.wait;
      const heads = [];
      for (let i = 0; i < model.count; i++) {
        if (model.events.kind[i] === wait && model.events.cause[i] !== NONE && (this.mask === null || this.mask[i])) heads.push(i);
      }
      const ends = model.ends[axis];
      const members = Int32Array.from(heads).sort((a, b) => ends[a] - ends[b]);
      return { members, ends: Float64Array.from(members, (event) => ends[event]) };
    });
  }

  cached(key, make) {
    if (!this.cache.has(key)) this.cache.set(key, make());
    return this.cache.get(key);
  }
}
