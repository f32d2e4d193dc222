// Draws lanes of GPUs, streams and threads on one clock, and finds what is at a point.
const ROW = 15, GPU_ROW = 24, SAMPLES_ROW = 48, RULER = 48, HEAD = 18, FLAG = 17;
const FONT = '11px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif';
const SAMPLED = { active: ['SM activity', '%', 'compute'], clock: ['SM clock', 'MHz', 'call'], power: ['power', 'W', 'idle'] };

/** The canvas of a timeline: the window from `from` to `to`, in ns since the first event. */
class TimelineCanvas {
  constructor(place) {
    this.place = place;
    this.given = JSON.parse(place.querySelector('script.given').textContent);
    this.lanes = place.querySelector('.lanes');
    this.canvas = place.querySelector('canvas');
    this.pen = this.canvas.getContext('2d');
    this.open = new Map();
    this.groups = new Map();  // names of ranks, and whether they have GPUs
    this.folded = new Set();
    this.selected = null;
    this.search = { text: '', at: 0, hits: 0 };
  }

  // --- layout

  get narrow() { return this.lanes.clientWidth < 560; }
  get gutter() { return this.narrow ? 78 : 128; }
  get plot() { return Math.max(50, this.lanes.clientWidth - this.gutter); }
  x(t) { return this.gutter + (t - this.from) / (this.to - this.from) * this.plot; }
  time(x) { return this.from + (x - this.gutter) / this.plot * (this.to - this.from); }

  /** Return the name of the rank of a lane, and of its run if there are two. */
  group(lane) {
    return this.events.lanes.some(other => other.rank !== lane.rank)
      ? (lane.run ? `rank ${lane.rank}, ${lane.run}` : `rank ${lane.rank}`) : lane.run;
  }

  /** Return the lanes from the top down: heads of ranks, and lanes with their height. */
  layout() {
    const lanes = [], several = this.groups.size > 1;
    let y = 0, last = null;
    this.events.lanes.forEach((lane, i) => {
      const group = this.group(lane);
      if (several && group !== last) { lanes.push({ y, height: HEAD, group, head: lane }); y += HEAD; }
      // Of a folded rank, what its GPUs do is left, or without any its first lane.
      if (this.folded.has(group) && (this.groups.get(group) ? lane.kind !== 'gpu' : group === last)) return;
      last = group;
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
    this.text((this.folded.has(laid.group) ? '▸ ' : '▾ ') + laid.group, 2, y + HEAD / 2 - 1, this.gutter - 4);
    if (laid.head.run === this.events.lanes[0].run) return;
    this.clipped(() => {
      for (const [number, start, dur] of this.stepsOf(laid.head.run)) this.drawStep(number, start, dur, y + 1);
    });
  }

  /** Draw within the plot. */
  clipped(draw) {
    this.pen.save();
    this.pen.beginPath();
    this.pen.rect(this.gutter, 0, this.plot, this.lanes.clientHeight);
    this.pen.clip();
    draw();
    this.pen.restore();
  }

  stepsOf(run) { return this.events.steps.filter(step => step[4] === run); }

  drawStep(number, start, dur, y) {
    const pen = this.pen, left = this.x(start), right = this.x(start + dur), at = Math.max(left, this.gutter) + 4;
    if (right < this.gutter || left > this.gutter + this.plot) return;
    pen.fillStyle = this.colour.accent;
    pen.globalAlpha = 0.14;
    pen.fillRect(left, y, right - left, 14);
    pen.globalAlpha = 1;
    pen.fillRect(left, y, 1, 14);
    if (right - at > 40) this.text(`step ${number}`, at, y + 7, right - at - 4);
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
    this.clipped(() => {
      for (const [number, start, dur] of this.stepsOf(this.events.lanes[0].run)) this.drawStep(number, start, dur, RULER - 15);
      this.drawStepStarts(top);
      this.drawFindings(top);
    });
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

  /** Draw a line where each step starts, through the lanes of its rank. */
  drawStepStarts(top) {
    const pen = this.pen;
    pen.fillStyle = this.colour.accent;
    pen.globalAlpha = 0.5;
    for (const [, start, dur, rank, run] of this.events.steps) {
      const own = this.laid.filter(l => l.lane && l.lane.rank === rank && l.lane.run === run), left = this.x(start);
      if (!own.length || this.x(start + dur) - left <= 30) continue;
      const begin = Math.max(0, own[0].y - top), end = own.at(-1).y + own.at(-1).height - top;
      pen.fillRect(left, RULER + begin, 1, Math.max(0, end - begin));
    }
    pen.globalAlpha = 1;
  }

  /** Draw a flag in the ruler for each finding, and a frame around its moment. */
  drawFindings(top) {
    const pen = this.pen;
    let taken = -Infinity;
    for (const finding of [...findings].sort((a, b) => this.startOf(a) - this.startOf(b))) {
      const start = this.startOf(finding), left = this.x(start), right = Math.max(left + 2, this.x(start + finding.dur));
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
  }

  /** Return the start of a moment on the clock of the timeline; that of a page is on the clock of its run. */
  startOf(moment) { return moment.start + this.events.lanes[moment.lane].shift; }

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

  // --- points

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
}
