// Load the parts of a page when they are scrolled into view, two at a time.
const AT_ONCE = 2;
const reached = new Set();
let asking = 0;

async function part(source, options = {}) {
  const answer = await fetch(source, { ...options, headers: { 'X-Part': 'yes' } });
  const parsed = new DOMParser().parseFromString(await answer.text(), 'text/html');
  return [...parsed.body.childNodes].map(node => document.adoptNode(node));
}

function failed(error) {
  const line = document.createElement('p');
  line.className = 'error';
  line.textContent = error.name === 'AbortError' ? 'cancelled' : 'no answer from the server: ' + error.message;
  return [line];
}

async function fill(place) {
  place.classList.add('asked');
  const filled = document.createElement('div');
  filled.className = 'filled';
  filled.append(...await part(place.dataset.source).catch(failed));
  const section = place.parentElement;
  place.replaceWith(filled);
  enliven(filled);
  if (!filled.firstElementChild) filled.remove();
  if (section.classList.contains('places') && section.querySelectorAll('.wait, .filled').length === 0) {
    const nothing = document.createElement('p');
    nothing.className = 'lacks';
    nothing.textContent = 'Nothing to show: not recorded.';
    section.append(nothing);
  }
}

function next() {
  while (asking < AT_ONCE && reached.size) {
    const [place] = reached;
    reached.delete(place);
    coming.unobserve(place);
    asking += 1;
    fill(place).finally(() => { asking -= 1; next(); });
  }
}

const coming = new IntersectionObserver(entries => {
  for (const entry of entries) if (entry.isIntersecting) reached.add(entry.target); else reached.delete(entry.target);
  next();
}, { rootMargin: '300px' });
for (const place of document.querySelectorAll('.wait')) coming.observe(place);

// --- SQL

const box = document.querySelector('form.sql');
if (box) {
  const cancel = byId('cancel');
  let running = null;
  box.addEventListener('submit', async event => {
    if (event.submitter && event.submitter.name === 'form') return;
    event.preventDefault();
    if (running) running.abort();
    const mine = running = new AbortController();
    cancel.hidden = false;
    byId('result').replaceChildren('running …');
    const sent = new URLSearchParams(new FormData(box));
    const came = await part('/sql', { method: 'POST', body: sent, signal: mine.signal }).catch(failed);
    if (running !== mine) return;
    running = null;
    cancel.hidden = true;
    byId('result').replaceChildren(...came);
    enliven(byId('result'));
    const address = '/sql?' + new URLSearchParams([...sent].filter(([, value]) => value));
    if (address.length < 6000) history.replaceState(null, '', address);
  });
  cancel.addEventListener('click', () => { if (running) running.abort(); });
  byId('statement').addEventListener('keydown', event => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); box.requestSubmit(); }
  });
}

// --- list of queries

const wanted = byId('find');
if (wanted) wanted.addEventListener('input', () => {
  const text = wanted.value.toLowerCase();
  for (const group of document.querySelectorAll('.group')) {
    const lines = [...group.querySelectorAll('.questions > div')];
    for (const line of lines) line.hidden = !line.textContent.toLowerCase().includes(text);
    group.hidden = lines.every(line => line.hidden);
  }
});
