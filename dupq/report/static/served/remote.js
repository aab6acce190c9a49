// The clusters of the whole run, from `dupq serve`.

const PAUSE = 250; // milliseconds after the last key before a search is asked for

function ask(path, asked, then, signal) {
  const query = new URLSearchParams(Object.entries(asked).filter(([, value]) => value !== '' && value !== null && value !== false));
  return fetch(`/${path}?${query}`, { signal })
    .then(answered(then)).catch(failed);
}

const answered = (then) => async (answer) => {
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error);
  byId('trouble').textContent = '';
  then(said);
};

function failed(error) {
  if (error.name === 'AbortError') return;
  byId('trouble').textContent = error instanceof TypeError ? 'The server does not answer: is dupq serve still running?' : error.message;
}

// A question with its pairs; a button compares each.
function lookUp(run, source, found) {
  const { question, size, pairs } = found;
  const compared = element('div', { class: 'compared' });
  const other = (pair) => pair.questions[1];
  let chosen = null;
  const compare = (pair) => {
    chosen = pair;
    source.compared(null, pair, (...sides) => chosen === pair && compared.replaceChildren(...comparison(run, source, ...sides)));
  };
  const row = (pair) => element('tr', {},
    element('td', {}, element('button', { type: 'button', class: 'pair', on: { click: () => compare(pair) } }, 'Compare')),
    element('td', { class: 'count' }, score(pair.probability)),
    element('td', {}, pair.joined ? 'joined' : 'not joined'),
    element('td', {}, SOURCES[pair.source] || words(pair.source)),
    element('td', {}, titled(run, other(pair)), ' ', origin(run, other(pair))));
  const heads = element('tr', {}, ['Pair', 'Probability', 'In one cluster', 'Found by', 'Other question'].map((name) => element('th', { scope: 'col' }, name)));
  byId('looked-up').replaceChildren(
    element('h3', { dir: 'auto' }, titled(run, question)),
    element('p', { class: 'note' }, origin(run, question), size > 1 ? ` · in a cluster of ${counted(size, 'question')}` : ' · in no cluster'),
    pairs.length ? element('div', { class: 'scroll' }, element('table', {}, heads, pairs.map(row))) : element('p', {}, 'No candidate pair has it.'),
    compared);
  reachable();
}

// What a new question may ask again, the likeliest first; a button looks each up.
function matched(run, questions, show) {
  const entry = ({ site, question_id: id, own_id, title, link: url, probability, evidence }) => {
    const question = { site: run.sites.findIndex(({ name }) => name === site), id, own_id, title, url, gone: title === null };
    return element('li', {}, element('b', {}, probability === null ? '–' : score(probability)), ' ', titled(run, question), ' ',
      element('button', { type: 'button', class: 'pair', on: { click: () => show(`${site}/${idOf(question)}`) } }, 'Look up'),
      element('div', { class: 'note', dir: 'auto' }, origin(run, question), evidence ? `: ${evidence}` : ''));
  };
  byId('matches').replaceChildren(...questions.map(entry));
}

const keyOf = (question) => `${question.site}.${question.id}`;
const endsOf = (left, right) => ({ left: keyOf(left), right: keyOf(right) });
const unread = (question) => ({ ...question, text: question.gone ? '' : '…' });

function sourceOf(run) {
  let waiting = 0;
  let running = new AbortController();
  const beside = (left, right, then) => {
    then(unread(left), unread(right), '');
    ask('api/pair', endsOf(left, right), (found) => then(found.left, found.right, found.evidence));
  };
  const judged = (left, right, verdict, then, ended = () => {}) => {
    fetch(`/api/verdict?${new URLSearchParams({ ...endsOf(left, right), verdict })}`, { method: 'POST', headers: { 'Content-Type': 'application/json' } })
      .then(answered(then)).catch(failed).finally(ended);
  };
  return {
    count: run.count,
    sites: run.sites.map((_, place) => place),
    find(asked, from, open, then) {
      const { words: wanted, ...filters } = asked;
      const query = { ...filters, search: wanted.join(' '), from, open: open && open.cluster.id };
      clearTimeout(waiting);
      running.abort();
      running = new AbortController();
      const { signal } = running;
      waiting = setTimeout(() => ask('api/clusters', query, (page) => then(withTitles(page)), signal), from || !open ? 0 : PAUSE);
    },
    cluster: ({ cluster }, then) => ask('api/cluster', { id: cluster.id }, (more) => then({ ...cluster, ...more })),
    questions: (cluster, from, then) => ask('api/more', { id: cluster.id, from }, (found) => then(found.questions)),
    pairs: (cluster, from, then) => ask('api/more', { id: cluster.id, from }, (found) => then(found.pairs)),
    compared(cluster, pair, then) {
      const [left, right] = pair.questions ?? pair.ends.map((end) => cluster.questions[end]);
      beside(left, right, (one, other, evidence) => then(one, other, { ...pair, evidence }));
    },
    beside,
    odds: (left, right, then) => ask('api/odds', endsOf(left, right), ({ odds }) => odds && then(odds)),
    judged,
    judge: { give: judged, given: () => '' }, // of any pair, also when no pair of the worklist is left
    start() {
      const show = (id) => ask('api/question', { id }, (found) => lookUp(run, this, found));
      byId('question').addEventListener('submit', (event) => {
        event.preventDefault();
        show(event.target.elements.id.value);
      });
      byId('new').addEventListener('submit', (event) => {
        event.preventDefault();
        const { title, text } = event.target.elements;
        const said = byId('matches-said');
        said.textContent = 'Looking it up …';
        ask('similar', { title: title.value, text: text.value }, ({ questions }) => matched(run, questions, show)).finally(() => {
          said.textContent = '';
        });
      });
    },
  };
}

const withTitles = (page) => ({ ...page, entries: page.entries.map((entry) => ({ ...entry, title: titleOf(entry.question) })) });
