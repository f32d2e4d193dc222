// Draws the timeline of a run: lanes of GPUs, streams and threads on one clock, in ns since the first event.
// The events are in the page, or a server sends those of the window in view.
const timelines = new Set();
let findings = [], wantedMoment = null;
const ROW = 15, GPU_ROW = 24, SAMPLES_ROW = 48, RULER = 48, HEAD = 18;
const FLAG = 17;
const KINDS = { op: 'operator', call: 'CUDA call', python: 'Python function', overhead: 'profiler', async: 'asynchronous range',
  range: 'range', module: 'module' };
const LOADED_AROUND = 0.5;  // of the window in view, on each side
const FONT = '11px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif';
const SAMPLED = { active: ['SM activity', '%', 'compute'], clock: ['SM clock', 'MHz', 'call'], power: ['power', 'W', 'idle'] };

/** Return a length of time as text. */
function timeText(ns) {
  const size = Math.abs(ns);
  const [unit, of] = size >= 1e9 ? ['s', 1e9] : size >= 1e6 ? ['ms', 1e6] : size >= 1e3 ? ['µs', 1e3] : ['ns', 1];
  return `${(ns / of).toLocaleString('en', { maximumFractionDigits: of === 1 ? 0 : 3 })} ${unit}`;
}

function restored(differences) {
  let at = 0;
  return differences.map(step => at += step);
}

/** Return the index of the first value above x, in ascending values. */
function above(values, x) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > x) high = middle; else low = middle + 1;
  }
  return low;
}

/** Events of a window, as `analyze.report.timeline` returns them. */
class TimelineEvents {
  constructor(data) {
    Object.assign(this, data);
    for (const lane of [...data.rows, ...data.states, ...data.samples]) lane.t = restored(lane.t);
    this.byLane = data.lanes.map(() => ({ rows: [] }));
    for (const row of data.rows) {
      // Ends that no earlier event exceeds: where a search for what overlaps may begin.
      let last = -Infinity;
      row.ends = row.t.map((t, i) => last = Math.max(last, t + row.d[i]));
      this.byLane[row.lane].rows.push(row);
    }
    for (const states of data.states) this.byLane[states.lane].states = states;
    for (const samples of data.samples) this.byLane[samples.lane].samples = samples;
  }

  kind(row, i) { return this.names[row.n[i]][0]; }
  name(row, i) { return this.names[row.n[i]][1]; }
  /** Return whether a name has a text, or is of this kernel family. */
  has(n, wanted) {
    const [kind, shown, exact] = this.names[n];
    return (exact || shown).toLowerCase().includes(wanted) || kind === wanted && !KINDS[kind];
  }
  count(row, i) { return row.count ? row.count[i] : 1; }

  /** Return the events of a lane that are open at a time, the outermost first. */
  around(lane, at) {
    const found = [];
    for (const row of [...this.byLane[lane].rows].sort((a, b) => a.depth - b.depth)) {
      const i = above(row.t, at) - 1;
      if (i >= 0 && row.t[i] + row.d[i] > at && this.count(row, i) === 1) found.push([row, i]);
    }
    return found;
  }
}

class Timeline {
  constructor(place) {
    this.place = place;
    this.given = JSON.parse(place.querySelector('script.given').textContent);
    this.lanes = place.querySelector('.lanes');
    this.canvas = place.querySelector('canvas');
    this.pen = this.canvas.getContext('2d');
    this.event = place.querySelector('.event');
    this.said = place.querySelector('.state');
    this.open = new Map();
    this.selected = null;
    this.search = { text: '', at: 0, hits: 0 };
    this.pointers = new Map();
    if (this.given.events) this.show(this.given.events);
    this.controls();
    new ResizeObserver(() => this.draw()).observe(this.lanes);
    if (!this.events) this.load();
  }

  // --- data

  async ask(parameters) {
    const address = new URL(this.given.source, location.href);
    for (const [name, value] of Object.entries(parameters)) address.searchParams.set(name, value);
    const answer = await fetch(address, { headers: { 'X-Part': 'yes' } });
    const text = await answer.text();
    if (!answer.ok) throw new Error(new DOMParser().parseFromString(text, 'text/html').body.textContent.trim());
    return JSON.parse(text);
  }

  show(data) {
    const first = !this.events;
    this.events = new TimelineEvents(data);
    if (this.selected && this.selected.row) {
      // Its row and place there are those of what was loaded before.
      const { lane, depth, t } = this.selected, row = this.events.byLane[lane].rows.find(r => r.depth === depth);
      const i = row ? row.t.indexOf(t) : -1;
      Object.assign(this.selected, { row: i < 0 ? null : row, i });
    }
    if (!first) return;
    [this.from, this.to] = [data.from, data.to];
    const ranks = new Set(data.lanes.map(lane => lane.rank));
    // Of several ranks, the GPUs are compared first: threads show only their outermost events.
    data.lanes.forEach((lane, i) => this.open.set(i, ranks.size === 1));
    this.choices();
    this.legend();
    if (wantedMoment) this.goTo(...wantedMoment);
  }

  legend() {
    const kinds = new Set(this.events.names.map(([kind]) => kind));
    for (const state of ['compute', 'communication', 'copies']) {
      if (this.events.states.some(s => s[state].some(share => share))) kinds.add(state);
    }
    if (kinds.has('copies')) ['memcpy', 'memset'].forEach(kind => kinds.delete(kind));
    const shown = Object.entries(this.given.colors).filter(([kind]) => kinds.has(kind));
    this.place.querySelector('.legend').replaceChildren(...shown.map(([kind, colour]) => {
      const entry = document.createElement('li'), mark = document.createElement('i');
      mark.style.background = colour;
      entry.append(mark, KINDS[kind] || kind.replaceAll('_', ' '));
      return entry;
    }));
  }

  /** Load what is in view, unless it is there in enough detail. One request at a time: the server would end others. */
  async load() {
    if (!this.given.source || this.loading) return;
    this.loading = true;
    try {
      while (this.lacking()) {
        const span = this.to - this.from, margin = this.events ? Math.ceil(span * LOADED_AROUND) : 0;
        const width = Math.ceil(this.plot * (1 + 2 * LOADED_AROUND));
        const window = this.events ? { from_ns: Math.floor(this.from) - margin, to_ns: Math.ceil(this.to) + margin } : {};
        this.say('loading …');
        this.show(await this.ask({ ...window, width }));
        this.say('');
        this.draw();
      }
    } catch (error) {
      this.say(error.message || 'no answer from the server');
    }
    this.loading = false;
  }

  lacking() {
    const has = this.events;
    if (!has) return true;
    const [first, last] = has.span;
    const covered = has.from <= Math.max(this.from, first) && has.to >= Math.min(this.to, last);
    // The cells of what was loaded, and the least that a window can have.
    const finest = (this.to - this.from) / this.plot;
    return !covered || has.cell > 2.5 * finest && has.to - has.from > 2.5 * (this.to - this.from);
  }

  // --- layout

  get narrow() { return this.lanes.clientWidth < 560; }
  get gutter() { return this.narrow ? 78 : 128; }
  get plot() { return Math.max(50, this.lanes.clientWidth - this.gutter); }
  x(t) { return this.gutter + (t - this.from) / (this.to - this.from) * this.plot; }
  time(x) { return this.from + (x - this.gutter) / this.plot * (this.to - this.from); }

  /** Return the lanes from the top down: heads of ranks, and lanes with their height. */
  layout() {
    const lanes = [];
    let y = 0, rank = null;
    const several = new Set(this.events.lanes.map(lane => lane.rank)).size > 1;
    this.events.lanes.forEach((lane, i) => {
      if (several && lane.rank !== rank) { lanes.push({ y, height: HEAD, rank: lane.rank }); y += HEAD; }
      rank = lane.rank;
      const rows = this.open.get(i) ? lane.rows : 1;
      const height = lane.kind === 'gpu' ? GPU_ROW : lane.kind === 'samples' ? SAMPLES_ROW : rows * ROW;
      lanes.push({ y, height, lane, i, rows });
      y += height + 3;
    });
    return { lanes, height: y };
  }

  // --- drawing

  theme() {
    const style = getComputedStyle(document.documentElement);
    return Object.fromEntries(['ink', 'soft', 'rule', 'paper', 'accent', 'warn'].map(
      name => [name, style.getPropertyValue('--' + name).trim()]));
  }

  draw() {
    if (this.drawing) return;
    this.drawing = requestAnimationFrame(() => { this.drawing = 0; this.drawNow(); });
  }

  drawNow() {
    if (!this.events || !this.lanes.clientWidth) return;
    const { lanes, height } = this.layout();
    this.laid = lanes;
    this.lanes.firstElementChild.style.height = `${height + RULER}px`;
    const wide = this.lanes.clientWidth, high = this.lanes.clientHeight, ratio = Math.min(3, devicePixelRatio || 1);
    if (this.canvas.width !== Math.round(wide * ratio) || this.canvas.height !== Math.round(high * ratio)) {
      this.canvas.width = Math.round(wide * ratio);
      this.canvas.height = Math.round(high * ratio);
      this.canvas.style.width = `${wide}px`;
      this.canvas.style.height = `${high}px`;
    }
    const pen = this.pen, colour = this.colour = this.theme(), top = this.lanes.scrollTop;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = FONT;
    pen.textBaseline = 'middle';
    pen.fillStyle = colour.paper;
    pen.fillRect(0, 0, wide, high);
    pen.save();
    pen.beginPath();
    pen.rect(0, RULER, wide, high - RULER);
    pen.clip();
    pen.fillStyle = colour.rule;
    pen.globalAlpha = 0.6;
    const step = this.distance;
    for (let t = Math.ceil(this.from / step) * step; t <= this.to; t += step) pen.fillRect(this.x(t), RULER, 1, high);
    pen.globalAlpha = 1;
    for (const laid of lanes) {
      const y = laid.y + RULER - top;
      if (y > high || y + laid.height < RULER) continue;
      if (laid.lane) this.drawLane(laid, y); else this.drawHead(laid, y, wide);
    }
    this.drawLaunch(top);
    pen.restore();
    this.drawRuler(high, wide, top);
    this.place.dataset.drawn = `${this.from} ${this.to}`;
  }

  /** Return the time between two ticks of the ruler. */
  get distance() {
    const rough = (this.to - this.from) / Math.max(2, this.plot / 110), power = 10 ** Math.floor(Math.log10(rough));
    return Math.max(1, power * [1, 2, 5, 10].find(m => m * power >= rough));
  }

  drawHead(laid, y, wide) {
    this.pen.fillStyle = this.colour.rule;
    this.pen.fillRect(0, y, wide, HEAD - 2);
    this.pen.fillStyle = this.colour.ink;
    this.pen.fillText(`rank ${laid.rank}`, 6, y + HEAD / 2 - 1);
  }

  drawLane(laid, y) {
    const { lane, i } = laid, pen = this.pen, held = this.events.byLane[i];
    const folds = lane.rows > 1, mark = folds ? (this.open.get(i) ? '▾ ' : '▸ ') : '';
    const label = mark + (this.narrow ? lane.label.replace(/^thread |^GPU \d+ (?=samples)/, '') : lane.label);
    pen.fillStyle = lane.kind === 'gpu' ? this.colour.ink : this.colour.soft;
    this.text(label, folds ? 2 : 6, y + Math.min(laid.height, ROW + 4) / 2, this.gutter - 8);
    pen.save();
    pen.beginPath();
    pen.rect(this.gutter, y, this.plot, laid.height);
    pen.clip();
    if (held.states) this.drawStates(held.states, y);
    if (held.samples) this.drawSamples(held.samples, y, laid.height);
    for (const row of held.rows) if (row.depth < laid.rows) this.drawRow(row, y + row.depth * ROW);
    pen.restore();
    pen.fillStyle = this.colour.rule;
    pen.fillRect(0, y + laid.height + 1, this.gutter + this.plot, 1);
  }

  drawRow(row, y) {
    const pen = this.pen, colours = this.given.colors, wanted = this.search.hits ? this.search.text.toLowerCase() : '';
    const names = this.events.names, first = this.gutter - 2, last = this.gutter + this.plot + 2;
    for (let i = above(row.ends, this.from); i < row.t.length && row.t[i] < this.to; i++) {
      const left = Math.max(first, this.x(row.t[i])), right = Math.min(last, this.x(row.t[i] + row.d[i]));
      const wide = Math.max(1, right - left - (right - left > 3 ? 0.5 : 0)), [kind, name] = names[row.n[i]];
      const found = wanted && this.events.has(row.n[i], wanted);
      const chosen = this.selected && this.selected.t === row.t[i] && this.selected.lane === row.lane
        && this.selected.depth === row.depth;
      pen.globalAlpha = wanted && !found ? 0.16 : wide < 3 ? 0.85 : 0.55;
      pen.fillStyle = colours[kind] || colours.other;
      if (row.count && row.count[i] > 1 && wide > 3) pen.globalAlpha *= 0.35 + 0.65 * Math.min(1, row.busy[i] / row.d[i]);
      pen.fillRect(left, y + 1, wide, ROW - 2);
      pen.globalAlpha = 1;
      if (wide >= 3 && this.events.count(row, i) === 1) pen.fillRect(left, y + 1, 1, ROW - 2);
      if (found || chosen) {
        pen.strokeStyle = chosen ? this.colour.ink : this.colour.warn;
        pen.lineWidth = chosen ? 2 : 1;
        pen.strokeRect(left + 0.5, y + 1.5, Math.max(1, wide - 1), ROW - 3);
      }
      if (wide > 26) {
        pen.fillStyle = wanted && !found ? this.colour.soft : this.colour.ink;
        this.text(this.events.count(row, i) > 1 ? `${row.count[i]} x ${name}` : name, left + 4, y + ROW / 2 + 0.5, wide - 6);
      }
    }
  }

  /** Draw how much of each piece of time a GPU computes, communicates and copies; gaps are marked. */
  drawStates(states, y) {
    const pen = this.pen, colours = this.given.colors, high = GPU_ROW - 3;
    const parts = [['compute', colours.compute], ['communication', colours.communication], ['copies', colours.copies]];
    for (let i = Math.max(0, above(states.t, this.from) - 1); i < states.t.length && states.t[i] < this.to; i++) {
      const left = this.x(states.t[i]), wide = Math.max(0.6, this.x(states.t[i] + states.d[i]) - left);
      let base = y + 1 + high;
      for (const [part, colour] of parts) {
        const share = states[part][i] / 100 * high;
        pen.fillStyle = colour;
        pen.fillRect(left, base - share, wide, share);
        base -= share;
      }
      if (base === y + 1 + high && wide > 2) {
        pen.globalAlpha = 0.16;
        pen.fillStyle = colours.waiting;
        pen.fillRect(left, y + 1, wide, high);
        pen.globalAlpha = 1;
        pen.fillStyle = this.colour.ink;
        if (wide > 60) this.text(`idle ${timeText(states.d[i])}`, Math.max(left, this.gutter) + 4, y + GPU_ROW / 2, wide - 6);
      }
    }
    pen.globalAlpha = 1;
    pen.fillStyle = pen.strokeStyle = this.colour.warn;
    pen.lineWidth = 1.5;
    for (const gap of this.events.gaps) {
      if (gap[0] !== states.lane) continue;
      const left = this.x(gap[1]), right = Math.max(left + 1, this.x(gap[1] + gap[2]));
      pen.fillRect(left, y + 1 + high, right - left, 2);
    }
  }

  drawSamples(samples, y, height) {
    const pen = this.pen, colours = this.given.colors;
    let label = 0;
    for (const [name, [title, unit, colour]] of Object.entries(SAMPLED)) {
      const most = name === 'active' ? 100 : Math.max(0, ...samples[name].map(v => v || 0));
      if (!most || samples[name].every(v => v === null)) continue;
      pen.strokeStyle = pen.fillStyle = colours[colour];
      pen.lineWidth = 1.3;
      pen.beginPath();
      let down = false;
      samples[name].forEach((value, i) => {
        if (value === null) return;
        const x = this.x(samples.t[i]), at = y + height - 2 - value / most * (height - 17);
        if (down) pen.lineTo(x, at); else pen.moveTo(x, at);
        down = true;
      });
      pen.stroke();
      const text = this.narrow ? title : `${title} to ${Math.round(most).toLocaleString('en')} ${unit}`;
      pen.fillStyle = colours[colour];
      pen.fillRect(this.gutter + 4 + label, y + 4, 8, 3);
      pen.fillStyle = this.colour.soft;
      pen.fillText(text, this.gutter + 16 + label, y + 6);
      label += pen.measureText(text).width + 26;
    }
  }

  drawRuler(high, wide, top) {
    const pen = this.pen, span = this.to - this.from;
    pen.fillStyle = this.colour.paper;
    pen.fillRect(0, 0, wide, RULER);
    pen.fillStyle = this.colour.soft;
    this.text(timeText(span), 6, 10, this.gutter - 8);
    const step = this.distance;
    for (let t = Math.ceil(this.from / step) * step; t <= this.to; t += step) {
      const x = this.x(t);
      pen.fillStyle = this.colour.rule;
      pen.fillRect(x, 14, 1, 4);
      pen.fillStyle = this.colour.soft;
      const text = this.tick(t, step), half = pen.measureText(text).width / 2;
      if (x - half > this.gutter - 4 && x + half < wide) pen.fillText(text, x - half, 8);
    }
    pen.save();
    pen.beginPath();
    pen.rect(this.gutter, 0, this.plot, high);
    pen.clip();
    let free = -Infinity;
    const own = this.events.steps.length ? this.laid.filter(l => l.lane && l.lane.rank === this.events.steps[0][3]) : [];
    for (const [number, start, dur] of this.events.steps) {
      const left = this.x(start), right = this.x(start + dur);
      if (right < this.gutter || left > wide) continue;
      pen.fillStyle = this.colour.accent;
      pen.globalAlpha = 0.14;
      pen.fillRect(left, RULER - 15, right - left, 14);
      pen.globalAlpha = 1;
      pen.fillRect(left, RULER - 15, 1, 14);
      pen.globalAlpha = 0.5;
      if (own.length && right - left > 30) {
        const begin = Math.max(0, own[0].y - top), end = own.at(-1).y + own.at(-1).height - top;
        pen.fillRect(left, RULER + begin, 1, Math.max(0, end - begin));
      }
      pen.globalAlpha = 1;
      const at = Math.max(left, this.gutter) + 4;
      if (right - at > 40 && at > free) this.text(`step ${number}`, at, RULER - 8, right - at - 4);
      free = at + 40;
    }
    let taken = -Infinity;
    for (const finding of [...findings].sort((a, b) => a.start - b.start)) {
      const left = this.x(finding.start), right = Math.max(left + 2, this.x(finding.start + finding.dur));
      const flag = finding.flag = Math.max(left, taken + FLAG);
      taken = flag;
      pen.fillStyle = this.colour.warn;
      pen.globalAlpha = 0.9;
      pen.fillRect(left, 31, right - left, 2);
      const on = this.laid && this.laid.find(l => l.i === finding.lane);
      if (on) {
        pen.strokeStyle = this.colour.warn;
        pen.lineWidth = 1.5;
        const y = on.y + RULER - top;
        if (y >= RULER - 2) pen.strokeRect(left, y + 0.5, right - left, on.height - 1);
      }
      pen.fillRect(flag, 18, FLAG - 2, 14);
      pen.globalAlpha = 1;
      pen.fillStyle = this.colour.paper;
      pen.fillText(finding.number, flag + (finding.number < 10 ? 4.5 : 1), 25.5);
    }
    pen.restore();
    pen.fillStyle = this.colour.rule;
    pen.fillRect(0, RULER - 1, wide, 1);
    pen.fillRect(this.gutter - 1, 0, 1, high);
    if (this.band) {
      pen.fillStyle = this.colour.accent;
      pen.globalAlpha = 0.2;
      pen.fillRect(Math.min(...this.band), 0, Math.abs(this.band[1] - this.band[0]), high);
      pen.globalAlpha = 1;
    }
  }

  /** Return the label of a tick, in the unit of the distance between ticks. */
  tick(t, step) {
    const [unit, of] = this.to >= 1e9 && step >= 1e6 ? ['s', 1e9] : step >= 1e4 ? ['ms', 1e6] : step >= 10 ? ['µs', 1e3] : ['ns', 1];
    const decimals = Math.max(0, Math.round(Math.log10(of) - Math.floor(Math.log10(step) + 1e-9)));
    return `${(t / of).toLocaleString('en', { maximumFractionDigits: decimals })} ${unit}`;
  }

  /** Draw a line from a launch call to its work. */
  drawLaunch(top) {
    const s = this.selected, launch = s && s.launch;
    if (!launch || launch.lane < 0) return;
    const from = this.laid.find(l => l.i === launch.lane), to = this.laid.find(l => l.i === s.lane);
    if (!from || !to) return;
    const pen = this.pen;
    pen.beginPath();
    pen.rect(this.gutter, 0, this.plot, this.lanes.clientHeight);
    pen.clip();
    pen.strokeStyle = this.colour.warn;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(this.x(launch.t), from.y + RULER - top + ROW / 2);
    pen.lineTo(this.x(s.t), to.y + RULER - top + ROW / 2);
    pen.stroke();
  }

  text(text, x, y, room) {
    const most = Math.floor(room / 5.6);
    if (most < 3) return;
    let shown = text.length > most + 2 ? text.slice(0, most - 1) + '…' : text;
    while (shown.length > 3 && this.pen.measureText(shown).width > room) shown = shown.slice(0, -2).replace(/…$/, '') + '…';
    if (this.pen.measureText(shown).width <= room) this.pen.fillText(shown, x, y);
  }

  say(text) { this.said.textContent = text; }

  // --- moving

  /** Show a window, at least 20 ns of it. */
  view(from, to) {
    const [first, last] = this.given.source ? this.events.span : [this.events.from, this.events.to];
    const span = Math.min(Math.max(to - from, 20), (last - first) * 1.1);
    const margin = span * 0.05;
    this.from = Math.min(Math.max(from, first - margin), Math.max(first - margin, last + margin - span));
    this.to = this.from + span;
    this.draw();
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.load(), 120);
  }

  zoom(factor, x = this.gutter + this.plot / 2) {
    const at = this.time(x);
    this.view(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  pan(share) {
    const by = share * (this.to - this.from);
    this.view(this.from + by, this.to + by);
  }

  whole() { this.view(...(this.given.source ? this.events.span : [this.events.from, this.events.to])); }

  goTo(start, dur, lane) {
    const margin = Math.max(dur * 0.6, 2000);
    this.view(start - margin, start + dur + margin);
    const laid = this.layout().lanes.find(l => l.i === lane);
    if (laid && (laid.y < this.lanes.scrollTop || laid.y + laid.height + RULER > this.lanes.scrollTop + this.lanes.clientHeight)) {
      this.lanes.scrollTop = Math.max(0, laid.y - 40);
    }
  }

  // --- events

  /** Return the event at a point of the canvas. */
  at(x, y) {
    if (!this.laid || y < RULER || x < this.gutter) return null;
    const down = y - RULER + this.lanes.scrollTop;
    const laid = this.laid.find(l => l.lane && down >= l.y && down < l.y + l.height);
    if (!laid) return null;
    const held = this.events.byLane[laid.i], t = this.time(x), near = 2 * (this.to - this.from) / this.plot;
    if (held.states) {
      const i = above(held.states.t, t) - 1;
      return i >= 0 && held.states.t[i] + held.states.d[i] >= t
        ? { lane: laid.i, states: held.states, i, t: held.states.t[i], d: held.states.d[i], depth: 0 } : null;
    }
    if (held.samples) {
      const i = above(held.samples.t, t) - 1;
      return i >= 0 ? { lane: laid.i, samples: held.samples, i, t: held.samples.t[i], d: 0, depth: 0 } : null;
    }
    const depth = Math.floor((down - laid.y) / ROW), row = held.rows.find(r => r.depth === depth);
    if (!row) return null;
    for (let i = Math.min(row.t.length - 1, above(row.t, t + near) - 1); i >= 0 && row.ends[i] >= t - near; i--) {
      if (row.t[i] + row.d[i] >= t - near) return this.of(row, i);
    }
    return null;
  }

  of(row, i) { return { lane: row.lane, row, i, t: row.t[i], d: row.d[i], depth: row.depth }; }

  /** Return what an event is, in a line. */
  line(event) {
    const lane = this.events.lanes[event.lane], where = `rank ${lane.rank}, ${lane.label}`;
    if (event.states) {
      const { states, i } = event, parts = ['compute', 'communication', 'copies'].filter(p => states[p][i]);
      const shares = parts.map(p => `${p} ${states[p][i]} %`).join(', ') || 'idle';
      return [shares, `${timeText(event.d)} at ${timeText(event.t)}`, where];
    }
    if (event.samples) {
      const shown = Object.entries(SAMPLED).filter(([name]) => event.samples[name][event.i] !== null);
      return [shown.map(([name, [title, unit]]) => `${title} ${event.samples[name][event.i].toLocaleString('en')} ${unit}`).join(', '),
        `sample at ${timeText(event.t)}`, where];
    }
    const { row, i } = event, count = this.events.count(row, i);
    const name = this.events.name(row, i);
    return count > 1
      ? [`${count.toLocaleString('en')} events, the longest: ${name}`,
        `${timeText(row.busy[i])} within ${timeText(event.d)} at ${timeText(event.t)}`, where]
      : [name, `${timeText(event.d)} at ${timeText(event.t)}`, where];
  }

  async choose(event) {
    this.selected = event;
    this.draw();
    if (!event) { this.event.replaceChildren(); return; }
    const [what, when, where] = this.line(event), list = document.createElement('dl');
    const add = (term, text, link) => {
      const dt = document.createElement('dt'), dd = document.createElement('dd'), bdi = document.createElement('bdi');
      dt.textContent = term;
      bdi.textContent = text;
      dd.append(bdi, ...(link ? [' ', ...link] : []));
      list.append(dt, dd);
    };
    const { row, i } = event, events = this.events;
    const one = row && events.count(row, i) === 1, kind = row && events.kind(row, i);
    const lane = events.lanes[event.lane];
    const term = event.states ? 'GPU' : event.samples ? 'samples' : one ? (lane.kind === 'stream' ? 'kernel' : kind) : 'events';
    const rowOf = one ? this.rowOf(lane, kind, this.exact(row.n[i])) : event.states ? this.row('gaps') : null;
    add(kind === 'memcpy' || kind === 'memset' ? kind : term, what, rowOf);
    add('time', when);
    add('place', where);
    this.event.replaceChildren(list);
    if (!one) return;
    if (row.op && row.op[i] >= 0) add('operator', events.names[row.op[i]][1], this.row('ops', 'name', this.exact(row.op[i])));
    if (row.before && row.before[i] !== null) {
      const call = row.t[i] - row.before[i];
      event.launch = { t: call, lane: row.thread[i] };
      const api = row.api[i] >= 0 ? events.names[row.api[i]][1] : 'a call';
      const thread = row.thread[i] >= 0 ? ` on ${events.lanes[row.thread[i]].label}` : '';
      add('launch', `${api}${thread}, ${timeText(row.before[i])} before, for ${timeText(row.length[i])}`,
        row.api[i] >= 0 ? this.row('cuda-api', 'name', this.exact(row.api[i])) : null);
      this.draw();
    }
    const [thread, at] = event.launch ? [event.launch.lane, event.launch.t] : lane.kind === 'thread' ? [event.lane, event.t] : [-1, 0];
    if (thread < 0) return;
    const outer = await this.stack(thread, at);
    if (this.selected !== event) return;
    const module = outer.filter(([kind]) => kind === 'module').pop();
    if (module) {
      const name = (module[2] || module[1]).replace('nn.Module: ', '');
      add('module', name, this.row('kernel-share', 'module', name, { group: 'module' }));
    }
    const path = outer.map(([, name]) => name);
    if (path.length > 1) add('in', path.join(' › '));
  }

  /** Return the names of what is open on a thread at a time. */
  async stack(lane, at) {
    let events = this.events;
    if (this.given.source && (events.cell || at < events.from || at >= events.to)) {
      const data = await this.ask({ from_ns: at, to_ns: at + 1 }).catch(() => null);
      if (!data) return [];
      events = new TimelineEvents(data);
    }
    return events.around(lane, at).map(([row, i]) => events.names[row.n[i]]);
  }

  exact(n) { return this.events.names[n][2] || this.events.names[n][1]; }

  /** Return links to the row that counts an event; null for a fill of memory, which no query counts by name. */
  rowOf(lane, kind, name) {
    if (kind === 'memset') return null;
    if (kind === 'memcpy') return this.row('copies', 'kind', name.split(' ')[1]);
    return this.row(lane.kind === 'stream' ? 'kernel-share' : kind === 'call' ? 'cuda-api' : 'ops', 'name', name);
  }

  /** Return links to the row of a query: in this page, on the server, or the command. */
  row(query, column = '', value = '', params = {}) {
    const parts = [];
    if (this.given.source) {
      const link = document.createElement('a'), pairs = new URL(this.given.source, location.href).searchParams;
      for (const [name, text] of Object.entries(params)) pairs.set(name, text);
      if (column) pairs.set('is.' + column, value);
      link.href = `/query/${query}?${pairs}`;
      link.textContent = query;
      link.className = 'more';
      if (link.href.length < 6000) parts.push(link);
      return parts;
    }
    const found = this.found(query, column, value);
    if (found) {
      const link = document.createElement('button');
      link.type = 'button';
      link.className = 'to-row';
      link.textContent = 'row in ' + query;
      link.addEventListener('click', () => {
        for (let inside = found.closest('details'); inside; inside = inside.parentElement.closest('details')) inside.open = true;
        found.scrollIntoView({ block: 'center' });
        found.classList.add('led');
        found.tabIndex = -1;
        found.focus({ preventScroll: true });
      });
      parts.push(link);
    }
    const command = this.given.commands[query];
    if (command && /^[\x20-\x7e]*$/.test(value)) {
      const copied = document.createElement('button');
      copied.type = 'button';
      copied.className = 'to-row';
      copied.textContent = 'copy the command';
      const options = Object.entries(params).map(([name, text]) => ` -p ${name}=${text}`).join('');
      const filter = `${column} = '${value.replaceAll("'", "''")}'`;
      const whole = command + options + (column ? ` --filter '${filter.replaceAll("'", "'\\''")}'` : '');
      copied.title = whole;
      copied.addEventListener('click', () => copy(whole, copied));
      parts.push(copied);
    }
    return parts;
  }

  /** Return the row of a table of this page. */
  found(query, column, value) {
    if (!column) return null;
    for (const article of document.querySelectorAll('article[data-query]')) {
      const table = article.dataset.query === query && article.querySelector('details.table table');
      const at = table ? [...table.tHead.rows[0].cells].findIndex(head => head.dataset.name === column) : -1;
      const row = at < 0 ? null : [...table.tBodies[0].rows].find(r => r.cells[at].textContent === value);
      if (row) return row;
    }
    return null;
  }

  // --- search

  /** Show the next (or the previous) event whose name has the text. */
  async find(by) {
    const text = this.place.querySelector('input[type=search]').value.trim(), search = this.search;
    if (text !== search.text) this.search = { text, at: 0, hits: 0 };
    if (!text) { this.say(''); this.draw(); return; }
    const next = this.search, place = next.hits ? (next.at - 1 + by + next.hits) % next.hits + 1 : 1;
    try {
      const found = this.given.source ? await this.ask({ find: text, place }) : this.within(text, place);
      if (this.search !== next) return;
      Object.assign(next, { at: place, hits: found.hits });
      if (!found.hits) { this.say('not found'); this.draw(); return; }
      this.say(`${place.toLocaleString('en')} of ${found.hits.toLocaleString('en')}`);
      this.open.set(found.lane, true);
      this.goTo(found.start, found.dur, found.lane);
      await this.load();
      const row = this.events.byLane[found.lane].rows.find(r => r.depth === found.depth);
      const i = row ? row.t.indexOf(found.start) : -1;
      this.choose(i >= 0 ? this.of(row, i) : null);
    } catch (error) { this.say(error.message); }
  }

  /** Find an event in the events of the page. */
  within(text, place) {
    const wanted = text.toLowerCase();
    const has = this.events.names.map((_, n) => this.events.has(n, wanted));
    const found = [];
    for (const row of this.events.rows) {
      row.n.forEach((n, i) => { if (has[n]) found.push({ lane: row.lane, depth: row.depth, start: row.t[i], dur: row.d[i] }); });
    }
    found.sort((a, b) => a.start - b.start || b.dur - a.dur);
    return { hits: found.length, ...found[place - 1] };
  }

  // --- controls

  choices() {
    const list = this.place.querySelector('select');
    const option = (text, go) => { const o = new Option(text); o.go = go; return o; };
    const group = (label, options) => {
      const g = document.createElement('optgroup');
      g.label = label;
      g.append(...options);
      return options.length ? [g] : [];
    };
    const { events } = this;
    if (!events) return;
    list.replaceChildren(option('go to …'),
      option(this.given.source || events.from <= events.span[0] ? 'the whole run' : 'all that is in this file', () => this.whole()),
      ...group('findings', findings.map(f => option(`${f.number}. ${f.title}`, () => this.goTo(f.start, f.dur, f.lane)))),
      ...group('longest gaps', events.gaps.filter(([, start]) => this.given.source || start >= events.from && start < events.to).map(
        ([lane, start, dur]) => option(`${timeText(dur)}, rank ${events.lanes[lane].rank} ${events.lanes[lane].label}`,
          () => this.goTo(start, dur, lane)))),
      ...group('steps', events.steps.slice(0, 100).map(([number, start, dur]) => option(`step ${number}`,
        () => this.view(start - dur * 0.02, start + dur * 1.02)))));
  }

  controls() {
    const { place, canvas, lanes } = this;
    const on = (name, act) => place.querySelector(`[data-do=${name}]`).addEventListener('click', act);
    on('in', () => this.zoom(0.5));
    on('out', () => this.zoom(2));
    on('whole', () => this.whole());
    on('next', () => this.find(1));
    on('previous', () => this.find(-1));
    place.querySelector('input[type=search]').addEventListener('keydown', event => {
      if (event.key === 'Enter') { event.preventDefault(); this.find(event.shiftKey ? -1 : 1); }
    });
    place.querySelector('input[type=search]').addEventListener('search', () => this.find(1));
    place.querySelector('select').addEventListener('change', event => {
      const go = event.target.selectedOptions[0].go;
      event.target.selectedIndex = 0;
      if (go) go();
    });
    lanes.addEventListener('scroll', () => this.draw(), { passive: true });
    lanes.addEventListener('keydown', event => this.key(event));
    lanes.addEventListener('wheel', event => {
      const x = event.clientX - canvas.getBoundingClientRect().left;
      if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 100), x);
      else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan((event.deltaX || event.deltaY) / this.plot);
      else return;
      event.preventDefault();
    }, { passive: false });
    canvas.addEventListener('pointerdown', event => this.down(event));
    canvas.addEventListener('pointermove', event => this.move(event));
    for (const end of ['pointerup', 'pointercancel']) canvas.addEventListener(end, event => this.up(event));
    canvas.addEventListener('pointerleave', () => { tip.hidden = true; });
    canvas.addEventListener('dblclick', event => {
      const found = this.at(...this.point(event));
      if (found) this.goTo(found.t, found.d, found.lane);
    });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = {
      w: () => this.zoom(0.6), s: () => this.zoom(1 / 0.6), '+': () => this.zoom(0.6), '=': () => this.zoom(0.6),
      '-': () => this.zoom(1 / 0.6), a: () => this.pan(-0.2), d: () => this.pan(0.2), ArrowLeft: () => this.pan(-0.2),
      ArrowRight: () => this.pan(0.2), 0: () => this.whole(), Home: () => this.whole(), '.': () => this.beside(1),
      ',': () => this.beside(-1), Escape: () => this.choose(null),
      f: () => this.selected && this.goTo(this.selected.t, this.selected.d, this.selected.lane),
    };
    const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** Choose the next (or the previous) event of the row; without one chosen, the first in view. */
  beside(by) {
    const chosen = this.selected && this.selected.row;
    const row = chosen || this.events.rows.find(r => r.t.some(t => t >= this.from && t < this.to));
    if (!row) return;
    const i = chosen ? above(row.t, this.selected.t) - 1 + by : above(row.t, this.from - 1);
    if (i < 0 || i >= row.t.length) return;
    this.choose(this.of(row, i));
    const half = (this.to - this.from) / 2;
    if (row.t[i] < this.from || row.t[i] + row.d[i] > this.to) this.view(row.t[i] - half, row.t[i] + half);
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  down(event) {
    if (event.button) return;
    this.pointers.set(event.pointerId, this.point(event));
    try { this.canvas.setPointerCapture(event.pointerId); } catch { /* the pointer is gone */ }
    const [x, y] = this.point(event);
    this.grip = { x, y, from: this.from, to: this.to, top: this.lanes.scrollTop, moved: false };
    if (y < RULER && x > this.gutter && this.pointers.size === 1) this.band = [x, x];
    if (this.pointers.size === 2) {
      const [one, two] = [...this.pointers.values()].map(p => p[0]);
      this.pinch = { one: this.time(Math.min(one, two)), two: this.time(Math.max(one, two)) };
      this.band = null;
    }
  }

  move(event) {
    const [x, y] = this.point(event);
    if (!this.pointers.has(event.pointerId)) {
      if (event.pointerType === 'mouse') {
        const found = this.at(x, y), finding = this.marked(x, y);
        showTip(null, event, null, finding ? finding.title : found ? this.line(found).join('\n') : '');
        this.canvas.style.cursor = found ? 'pointer' : y < RULER ? 'crosshair' : 'grab';
      }
      return;
    }
    this.pointers.set(event.pointerId, [x, y]);
    const grip = this.grip;
    if (this.pointers.size === 2 && this.pinch) {
      const [left, right] = [...this.pointers.values()].map(p => p[0]).sort((a, b) => a - b);
      const scale = (this.pinch.two - this.pinch.one) / Math.max(20, right - left);
      grip.moved = true;
      this.view(this.pinch.one - (left - this.gutter) * scale, this.pinch.one + (this.plot - left + this.gutter) * scale);
      return;
    }
    if (Math.abs(x - grip.x) + Math.abs(y - grip.y) > 4) grip.moved = true;
    if (!grip.moved) return;
    tip.hidden = true;
    if (this.band) { this.band[1] = Math.max(this.gutter, x); this.draw(); return; }
    const by = (x - grip.x) / this.plot * (grip.to - grip.from);
    this.view(grip.from - by, grip.to - by);
    if (event.pointerType === 'mouse') this.lanes.scrollTop = grip.top - (y - grip.y);
  }

  up(event) {
    if (!this.pointers.delete(event.pointerId)) return;
    this.pinch = null;
    const { band, grip } = this;
    this.band = null;
    if (band && grip.moved && Math.abs(band[1] - band[0]) > 4) {
      this.view(...band.map(x => this.time(x)).sort((a, b) => a - b));
    } else if (!grip.moved && event.type === 'pointerup') {
      this.press(...this.point(event));
    } else this.draw();
  }

  /** Return the finding whose mark in the ruler is at a point. */
  marked(x, y) {
    return y < RULER && x > this.gutter ? findings.find(f => x >= f.flag && x < f.flag + FLAG) : undefined;
  }

  press(x, y) {
    const finding = this.marked(x, y);
    if (finding) { this.goTo(finding.start, finding.dur, finding.lane); this.say(finding.title); return; }
    if (x < this.gutter && y > RULER) {
      const down = y - RULER + this.lanes.scrollTop;
      const laid = this.laid.find(l => l.lane && l.lane.rows > 1 && down >= l.y && down < l.y + l.height);
      if (laid) { this.open.set(laid.i, !this.open.get(laid.i)); this.draw(); return; }
    }
    this.choose(this.at(x, y));
  }
}

function startTimeline(place) { timelines.add(new Timeline(place)); }

/** Read where the findings of the page are, which a server sends apart. */
function markFindings() {
  findings = [...document.querySelectorAll('a.moment')].map(link => ({
    number: Number(link.closest('li').id.replace('finding-', '')),
    title: link.closest('li').querySelector('h3').firstChild.textContent.trim(),
    lane: Number(link.dataset.lane), start: Number(link.dataset.start), dur: Number(link.dataset.dur),
  }));
  for (const timeline of timelines) { timeline.choices(); timeline.draw(); }
}

addEventListener('click', event => {
  const link = event.target.closest && event.target.closest('a.moment');
  if (!link) return;
  wantedMoment = [Number(link.dataset.start), Number(link.dataset.dur), Number(link.dataset.lane)];
  for (const timeline of timelines) if (timeline.events) timeline.goTo(...wantedMoment);
});

function redrawTimelines() { for (const timeline of timelines) timeline.drawNow(); }
