// The list of clusters: searched as one types, filtered, sorted, and walked through by arrow keys.
//
// A source finds clusters and their contents: local.js in the page's data, served/remote.js on the server.

const SHOWN = 100; // items at first, and more by each press of the button
const PAIRS_SHOWN = 20;

function askedOf(form) {
  const value = (name) => form.elements[name]?.value ?? '';
  return {
    words: value('search').toLowerCase().split(/\s+/).filter(Boolean),
    site: value('site'), size: value('size'), certainty: value('certainty'), evidence: value('evidence'),
    change: value('change'), meaning: form.elements.meaning.checked, sort: value('sort'),
  };
}

function item(entry, open) {
  const { cluster } = entry;
  const badges = entry.sources.map((source) => element('span', { class: `key ${source}` }, SOURCES[source] || words(source)));
  if (entry.meaning) badges.push(element('span', { class: 'key meaning' }, 'Meaning'));
  for (const kind of cluster.changes) badges.push(element('span', { class: 'key' }, words(kind)));
  return element('li', {}, element('button', { type: 'button', class: 'cluster', on: { click: () => open(entry) } },
    element('span', { class: 'size', 'aria-hidden': 'true' }, String(cluster.size)),
    element('span', { class: 'what' },
      element('span', { class: 'title', dir: 'auto' }, entry.title),
      element('span', { class: 'note' }, element('span', { class: 'unseen' }, `${counted(cluster.size, 'question')}, `),
        sureness(cluster, entry.sources), ' ', badges))));
}

// What a search finds of questions: their titles, and their ids with and without the site.
const searched = (run, questions) => ({
  text: questions.map((question) => (question.title || '').toLowerCase()).join('\n'),
  ids: new Set(questions.flatMap((one) => [idOf(one), `${run.sites[one.site].name}/${idOf(one)}`].map((id) => id.toLowerCase()))),
});

const hasWords = ({ text, ids }, wanted) => wanted.every((word) => text.includes(word) || ids.has(word));

// The pairs to be judged that have all words; a press shows one where it is judged.
function pairsFound(run, { pairs, show }, wanted) {
  const titles = (pair) => pair.slice(0, 2).map((place) => run.questions[place]);
  const places = wanted.length ? [...pairs.keys()].filter((place) => hasWords(searched(run, titles(pairs[place])), wanted)) : [];
  const entry = (place) => element('li', {}, element('button', { type: 'button', class: 'pair', on: { click: () => show(place) } }, 'Judge'),
    ' ', beside(titles(pairs[place]).map(titleOf)));
  byId('found-pairs').replaceChildren(...places.slice(0, PAIRS_SHOWN).map(entry));
  return places.length ? `, and ${counted(places.length, 'pair')} to judge${places.length > PAIRS_SHOWN ? `, of which the first ${PAIRS_SHOWN} are here` : ''}` : '';
}

function explorer(run, source) {
  const [form, list, panel, found] = ['filters', 'cluster-list', 'cluster', 'found'].map(byId);
  const named = new URLSearchParams(location.hash.slice(1)).get('cluster'); // a cluster keeps its id when that question leaves it
  const state = { asked: null, entries: [], open: null };
  const isOpen = (entry) => state.open !== null && entry.cluster.id === state.open.cluster.id;
  const mark = () => list.querySelectorAll('button.cluster').forEach((button, place) => {
    if (isOpen(state.entries[place])) button.setAttribute('aria-current', 'true');
    else button.removeAttribute('aria-current');
  });
  const open = (entry) => {
    state.open = entry;
    mark();
    source.cluster(entry, (cluster) => state.open === entry && opened(run, source, cluster, panel));
  };
  const openByHand = (entry) => {
    open(entry);
    history.replaceState(null, '', `#cluster=${encodeURIComponent(entry.cluster.id)}`); // an address to send on
    if (matchMedia('(max-width: 60rem)').matches) panel.scrollIntoView({ block: 'start' });
    panel.focus({ preventScroll: true });
  };
  const more = element('button', { type: 'button', class: 'more', on: { click: () => grow() } }, 'Show more');
  const append = ({ total, entries }) => {
    more.parentNode?.remove();
    list.append(...entries.map((entry) => item(entry, openByHand)));
    state.entries.push(...entries);
    if (state.entries.length < total) list.append(element('li', {}, more));
    mark();
  };
  const grow = () => {
    const { asked, entries } = state;
    const from = entries.length;
    source.find(asked, from, null, (page) => asked === state.asked && from === state.entries.length && append(page));
  };
  const show = (page) => {
    state.entries = [];
    list.replaceChildren();
    append(page);
    found.textContent = `${counted(page.total, 'cluster')} found${source.likely ? pairsFound(run, source.likely, state.asked.words) : ''}`;
    if (page.isOpenFound) return;
    state.open = null;
    if (page.entries.length) open(page.entries.find((entry) => entry.cluster.id === named) ?? page.entries[0]);
    else panel.replaceChildren(element('p', { class: 'note' }, 'No cluster matches. Search for less, or show all.'));
  };
  const update = () => {
    const asked = askedOf(form);
    state.asked = asked;
    found.textContent = 'Searching …';
    source.find(asked, 0, state.open, (page) => asked === state.asked && show(page));
  };
  form.addEventListener('input', update);
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('reset', () => setTimeout(update));
  list.addEventListener('keydown', (event) => walk(event, list));
  panel.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') list.querySelector('[aria-current]')?.focus();
  });
  if (named) {
    form.elements.search.value = named;
    panel.scrollIntoView({ block: 'center' });
  }
  update();
}

function walk(event, list) {
  const steps = { ArrowDown: 1, ArrowUp: -1 };
  if (!(event.key in steps)) return;
  const buttons = [...list.querySelectorAll('button')];
  const next = buttons[buttons.indexOf(document.activeElement) + steps[event.key]];
  event.preventDefault();
  next?.focus();
}

function fillSites(run, places) {
  const select = byId('filters').elements.site;
  select.closest('label').hidden = places.length < 2;
  for (const place of places) select.append(element('option', { value: place }, run.sites[place].name));
}
