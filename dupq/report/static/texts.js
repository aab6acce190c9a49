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

// For each word of a title 3 if the other title lacks it, else 0.
const onlyHere = (found, other) => marksOf(found, other, Infinity).map((mark) => (mark ? 0 : 3));

const MARKS = [null, {}, { class: 'run' }, { class: 'only' }];

// The nodes of `text` with the marks of its words; neighbours with the same mark, but for single words, are one.
function markedNodes(text, marksIn) {
  const found = wordsOf(text);
  const marks = marksIn(found);
  const nodes = [];
  let end = 0;
  for (let place = 0; place < found.length; place += 1) {
    if (!marks[place]) continue;
    let last = place;
    while (marks[place] > 1 && marks[last + 1] === marks[place]) last += 1;
    nodes.push(text.slice(end, found[place].start));
    nodes.push(element('mark', MARKS[marks[place]], text.slice(found[place].start, found[last].end)));
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

// Two titles on one line.
const beside = ([left, right]) => [element('bdi', {}, left), ' · ', element('bdi', {}, right)];

// Two questions in two columns. Of their texts is marked what both have, of their titles what only one has.
function sideBySide(run, left, right) {
  const column = (one, other) => {
    const [title, both] = [other.title || '', `${other.title || ''} ${other.text || ''}`].map(wordsOf);
    const text = one.text ? markedNodes(one.text, (found) => marksOf(found, both, run.shingle)) : 'No body.';
    return element('div', { class: 'side' },
      element('p', { class: 'heading' }, titled(run, one, one.title ? markedNodes(one.title, (found) => onlyHere(found, title)) : undefined)),
      element('p', { class: 'note' }, origin(run, one)),
      element('p', { class: 'excerpt', dir: 'auto' }, text),
      element('p', { class: 'tags' }, tagsOf(one)));
  };
  return [
    element('div', { class: 'sides' }, column(left, right), column(right, left)),
    element('p', { class: 'note' }, element('mark', { class: 'only' }, 'in one title only'), ' ', element('mark', {}, 'in both'), ' ',
      element('mark', { class: 'run' }, `${run.shingle} words in a row in both`), ', as written; the run compares stems, and whole texts.')];
}
