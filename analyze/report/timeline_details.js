// Says what the chosen event of a timeline is, and leads to the rows that count it.

class TimelineDetails extends TimelineCanvas {
  /** Return what an event is, in a line. */
  line(event) {
    const lane = this.events.lanes[event.lane];
    const where = `${lane.run ? lane.run + ', ' : ''}rank ${lane.rank}, ${lane.label}`, at = timeText(event.t - lane.shift);
    if (event.states) {
      const { states, i } = event, parts = ['compute', 'communication', 'copies'].filter(p => states[p][i]);
      const shares = parts.map(p => `${p} ${states[p][i]} %`).join(', ') || 'idle';
      return [shares, `${timeText(event.d)} at ${at}`, where];
    }
    if (event.samples) {
      const shown = Object.entries(SAMPLED).filter(([name]) => event.samples[name][event.i] !== null);
      return [shown.map(([name, [title, unit]]) => `${title} ${event.samples[name][event.i].toLocaleString('en')} ${unit}`).join(', '),
        `sample at ${at}`, where];
    }
    const { row, i } = event, count = this.events.count(row, i);
    const name = this.events.name(row, i);
    return count > 1
      ? [`${count.toLocaleString('en')} events, the longest: ${name}`,
        `${timeText(row.busy[i])} within ${timeText(event.d)} at ${at}`, where]
      : [name, `${timeText(event.d)} at ${at}`, where];
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
    const rowOf = one ? this.rowOf(lane, kind, this.exact(row.n[i])) : event.states ? this.row(lane, 'gaps') : null;
    add(kind === 'memcpy' || kind === 'memset' ? kind : term, what, rowOf);
    add('time', when);
    add('place', where);
    this.event.replaceChildren(list);
    if (!one) return;
    if (row.op && row.op[i] >= 0) add('operator', events.names[row.op[i]][1], this.row(lane, 'ops', 'name', this.exact(row.op[i])));
    if (row.before && row.before[i] !== null) {
      const call = row.t[i] - row.before[i];
      event.launch = { t: call, lane: row.thread[i] };
      const api = row.api[i] >= 0 ? events.names[row.api[i]][1] : 'a call';
      const thread = row.thread[i] >= 0 ? ` on ${events.lanes[row.thread[i]].label}` : '';
      add('launch', `${api}${thread}, ${timeText(row.before[i])} before, for ${timeText(row.length[i])}`,
        row.api[i] >= 0 ? this.row(lane, 'cuda-api', 'name', this.exact(row.api[i])) : null);
      this.draw();
    }
    const [thread, at] = event.launch ? [event.launch.lane, event.launch.t] : lane.kind === 'thread' ? [event.lane, event.t] : [-1, 0];
    if (thread < 0) return;
    const outer = await this.stack(thread, at);
    if (this.selected !== event) return;
    const module = outer.filter(([kind]) => kind === 'module').pop();
    if (module) {
      const name = (module[2] || module[1]).replace('nn.Module: ', '');
      add('module', name, this.row(lane, 'kernel-share', 'module', name, { group: 'module' }));
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
    if (kind === 'memcpy') return this.row(lane, 'copies', 'kind', name.split(' ')[1]);
    return this.row(lane, lane.kind === 'stream' ? 'kernel-share' : kind === 'call' ? 'cuda-api' : 'ops', 'name', name);
  }

  /** Return links to the row of a query: in this page, on the server, or the command. */
  row(lane, query, column = '', value = '', params = {}) {
    const parts = [];
    if (this.given.source) {
      const link = document.createElement('a'), pairs = new URLSearchParams(this.given.links[lane.run]);
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
    const command = this.given.commands[lane.run][query];
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
}
