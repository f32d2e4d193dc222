// The timeline of a run. The events are in the page, or a server sends those of the window in view.
const timelines = new Set();
let findings = [], wantedMoment = null;
const LOADED_AROUND = 0.5;  // of the window in view, on each side

/** Loads, moves, searches: what a reader does with the canvas. */
class Timeline extends TimelineDetails {
  constructor(place) {
    super(place);
    this.event = place.querySelector('.event');
    this.said = place.querySelector('.state');
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
    for (const lane of data.lanes) {
      const group = this.group(lane);
      this.groups.set(group, this.groups.get(group) || lane.kind === 'gpu');
    }
    // Of several ranks, the GPUs are compared first: threads show only their outermost events, of many ranks nothing.
    data.lanes.forEach((lane, i) => this.open.set(i, this.groups.size === 1));
    if (this.groups.size > 2) this.folded = new Set(this.groups.keys());
    this.choices();
    this.legend();
    if (wantedMoment) this.goToMoment(wantedMoment);
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

  goToMoment(moment) { this.goTo(this.startOf(moment), moment.dur, moment.lane); }

  goTo(start, dur, lane) {
    // The lane of a GPU is there in a folded rank, too.
    if (this.events.lanes[lane].kind !== 'gpu') this.folded.delete(this.group(this.events.lanes[lane]));
    const margin = Math.max(dur * 0.6, 2000);
    this.view(start - margin, start + dur + margin);
    const laid = this.layout().lanes.find(l => l.i === lane);
    if (laid && (laid.y < this.lanes.scrollTop || laid.y + laid.height + RULER > this.lanes.scrollTop + this.lanes.clientHeight)) {
      this.lanes.scrollTop = Math.max(0, laid.y - 40);
    }
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
      this.goToMoment(found);
      await this.load();
      const start = this.startOf(found);
      const row = this.events.byLane[found.lane].rows.find(r => r.depth === found.depth);
      const i = row ? row.t.indexOf(start) : -1;
      this.choose(i >= 0 ? this.of(row, i) : null);
    } catch (error) { this.say(error.message); }
  }

  /** Find an event in the events of the page. */
  within(text, place) {
    const wanted = text.toLowerCase();
    const has = this.events.names.map((_, n) => this.events.has(n, wanted));
    const found = [];
    for (const row of this.events.rows) {
      row.n.forEach((n, i) => { if (has[n]) {
        found.push({ lane: row.lane, depth: row.depth, start: row.t[i] - this.events.lanes[row.lane].shift, dur: row.d[i] });
      } });
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
      ...group('findings', findings.map(f => option(`${f.number}. ${f.title}`, () => this.goToMoment(f)))),
      ...group('longest gaps', events.gaps.filter(([, start]) => this.given.source || start >= events.from && start < events.to).map(
        ([lane, start, dur]) => option([timeText(dur), this.group(events.lanes[lane]), events.lanes[lane].label].filter(Boolean).join(', '),
          () => this.goTo(start, dur, lane)))),
      ...group('steps', this.stepsOf(events.lanes[0].run).slice(0, 100).map(([number, start, dur]) => option(`step ${number}`,
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
      ArrowRight: () => this.pan(0.2), 0: () => this.whole(), Home: () => this.whole(), '.': () => this.neighbour(1),
      ',': () => this.neighbour(-1), Escape: () => this.choose(null),
      f: () => this.selected && this.goTo(this.selected.t, this.selected.d, this.selected.lane),
    };
    const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** Choose the next (or the previous) event of the row; without one chosen, the first in view. */
  neighbour(by) {
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
    if (finding) { this.goToMoment(finding); this.say(finding.title); return; }
    const down = y - RULER + this.lanes.scrollTop;
    const laid = y > RULER ? this.laid.find(l => down >= l.y && down < l.y + l.height) : null;
    if (laid && laid.head) {
      if (!this.folded.delete(laid.group)) this.folded.add(laid.group);
      this.draw();
    } else if (laid && x < this.gutter && laid.rows > 1) {
      this.open.set(laid.i, !this.open.get(laid.i));
      this.draw();
    } else this.choose(this.at(x, y));
  }
}

function startTimeline(place) { timelines.add(new Timeline(place)); }

function momentOf(link) {
  return { lane: Number(link.dataset.lane), start: Number(link.dataset.start), dur: Number(link.dataset.dur) };
}

/** Read where the findings of the page are, which a server sends apart. */
function markFindings() {
  findings = [...document.querySelectorAll('a.moment')].map(link => ({
    number: Number(link.closest('li').id.replace('finding-', '')),
    title: link.closest('li').querySelector('h3').firstChild.textContent.trim(),
    ...momentOf(link),
  }));
  for (const timeline of timelines) { timeline.choices(); timeline.draw(); }
}

addEventListener('click', event => {
  const link = event.target.closest && event.target.closest('a.moment');
  if (!link) return;
  wantedMoment = momentOf(link);
  for (const timeline of timelines) if (timeline.events) timeline.goToMoment(wantedMoment);
});

function redrawTimelines() { for (const timeline of timelines) timeline.drawNow(); }
