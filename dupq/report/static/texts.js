// Questions side by side: the words that both have are marked, and stronger where they follow each other in both.

const WORD = /[\p{L}\p{N}]+/gu;

const wordsOf = (text) => Array.from(text.matchAll(WORD), (match) => ({
  word: match[0].toLowerCase(), start: match.index, end: match.index + match[0].length,
}));

function shinglesOf(found, size) {
  const shingles = new Set();
  for (let place = 0; place + size <= found.length; place += 1) {
    shingles.add(found.slice(place, place + size).map((one) => one.word).join(' '));
  }
  return shingles;
}

// For each word 1 if the other text has it, 2 if it is in a shared shingle too, else 0.
function marksOf(found, other, size) {
  const vocabulary = new Set(other.map((one) => one.word));
  const shingles = shinglesOf(other, size);
  const marks = found.map((one) => (vocabulary.has(one.word) ? 1 : 0));
  for (let place = 0; place + size <= found.length; place += 1) {
    if (shingles.has(found.slice(place, place + size).map((one) => one.word).join(' '))) {
      marks.fill(2, place, place + size);
    }
  }
  return marks;
}

// The nodes of `text`; neighbouring words of a shared shingle are one mark.
function markedNodes(text, other, size) {
  const found = wordsOf(text);
  const marks = marksOf(found, wordsOf(other), size);
  const nodes = [];
  let end = 0;
  for (let place = 0; place < found.length; place += 1) {
    if (!marks[place]) continue;
    let last = place;
    while (marks[place] === 2 && marks[last + 1] === 2) last += 1;
    nodes.push(text.slice(end, found[place].start));
    const kind = marks[place] === 2 ? { class: 'run' } : {};
    nodes.push(element('mark', kind, text.slice(found[place].start, found[last].end)));
    end = found[last].end;
    place = last;
  }
  return [...nodes, text.slice(end)];
}

// The user's own id where the table had one.
const idOf = (question) => question.own_id ?? `${question.id}`;

const titleOf = (question) => question.gone ? 'No longer in the archive' : question.title || 'Untitled';

// The title with its link; `shown` are nodes to show instead.
function titled(run, question, shown = [titleOf(question)]) {
  const site = run.sites[question.site];
  const attributes = { class: 'title', dir: 'auto' };
  if (!question.url && !site.linked) return element('span', attributes, shown);
  const href = question.url ?? `https://${site.name}/questions/${question.id}`;
  return element('a', { ...attributes, href, rel: 'noreferrer', target: '_blank' }, shown);
}

function origin(run, question) {
  const score = question.score === undefined ? '' : ` · score ${question.score}`;
  return element('span', { class: 'note' }, element('bdi', {}, run.sites[question.site].name), ' ', element('bdi', {}, idOf(question)), score);
}

const tagsOf = (question) => (question.tags || []).map((tag) => element('span', { class: 'tag', dir: 'auto' }, tag));

// Two questions in two columns; what both have is marked.
function sideBySide(run, left, right, isMarked = true) {
  const column = (one, other) => {
    const nodes = (text, theirs) => (isMarked ? markedNodes(text, theirs, run.shingle) : [text]);
    const both = (question) => `${question.title || ''} ${question.text || ''}`;
    return element('div', { class: 'side' },
      element('p', { class: 'heading' }, titled(run, one, one.title ? nodes(one.title, both(other)) : undefined)),
      element('p', { class: 'note' }, origin(run, one)),
      element('p', { class: 'excerpt', dir: 'auto' }, nodes(one.text || 'No body.', both(other))),
      element('p', { class: 'tags' }, tagsOf(one)));
  };
  return element('div', { class: 'sides' }, column(left, right), column(right, left));
}
