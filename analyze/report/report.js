// Draws figures when they come into view; sorts, filters and copies tables.
const byId = id => document.getElementById(id);
const root = document.documentElement;
let config = {};
const tip = byId('tip');
const views = new Map();
const THEME = ['ink', 'soft', 'rule', 'paper'];

function theme() {
  const style = getComputedStyle(root);
  return THEME.map(name => [name, style.getPropertyValue('--' + name).trim()]);
}

function showTip(handler, event, item, value) {
  if (value === null || value === undefined || value === '') { tip.hidden = true; return; }
  tip.replaceChildren(...String(value).split('\n').map(line => {
    const row = document.createElement('div');
    row.textContent = line;
    return row;
  }));
  tip.hidden = false;
  const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const above = event.clientY + 18 + tip.offsetHeight > innerHeight;
  tip.style.left = Math.max(4, x) + 'px';
  tip.style.top = (above ? event.clientY - tip.offsetHeight - 10 : event.clientY + 16) + 'px';
}

async function draw(place) {
  if (views.has(place)) return;
  views.set(place, null);
  const spec = JSON.parse(place.parentElement.querySelector('script.spec').textContent);
  const initial = new Map(theme());
  const wide = place.clientWidth;
  initial.set('name_width', Math.round(wide < 560 ? Math.max(84, wide * 0.37) : Math.min(330, wide * 0.36)));
  initial.set('legend_columns', legendColumns(spec, wide, initial.get('name_width')));
  for (const signal of spec.signals) if (initial.has(signal.name)) signal.value = initial.get(signal.name);
  const made = await vegaEmbed(place, spec, {
    mode: 'vega', ast: true, actions: false, defaultStyle: false, renderer: 'svg', config, tooltip: showTip, hover: false,
  });
  views.set(place, made.view);
  place.dataset.drawn = 'yes';
  const svg = place.querySelector('svg');
  if (svg) svg.setAttribute('aria-hidden', 'true');
  const zoom = spec.usermeta && spec.usermeta.zoom;
  if (zoom) zoomable(place, made.view, zoom);
}

/** Return how many columns of a legend fit, by its longest name. */
function legendColumns(spec, wide, nameWidth) {
  const named = (spec.axes || []).some(axis => axis.labelLimit && axis.labelLimit.signal);
  const scales = (spec.legends || []).map(legend => spec.scales.find(s => s.name === (legend.fill || legend.stroke)));
  const names = scales.flatMap(scale => scale && Array.isArray(scale.domain) ? scale.domain : []);
  const longest = 26 + 7 * Math.max(0, ...names.map(name => String(name).length));
  return Math.max(1, Math.min(8, Math.floor((wide - (named ? nameWidth : 50)) / longest)));
}

function zoomable(place, view, zoom) {
  const whole = place.parentElement.querySelector('.whole');
  const to = (from, end) => {
    view.signal(zoom.from, from).signal(zoom.to, end).runAsync();
    whole.hidden = from === zoom.whole[0] && end === zoom.whole[1];
  };
  view.addEventListener('click', (event, item) => {
    const node = item && item.datum;
    if (node && node.b > node.a) to(node.a, node.b);
  });
  whole.addEventListener('click', () => to(...zoom.whole));
}

const seen = new IntersectionObserver(entries => {
  for (const entry of entries) if (entry.isIntersecting) { seen.unobserve(entry.target); draw(entry.target); }
}, { rootMargin: '400px' });

function recolour(colours) {
  redrawTimelines();
  for (const view of views.values()) {
    if (!view) continue;
    for (const [name, value] of colours) view.signal(name, value);
    view.runAsync();
  }
}

const choice = byId('theme');
const CHOICES = ['system', 'light', 'dark'];
function choose(name) {
  if (name === 'system') delete root.dataset.theme; else root.dataset.theme = name;
  choice.textContent = 'theme: ' + name;
  choice.setAttribute('aria-label', 'colour theme: ' + name);
  recolour(theme());
}
let chosen = 'system';
try { chosen = localStorage.getItem('tracequarry-theme') || chosen; } catch { /* a page without storage */ }
choose(CHOICES.includes(chosen) ? chosen : 'system');
choice.addEventListener('click', () => {
  chosen = CHOICES[(CHOICES.indexOf(chosen) + 1) % CHOICES.length];
  try { localStorage.setItem('tracequarry-theme', chosen); } catch { /* a page without storage */ }
  choose(chosen);
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => recolour(theme()));
matchMedia('print').addEventListener('change', () => recolour(theme()));
addEventListener('beforeprint', () => { document.querySelectorAll('.plot').forEach(draw); redrawTimelines(); });
// On paper, what was run, the data quality and the findings are open.
matchMedia('print').addEventListener('change', event => {
  for (const details of document.querySelectorAll('.about-run, .quality, .findings details, .more-findings')) {
    if (event.matches && !details.open) { details.open = true; details.dataset.printed = ''; }
    else if (!event.matches && 'printed' in details.dataset) { details.open = false; delete details.dataset.printed; }
  }
});
addEventListener('scroll', () => { tip.hidden = true; }, { passive: true });

// --- tables

const valueOf = cell => cell.classList.contains('n')
  ? (cell.dataset.v !== undefined ? cell.dataset.v : cell.textContent) : cell.textContent;

function order(a, b, number, sign) {
  if (a === '' || b === '') return (a === '') - (b === '');
  return sign * (number ? Number(a) - Number(b) : a.localeCompare(b, undefined, { numeric: true }));
}

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, at) => head.querySelector('button').addEventListener('click', () => {
    const number = head.classList.contains('n');
    const was = head.getAttribute('aria-sort');
    const down = was ? was === 'ascending' : number;
    heads.forEach(other => other.removeAttribute('aria-sort'));
    head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    const body = table.tBodies[0];
    const rows = [...body.rows];
    rows.sort((a, b) => order(valueOf(a.cells[at]), valueOf(b.cells[at]), number, down ? -1 : 1));
    body.append(...rows);
  }));
}

function quoted(text) {
  // A spreadsheet would read these as formulas.
  const plain = /^[=+@\t\r]|^-(?![\d.])/.test(text) ? "'" + text : text;
  return /[",\n\r]/.test(plain) ? '"' + plain.replaceAll('"', '""') + '"' : plain;
}

function csv(table) {
  const lines = [[...table.tHead.rows[0].cells].map(head => head.dataset.name)];
  for (const row of table.tBodies[0].rows) if (!row.hidden) lines.push([...row.cells].map(valueOf));
  return lines.map(line => line.map(quoted).join(',')).join('\n') + '\n';
}

async function copy(text, button) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement('textarea');
    area.value = text;
    document.body.append(area);
    area.select();
    done = document.execCommand('copy');
    area.remove();
  }
  const was = button.textContent;
  button.textContent = done ? 'copied' : 'cannot copy';
  byId('said').textContent = button.textContent;
  setTimeout(() => { button.textContent = was; }, 1200);
}

// Set up the figures, tables and buttons of an element.
function enliven(within) {
  const given = within.querySelector('script.config');
  if (given) config = JSON.parse(given.textContent);
  for (const place of within.querySelectorAll('.plot')) seen.observe(place);
  for (const place of within.querySelectorAll('.timeline')) startTimeline(place);
  markFindings();
  for (const details of within.querySelectorAll('details.table')) {
    const table = details.querySelector('table');
    sortable(table);
    details.querySelector('.csv').addEventListener('click', event => copy(csv(table), event.currentTarget));
    const filter = details.querySelector('input[type=search]');
    if (filter) filter.addEventListener('input', () => {
      const wanted = filter.value.toLowerCase();
      for (const row of table.tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
  }
  for (const button of within.querySelectorAll('.copy')) {
    button.addEventListener('click', () => copy(button.previousElementSibling.textContent, button));
  }
}
enliven(document);
