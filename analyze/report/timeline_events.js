// The events of a window of a timeline, as `analyze.report.timeline_window` returns them, and how times are written.
const KINDS = { op: 'operator', call: 'CUDA call', python: 'Python function', overhead: 'profiler', async: 'asynchronous range',
  range: 'range', module: 'module' };

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

/** Events of a window, as `analyze.report.timeline_window` returns them. */
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
