// Judging pairs one by one: the run's worklist, and its sample. The file that is saved is one that `dedup --verdicts` reads.

const KEYS = { s: 'same', d: 'different', u: 'unsure' };
const COLUMNS = ['pair', 'site_left', 'question_id_left', 'site_right', 'question_id_right', 'verdict', 'own_id_left', 'own_id_right', 'title_left', 'title_right'];

// `name` begins the ids of a list's elements. Only the sample's file names the run: its verdicts measure that run.
// If `source` writes verdicts at once, the browser stores none.
const worklistOf = (run, source) => ({
  name: 'work', pairs: run.worklist, key: source.judged ? null : 'worklist', file: 'worklist', ends: [], tell: source.judged,
});
const sampleOf = (run) => ({ name: 'judge', pairs: run.review, key: 'verdicts', file: 'review', ends: [['run_id', run.run]] });

// As dupq/evaluation/verdicts.py writes texts: one line, no opening quote, nothing that a spreadsheet takes for a formula.
function plain(text) {
  const joined = text.split(/\s+/).filter(Boolean).join(' ');
  return /^'*("|[\p{Z}\p{Cc}\p{Cf}]*[=+\-@＝＋－＠])/u.test(joined) ? `'${joined}` : joined;
}

const quoted = (id) => (/["\t\r\n]/.test(id) ? `"${id.replaceAll('"', '""')}"` : id);

function sheet(run, list, verdicts) {
  const lines = list.pairs.map(([left, right], place) => {
    const ends = [left, right].map((question) => run.questions[question]);
    const token = `p${ends.map((question) => question.id.toString(36)).join('-')}`;
    const keys = [token, ...ends.flatMap((question) => [run.sites[question.site].name, question.id])];
    const more = list.ends.map(([, value]) => value);
    const ids = ends.map((question) => quoted(question.own_id ?? ''));
    return [...keys, verdicts[place], ...ids, ...ends.map((question) => plain(question.title || '')), ...more].join('\t');
  });
  return `${[[...COLUMNS, ...list.ends.map(([column]) => column)].join('\t'), ...lines].join('\n')}\n`;
}

// A pair that is judged elsewhere, such as in an opened cluster, is added to the end of the list.
const moreOf = (run, list) => `dupq-${list.key}-more-${run.run}`;

function withMore(run, list) {
  try {
    for (const pair of JSON.parse(remembered(moreOf(run, list)) ?? '[]')) {
      if (pair.length === 2 && pair.every((place) => run.questions[place])) list.pairs.push([...pair, '']);
    }
  } catch { /* what another page has kept */ }
}

function saved(run, list) {
  const given = list.pairs.map((pair) => pair[2]);
  const kept = list.key && remembered(`dupq-${list.key}-${run.run}`);
  if (!kept) return given;
  try {
    const values = JSON.parse(kept);
    return given.map((verdict, place) => (Object.values(KEYS).includes(values[place]) ? values[place] : verdict));
  } catch { return given; }
}

function judge(run, source, list) {
  const own = (part) => byId(`${list.name}-${part}`);
  const listed = list.pairs.length;
  if (list.key === 'worklist') withMore(run, list);
  const state = { verdicts: saved(run, list), place: 0, done: [], isTelling: false };
  const [panel, pair, bar, progress] = ['panel', 'pair', 'bar', 'progress'].map(own);
  const firstOpen = (from) => {
    const after = state.verdicts.indexOf('', from);
    return after >= 0 ? after : state.verdicts.indexOf('');
  };
  const show = () => {
    const judged = state.verdicts.filter(Boolean).length;
    bar.value = judged;
    const count = (verdict) => state.verdicts.filter((one) => one === verdict).length;
    progress.textContent = `Pair ${state.place + 1} of ${state.verdicts.length}. ${judged} judged:`
      + ` ${count('same')} same, ${count('different')} different, ${count('unsure')} unsure.`
      + (judged === state.verdicts.length ? ` All are judged${list.tell ? '.' : ': save them.'}` : '');
    const [left, right] = list.pairs[state.place].slice(0, 2).map((question) => run.questions[question]);
    const [probability, evidence] = list.pairs[state.place].slice(3);
    const told = evidence ? [element('p', { class: 'note', dir: 'auto' }, `Probability ${score(probability)}: ${evidence}`)] : [];
    const { place } = state;
    source.beside(left, right, (one, other) => place === state.place
      && pair.replaceChildren(sideBySide(run, one, other, false), ...told));
    for (const button of panel.querySelectorAll('[data-verdict]')) {
      button.setAttribute('aria-pressed', String(button.dataset.verdict === state.verdicts[state.place]));
    }
    if (own('undo')) own('undo').disabled = !state.done.length;
  };
  const set = (verdicts) => {
    state.verdicts = verdicts;
    if (list.key) remember(`dupq-${list.key}-${run.run}`, JSON.stringify(verdicts));
  };
  const given = (place, verdict) => {
    state.done.push([place, state.verdicts[place]]);
    set(state.verdicts.with(place, verdict));
    const next = firstOpen(place + 1);
    if (next >= 0) state.place = next;
    show();
  };
  const give = (verdict) => {
    const { place } = state;
    if (!list.tell) given(place, verdict);
    else if (!state.isTelling) {
      state.isTelling = true;
      const ends = list.pairs[place].slice(0, 2).map((question) => run.questions[question]);
      list.tell(...ends, verdict, () => given(place, verdict), () => { state.isTelling = false; });
    }
  };
  const placeOf = (...ends) => list.pairs.findIndex((pair) => ends.every(({ place }) => pair.slice(0, 2).includes(place)));
  const giveHere = (left, right, verdict, then) => {
    let place = placeOf(left, right);
    if (place < 0) {
      place = list.pairs.push([left.place, right.place, '']) - 1;
      remember(moreOf(run, list), JSON.stringify(list.pairs.slice(listed).map((pair) => pair.slice(0, 2))));
      bar.max = list.pairs.length;
    }
    set(Object.assign([...state.verdicts], { [place]: verdict }));
    show();
    then();
  };
  if (list.key === 'worklist') source.judge = { give: giveHere, given: (left, right) => state.verdicts[placeOf(left, right)] };
  const undo = () => {
    const last = own('undo') && state.done.pop();
    if (!last) return;
    [state.place] = last;
    set(state.verdicts.with(...last));
    show();
  };
  const go = (by) => {
    state.place = Math.min(Math.max(state.place + by, 0), state.verdicts.length - 1);
    show();
  };
  const keys = { z: undo, ArrowLeft: () => go(-1), ArrowRight: () => go(1) };
  panel.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in KEYS) {
      if (!event.repeat) give(KEYS[event.key]); // a key that is held judges one pair
    } else if (event.key in keys) keys[event.key]();
    else return;
    event.preventDefault();
  });
  for (const button of panel.querySelectorAll('[data-verdict]')) button.addEventListener('click', () => give(button.dataset.verdict));
  own('undo')?.addEventListener('click', undo);
  own('back').addEventListener('click', () => go(-1));
  own('next').addEventListener('click', () => go(1));
  own('export')?.addEventListener('click', () => download(`${list.file}-${run.run}.tsv`, sheet(run, list, state.verdicts)));
  // after following the link one can judge at once; the link itself takes the focus away first
  document.querySelector(`nav a[href="#${list.name}"]`).addEventListener('click', () => setTimeout(() => panel.focus({ preventScroll: true })));
  bar.max = state.verdicts.length;
  state.place = Math.max(firstOpen(0), 0);
  show();
}

function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: 'text/tab-separated-values' }));
  element('a', { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
