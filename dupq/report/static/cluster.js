// An opened cluster: its figures, graph and questions, and one of its pairs compared.

const SOURCES = { exact: 'Exact copy', near_duplicate: 'Near duplicate', encoder: 'Encoder', known_link: 'Known link', verdict: 'Verdict' };
const REASONS = {
  'known links': 'more known links name it as the original', 'accepted answer': 'it has an accepted answer',
  score: 'it has the higher score', answers: 'it has more answers', views: 'it has more views', age: 'it is older',
  key: 'all else is equal, and it has the smaller id',
};

function opened(run, source, cluster, panel) {
  const places = placesOf(cluster);
  const parts = { graph: element('div', { class: 'graph-box' }), compared: element('div', { class: 'compared' }), rows: new Map() };
  let chosen = null;
  const choose = (pair) => {
    chosen = pair;
    parts.graph.replaceChildren(graphOf(cluster, places, pair, choose));
    parts.rows.forEach((row, one) => row.setAttribute('aria-pressed', String(one === pair)));
    const compare = (...found) => chosen === pair && parts.compared.replaceChildren(...comparison(run, source, ...found));
    if (pair) source.compared(cluster, pair, compare);
    else parts.compared.replaceChildren(element('p', { class: 'note' }, 'None of its pairs is between the questions shown.'));
  };
  panel.replaceChildren(
    element('h3', { id: 'cluster-title', dir: 'auto' }, titleOf(cluster.questions[0])),
    element('p', { class: 'note' }, figuresOf(cluster)),
    element('div', { class: 'overview' }, element('div', {}, parts.graph, legendOf(cluster)), questionList(run, source, cluster)),
    element('h4', { class: 'part' }, 'Pairs'), pairTable(source, cluster, choose, parts.rows), parts.compared);
  choose(cluster.pairs[0] || null);
  reachable();
}

function figuresOf(cluster) {
  const possible = (cluster.size * (cluster.size - 1)) / 2;
  const parts = [counted(cluster.size, 'question'),
    possible > 1 ? `${number(cluster.edges)} of ${number(possible)} possible pairs hold it together` : '1 pair', sureness(cluster, cluster.pairs.map((pair) => pair.source))].filter(Boolean);
  if (cluster.bridges && possible > 1) parts.push(`it falls apart without ${cluster.bridges > 1 ? `any of ${cluster.bridges} pairs` : '1 pair'}`);
  if (cluster.changes.length) parts.push(`${cluster.changes.join(' and ')} since the last run`);
  return parts.join(' · ');
}

// The probability of a cluster's least sure pair; empty if none of its pairs is the encoder's, as copies have none.
const sureness = (cluster, sources) => (sources.includes('encoder') ? `least sure pair ${score(cluster.weakest_link)}` : '');

function questionList(run, source, cluster) {
  const item = (question, index) => element('li', {},
    titled(run, question), ' ',
    index === 0 ? element('b', { class: 'badge' }, 'canonical') : null,
    element('div', {}, origin(run, question)),
    index === 0 && REASONS[cluster.reason] ? element('div', { class: 'note' }, `Canonical because ${REASONS[cluster.reason]}.`) : null);
  const list = element('ol', {}, cluster.questions.map(item));
  const left = cluster.size - cluster.questions.length;
  const more = rest(left, 'more question', `and ${counted(left, 'more question')}, in the table clusters/`,
    source.questions && ((from, then) => source.questions(cluster, cluster.questions.length + from, then)),
    (questions) => list.append(...questions.map((question) => item(question, list.children.length))));
  return element('div', { class: 'members' }, list, more);
}

// What is not shown: a note if the page has no more, else a button that loads more.
function rest(left, noun, said, ask, append) {
  if (left <= 0) return null;
  if (!ask) return element('p', { class: 'note' }, said);
  let shown = 0;
  const add = (found) => {
    append(found);
    shown += found.length;
    button.textContent = label();
    if (shown >= left || !found.length) button.remove();
    reachable();
  };
  const label = () => `Show some of ${counted(left - shown, noun)}`;
  const button = element('button', { type: 'button', on: { click: () => ask(shown, add) } }, label());
  return button;
}

function pairTable(source, cluster, choose, rows) {
  const row = (pair) => {
    const button = element('button', { type: 'button', class: 'pair', 'aria-pressed': 'false', on: { click: () => choose(pair) } },
      `${pair.ends[0] + 1} – ${pair.ends[1] + 1}`);
    rows.set(pair, button);
    return element('tr', {}, element('td', {}, button),
      element('td', {}, SOURCES[pair.source] || words(pair.source), pair.known ? element('b', { class: 'badge' }, 'known link') : null),
      ...[pair.source === 'encoder' ? pair.probability : undefined, pair.similarity, pair.jaccard, pair.title_overlap, pair.text_overlap].map(
        (value) => element('td', { class: 'count' }, scoreOrDash(value))));
  };
  const heads = ['Compare', 'Found by', 'Probability', 'Score', 'Jaccard', 'Titles share', 'Texts share'];
  const head = element('tr', {}, heads.map((name, index) => element('th', { scope: 'col', class: index > 1 ? 'count' : null }, name)));
  const body = element('tbody', {}, cluster.pairs.map(row));
  const left = cluster.joined - cluster.pairs.length; // not its edges: pairs below the threshold are joined too, by other pairs
  const more = rest(left, 'more pair', `${counted(left, 'more pair')} in the table pairs/`,
    source.pairs && ((from, then) => source.pairs(cluster, from, then)),
    (pairs) => body.append(...pairs.map(row)));
  return element('div', { class: 'scroll pairs-box' }, element('table', {}, element('thead', {}, head), body), more);
}

function comparison(run, source, left, right, pair) {
  return [
    element('h4', { class: 'part' }, `Questions ${pair.ends[0] + 1} and ${pair.ends[1] + 1}`),
    sideBySide(run, left, right),
    element('h4', { class: 'part' }, 'Evidence'), evidence(run, pair), madeOf(source, left, right, pair), verdictButtons(source, left, right)].flat().filter(Boolean);
}

function verdictButtons(source, left, right) {
  if (!source.judge || left.gone || right.gone) return null;
  const press = (verdict) => buttons.forEach((button) => button.setAttribute('aria-pressed', String(button.textContent === words(verdict))));
  const buttons = Object.values(KEYS).map((verdict) => element('button', {
    type: 'button', 'aria-pressed': 'false', on: { click: () => source.judge.give(left, right, verdict, () => press(verdict)) },
  }, words(verdict)));
  press(source.judge.given(left, right) || '');
  return element('p', { class: 'buttons', role: 'group', 'aria-label': 'Verdict on this pair' }, buttons);
}

// Only the encoder's pairs have a probability: copies were counted, and links and verdicts are people's.
function evidence(run, pair) {
  const said = {
    exact: 'The words of both are the same.',
    near_duplicate: `They share ${share(pair.jaccard ?? 0)} of their shingles (${run.shingle} words; letters if a text is only a title), counted exactly.`,
    known_link: 'The site links them as duplicates, and the run was told to use that.',
    verdict: 'People judged them to be the same.',
    encoder: `In this archive a pair with such evidence is a duplicate with probability ${score(pair.probability)}`
      + (run.threshold === null || run.threshold >= 1 ? '.' : `; from ${score(run.threshold)} on pairs may join.`),
  }[pair.source];
  return [pair.evidence ? element('p', { class: 'evidence', dir: 'auto' }, pair.evidence) : null, element('p', { class: 'note' }, said)];
}

// The waterfall of an encoder's pair. A server computes it after the texts have arrived, so it appears later.
function madeOf(source, left, right, pair) {
  if (pair.odds) return waterfall(pair);
  if (!source.odds || !pair.evidence || pair.source !== 'encoder') return null;
  const box = element('div');
  source.odds(left, right, (odds) => box.replaceChildren(waterfall({ ...pair, odds })));
  return box;
}
