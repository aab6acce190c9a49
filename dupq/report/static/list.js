// The list of clusters: searched as one types, filtered, sorted, and walked through by arrow keys.

const SHOWN = 100; // items at first, and more by each press of the button
const SIZES = { two: [2, 2], few: [3, 5], many: [6, 20], most: [21, Infinity] };
const CERTAINTIES = { sure: [0.9, 1.1], likely: [0.7, 0.9], fair: [0.5, 0.7], doubtful: [0, 0.5] };
const SORTS = {
  telling: null,
  largest: (one, other) => other.size - one.size,
  least: (one, other) => one.weakest_link - other.weakest_link,
  most: (one, other) => other.weakest_link - one.weakest_link,
};

const isInMeaning = (run, pair) => pair.source === 'encoder'
  && (pair.title_overlap ?? 1) < run.meaning[0] && (pair.text_overlap ?? 1) < run.meaning[1];

// What the filters ask of a cluster, worked out once.
function indexed(run, cluster) {
  const questions = cluster.questions.map((place) => run.questions[place]);
  return {
    cluster,
    text: questions.map((question) => (question.title || '').toLowerCase()).join('\n'),
    title: titleOf(questions[0]),
    sites: new Set(questions.map((question) => question.site)),
    sources: new Set(cluster.pairs.map((pair) => pair.source)),
    known: cluster.pairs.some((pair) => pair.known),
    meaning: cluster.pairs.some((pair) => isInMeaning(run, pair)),
  };
}

function isWanted(entry, asked) {
  const within = (value, range) => !range || (value >= range[0] && value <= range[1]);
  const { cluster } = entry;
  const sure = CERTAINTIES[asked.certainty];
  return asked.words.every((word) => entry.text.includes(word))
    && (asked.site === '' || entry.sites.has(Number(asked.site)))
    && within(cluster.size, SIZES[asked.size])
    && (!sure || (cluster.weakest_link >= sure[0] && cluster.weakest_link < sure[1]))
    && (asked.evidence === '' || (asked.evidence === 'known' ? entry.known : entry.sources.has(asked.evidence)))
    && (!asked.change || (asked.change === 'any' ? cluster.changes.length > 0 : cluster.changes.includes(asked.change)))
    && (!asked.meaning || entry.meaning);
}

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
  const badges = [...entry.sources].map((source) => element('span', { class: `key ${source}` }, SOURCES[source] || words(source)));
  if (entry.meaning) badges.push(element('span', { class: 'key meaning' }, 'Meaning'));
  for (const kind of cluster.changes) badges.push(element('span', { class: 'key' }, words(kind)));
  return element('li', {}, element('button', { type: 'button', class: 'cluster', on: { click: () => open(entry) } },
    element('span', { class: 'size', 'aria-hidden': 'true' }, String(cluster.size)),
    element('span', { class: 'what' },
      element('span', { class: 'title', dir: 'auto' }, entry.title),
      element('span', { class: 'note' }, element('span', { class: 'unseen' }, `${counted(cluster.size, 'question')}, `),
        `weakest link ${score(cluster.weakest_link)} `, badges))));
}

function explorer(run) {
  const [form, list, panel, found] = ['filters', 'cluster-list', 'cluster', 'found'].map(byId);
  const entries = run.clusters.map((cluster) => indexed(run, cluster));
  const state = { wanted: [], shown: 0, open: null };
  const mark = () => list.querySelectorAll('button.cluster').forEach((button, place) => {
    if (state.wanted[place] === state.open) button.setAttribute('aria-current', 'true');
    else button.removeAttribute('aria-current');
  });
  const open = (entry) => {
    state.open = entry;
    mark();
    opened(run, entry.cluster, panel);
  };
  const openByHand = (entry) => {
    open(entry);
    if (matchMedia('(max-width: 60rem)').matches) panel.scrollIntoView({ block: 'start' });
    panel.focus({ preventScroll: true });
  };
  const more = element('button', { type: 'button', class: 'more', on: { click: () => grow() } }, 'Show more');
  const grow = () => {
    const next = state.wanted.slice(state.shown, state.shown + SHOWN);
    more.parentNode?.remove();
    list.append(...next.map((entry) => item(entry, openByHand)));
    state.shown += next.length;
    if (state.shown < state.wanted.length) list.append(element('li', {}, more));
    mark();
  };
  const update = () => {
    const asked = askedOf(form);
    state.wanted = entries.filter((entry) => isWanted(entry, asked));
    if (SORTS[asked.sort]) state.wanted.sort((one, other) => SORTS[asked.sort](one.cluster, other.cluster));
    state.shown = 0;
    list.replaceChildren();
    grow();
    found.textContent = `${counted(state.wanted.length, 'cluster')} found`;
    if (state.wanted.includes(state.open)) return;
    state.open = null;
    if (state.wanted.length) open(state.wanted[0]);
    else panel.replaceChildren(element('p', { class: 'note' }, 'No cluster is like that. Search for less, or show all.'));
  };
  form.addEventListener('input', update);
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('reset', () => setTimeout(update));
  list.addEventListener('keydown', (event) => walk(event, list));
  panel.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') list.querySelector('[aria-current]')?.focus();
  });
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

function fillSites(run) {
  const select = byId('filters').elements.site;
  run.sites.forEach((site, place) => {
    if (run.clusters.some((cluster) => cluster.questions.some((question) => run.questions[question].site === place))) {
      select.append(element('option', { value: place }, site.name));
    }
  });
}
