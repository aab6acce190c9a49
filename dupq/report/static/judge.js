// Judging pairs one by one: the run's worklist, and its sample. The file that is saved is one that `dedup --verdicts` reads.

const KEYS = { s: 'same', d: 'different', u: 'unsure' };
const COLUMNS = ['pair', 'site_left', 'question_id_left', 'site_right', 'question_id_right', 'verdict', 'own_id_left', 'own_id_right', 'title_left', 'title_right'];

// `name` begins the ids of a list's elements. Only the sample's file names the run: its verdicts measure that run.
// If `source` writes verdicts at once, the browser stores none. The pairs `from` to `to` were judged before: they are no
// part of what there is to judge, and are saved only if their verdict is another one now.
const worklistOf = (run, source) => ({
  name: 'work', pairs: [...run.worklist, ...run.past], from: run.worklist.length, to: run.worklist.length + run.past.length,
  key: source.judged ? null : 'worklist', file: 'worklist', ends: [], tell: source.judged,
});
const sampleOf = (run) => ({ name: 'judge', pairs: run.review, from: 0, to: 0, key: 'verdicts', file: 'review', ends: [['run_id', run.run]] });

const isPast = (list, place) => place >= list.from && place < list.to;
const isJudged = (verdict) => Object.values(KEYS).includes(verdict); // not 'undone', which takes back what others know

// As dupq/evaluation/verdicts.py writes texts: one line, no opening quote, nothing that a spreadsheet takes for a formula.
function plain(text) {
  const joined = text.split(/\s+/).filter(Boolean).join(' ');
  return /^'*("|[\p{Z}\p{Cc}\p{Cf}]*[=+\-@＝＋－＠])/u.test(joined) ? `'${joined}` : joined;
}

const quoted = (id) => (/["\t\r\n]/.test(id) ? `"${id.replaceAll('"', '""')}"` : id);

// The lines of the file; how many have a verdict, or take one back; and its text.
function sheet(run, list, verdicts) {
  const places = [...list.pairs.keys()].filter((place) => !isPast(list, place) || verdicts[place] !== list.pairs[place][2]);
  const lines = places.map((place) => {
    const [left, right] = list.pairs[place];
    const ends = [left, right].map((question) => run.questions[question]);
    const token = `p${ends.map((question) => question.id.toString(36)).join('-')}`;
    const keys = [token, ...ends.flatMap((question) => [run.sites[question.site].name, question.id])];
    const more = list.ends.map(([, value]) => value);
    const ids = ends.map((question) => quoted(question.own_id ?? ''));
    return [...keys, verdicts[place], ...ids, ...ends.map((question) => plain(question.title || '')), ...more].join('\t');
  });
  const text = `${[[...COLUMNS, ...list.ends.map(([column]) => column)].join('\t'), ...lines].join('\n')}\n`;
  return { given: places.filter((place) => verdicts[place]).length, text };
}

// How the pairs judged so far compare with what dupq expected of them.
function tally(list, verdicts) {
  const judged = list.pairs.map((pair, place) => [pair[3], verdicts[place]]).filter(([likely, verdict]) => likely !== undefined && isJudged(verdict) && verdict !== 'unsure');
  const expected = judged.reduce((sum, [likely]) => sum + likely, 0);
  return judged.length ? ` ${judged.filter(([, verdict]) => verdict === 'same').length} of ${judged.length} same; dupq expected ${number(Math.round(10 * expected) / 10)}.` : '';
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
    return given.map((verdict, place) => (isJudged(values[place]) || values[place] === 'undone' ? values[place] : verdict));
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
    const now = state.verdicts.filter((_, place) => !isPast(list, place));
    const judged = now.filter(isJudged).length;
    [bar.value, bar.max] = [judged, now.length || 1];
    const count = (verdict) => now.filter((one) => one === verdict).length;
    const passed = state.place < list.to ? 0 : list.to - list.from;
    progress.textContent = (isPast(list, state.place) ? 'Judged before. ' : `Pair ${state.place - passed + 1} of ${now.length}. `)
      + `${judged} judged: ${count('same')} same, ${count('different')} different, ${count('unsure')} unsure.${tally(list, state.verdicts)}`
      + (judged === now.length && judged ? ` All are judged${list.tell ? '.' : ': save them.'}` : '');
    const [left, right] = list.pairs[state.place].slice(0, 2).map((question) => run.questions[question]);
    const [probability, evidence] = list.pairs[state.place].slice(3);
    const told = evidence ? [element('p', { class: 'note', dir: 'auto' }, `Probability ${score(probability)}: ${evidence}`)] : [];
    const { place } = state;
    source.beside(left, right, (one, other) => place === state.place
      && pair.replaceChildren(...sideBySide(run, one, other), ...told));
    for (const button of panel.querySelectorAll('[data-verdict]')) {
      button.setAttribute('aria-pressed', String(button.dataset.verdict === state.verdicts[state.place]));
    }
    own('undo').disabled = !state.done.length;
    decisions();
  };
  // All that is judged, to be looked at or taken back.
  const decisions = () => {
    const places = [...list.pairs.keys()].filter((place) => isJudged(state.verdicts[place]));
    own('decided').hidden = !places.length;
    own('decided').firstElementChild.textContent = `Your ${counted(places.length, 'decision')}`;
    own('decisions').replaceChildren(...(own('decided').open ? places : []).map((place) => {
      const titles = list.pairs[place].slice(0, 2).map((question) => titleOf(run.questions[question]));
      const button = (label, press) => element('button', { type: 'button', class: 'pair', 'aria-label': `${label}: ${titles.join(' · ')}`, on: { click: press } }, label);
      return element('li', {}, button('Show', () => showAt(place)), ' ',
        button('Take back', () => { give('', place); own('decided').firstElementChild.focus(); }), ' ',
        element('b', {}, words(state.verdicts[place])), ' ', beside(titles));
    }));
  };
  const set = (verdicts) => {
    state.verdicts = verdicts;
    if (list.key) remember(`dupq-${list.key}-${run.run}`, JSON.stringify(verdicts));
  };
  // Give a verdict, or '' to take it back, and tell it to who keeps it; `then` follows.
  const put = (place, verdict, then) => {
    const kept = verdict || (list.pairs[place][2] ? 'undone' : '');
    const ended = () => {
      set(state.verdicts.with(place, kept));
      then();
      show();
    };
    if (!list.tell) ended();
    else if (!state.isTelling) {
      state.isTelling = true;
      const ends = list.pairs[place].slice(0, 2).map((question) => run.questions[question]);
      list.tell(...ends, verdict || 'undone', ended, () => { state.isTelling = false; });
    }
  };
  const give = (verdict, place = state.place) => {
    const before = state.verdicts[place];
    put(place, verdict, () => {
      state.done.push([place, before]);
      const next = verdict ? firstOpen(place + 1) : place;
      if (next >= 0) state.place = next;
    });
  };
  const placeOf = (...ends) => list.pairs.findIndex((pair) => ends.every(({ place }) => pair.slice(0, 2).includes(place)));
  const giveHere = (left, right, verdict, then) => {
    let place = placeOf(left, right);
    if (place < 0) {
      place = list.pairs.push([left.place, right.place, '']) - 1;
      remember(moreOf(run, list), JSON.stringify(list.pairs.slice(listed).map((pair) => pair.slice(0, 2))));
    }
    set(Object.assign([...state.verdicts], { [place]: verdict }));
    show();
    then();
  };
  const showAt = (place) => {
    go(place - state.place);
    panel.scrollIntoView({ block: 'start' });
    panel.focus({ preventScroll: true });
  };
  if (list.name === 'work') source.likely = { pairs: list.pairs, show: showAt };
  if (list.key === 'worklist') source.judge = { give: giveHere, given: (left, right) => state.verdicts[placeOf(left, right)] };
  const undo = () => {
    const [place, verdict] = state.done.at(-1) ?? [];
    if (place !== undefined) put(place, isJudged(verdict) ? verdict : '', () => { state.done.pop(); state.place = place; });
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
  own('undo').addEventListener('click', undo);
  own('decided').addEventListener('toggle', decisions);
  own('whole').addEventListener('click', () => own('whole').setAttribute('aria-pressed', String(panel.classList.toggle('whole'))));
  own('back').addEventListener('click', () => go(-1));
  own('next').addEventListener('click', () => go(1));
  own('export')?.addEventListener('click', () => {
    const { given, text } = sheet(run, list, state.verdicts);
    const name = `${list.file}-${run.run}.tsv`;
    if (given) download(name, text);
    own('saved').textContent = given ? `${counted(given, 'verdict')} saved as ${name}, among your downloads. The next run reads them:` : 'No verdict is given yet.';
    own('command').hidden = !given;
  });
  // after following the link one can judge at once; the link itself takes the focus away first
  document.querySelector(`nav a[href="#${list.name}"]`).addEventListener('click', () => setTimeout(() => panel.focus({ preventScroll: true })));
  state.place = Math.max(firstOpen(0), 0);
  show();
}

function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: 'text/tab-separated-values' }));
  element('a', { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
