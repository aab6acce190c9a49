// The clusters of the whole run, asked of `dupq serve`.

const PAUSE = 120; // milliseconds after the last key before a search is asked for

function ask(path, asked, then, signal) {
  const query = new URLSearchParams(Object.entries(asked).filter(([, value]) => value !== '' && value !== null && value !== false));
  fetch(`/api/${path}?${query}`, { signal })
    .then(async (answer) => {
      const said = await answer.json();
      if (!answer.ok) throw new Error(said.error);
      byId('trouble').textContent = '';
      then(said);
    })
    .catch((error) => {
      if (error.name === 'AbortError') return;
      byId('trouble').textContent = error instanceof TypeError ? 'The server does not answer: is dupq serve still running?' : error.message;
    });
}

const keyOf = (question) => `${question.site}.${question.id}`;
const unread = (question) => ({ ...question, text: question.gone ? '' : '…' });

function sourceOf(run) {
  let waiting = 0;
  let running = new AbortController();
  const beside = (left, right, more, then) => {
    then(unread(left), unread(right), null);
    ask('pair', { left: keyOf(left), right: keyOf(right), ...more }, (found) => then(found.left, found.right, found.parts));
  };
  return {
    count: run.count,
    sites: run.held_sites,
    find(asked, from, open, then) {
      const { words: wanted, ...filters } = asked;
      const query = { ...filters, search: wanted.join(' '), from, open: open && open.cluster.id };
      clearTimeout(waiting);
      running.abort();
      running = new AbortController();
      const { signal } = running;
      waiting = setTimeout(() => ask('clusters', query, then, signal), from || !open ? 0 : PAUSE);
    },
    cluster: (entry, then) => ask('cluster', { id: entry.cluster.id }, then),
    questions: (cluster, from, then) => ask('questions', { id: cluster.id, from }, (found) => then(found.questions)),
    pairs: (cluster, from, then) => ask('pairs', { id: cluster.id, from }, (found) => then(found.pairs)),
    compared(cluster, pair, then) {
      const [left, right] = pair.questions ?? pair.ends.map((end) => cluster.questions[end]);
      const show = (one, other, parts) => then(one, other, parts ? { ...pair, parts } : pair);
      beside(left, right, { parts: pair.source === 'encoder' ? 'yes' : '' }, show);
    },
    beside: (left, right, then) => beside(left, right, {}, then),
  };
}
