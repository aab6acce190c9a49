// What the run would give at another threshold: columns that were counted when the page was made.

const PLOT = { width: 360, height: 190, left: 52, right: 14, top: 10, bottom: 44 };

const percent = (value) => `${Math.round(100 * value)} %`;
const whole = (value) => number(Math.round(value));
const shownOrDash = (value, show) => (value === null || value === undefined ? '–' : show(value));

// A frame with both axes; `across` and `up` are their ranges, and how values are written.
function frame(title, across, up) {
  const scaled = (value, { low, high }) => (value - low) / Math.max(high - low, 1e-9);
  const x = (value) => PLOT.left + scaled(value, across) * (PLOT.width - PLOT.left - PLOT.right);
  const y = (value) => PLOT.height - PLOT.bottom - scaled(value, up) * (PLOT.height - PLOT.top - PLOT.bottom);
  const text = (attributes, said) => drawn('text', { class: 'axis', ...attributes }, said);
  const between = ({ low, high }, part) => low + part * (high - low);
  const svg = drawn('svg', { class: 'plot', role: 'img', viewBox: `0 0 ${PLOT.width} ${PLOT.height}`, 'aria-label': title },
    [0, 0.5, 1].map((part) => between(up, part)).map((value) => [
      drawn('line', { class: 'grid', x1: PLOT.left, x2: PLOT.width - PLOT.right, y1: y(value), y2: y(value) }),
      text({ x: PLOT.left - 6, y: y(value) + 4, 'text-anchor': 'end' }, up.show(value))]),
    [[0, 'start'], [0.5, 'middle'], [1, 'end']].map(([part, anchor]) => {
      const value = between(across, part);
      return text({ x: x(value), y: PLOT.height - 26, 'text-anchor': anchor }, across.show(value));
    }),
    text({ x: (PLOT.left + PLOT.width - PLOT.right) / 2, y: PLOT.height - 6, 'text-anchor': 'middle' }, across.name));
  const curve = (kind, points) => svg.append(
    drawn('polyline', { class: kind, points: points.map(([one, other]) => `${x(one).toFixed(1)},${y(other).toFixed(1)}`).join(' ') }));
  return { x, y, svg, curve, figure: element('figure', {}, element('figcaption', {}, title), svg) };
}

// The points of two columns where both are known.
const pointsOf = (xs, ys) => xs.flatMap((one, place) => (one === null || ys[place] === null ? [] : [[one, ys[place]]]));

// A vertical line at the threshold of the slider.
function marked(at) {
  const mark = drawn('line', { class: 'mark', y1: PLOT.top, y2: PLOT.height - PLOT.bottom });
  at.svg.append(mark);
  return (threshold) => ['x1', 'x2'].forEach((end) => mark.setAttribute(end, at.x(threshold)));
}

// A point on a curve, at the step of the slider.
function pointed(at, xs, ys) {
  const point = drawn('circle', { class: 'one', r: 5 });
  at.svg.append(point);
  return (place) => {
    const isThere = xs[place] !== null && ys[place] !== null;
    point.setAttribute('visibility', isThere ? 'visible' : 'hidden');
    if (!isThere) return;
    point.setAttribute('cx', at.x(xs[place]));
    point.setAttribute('cy', at.y(ys[place]));
  };
}

function byThreshold(title, steps, column, show) {
  const values = steps[column];
  const [low, high] = [steps.threshold[0], steps.threshold[steps.threshold.length - 1]];
  const at = frame(title, { name: 'threshold', low, high, show: (value) => value.toFixed(2) }, { low: 0, high: Math.max(...values, 1e-9), show });
  at.curve('curve', pointsOf(steps.threshold, values));
  const [mark, point] = [marked(at), pointed(at, steps.threshold, values)];
  return { figure: at.figure, move: (place) => { mark(steps.threshold[place]); point(place); } };
}

// Precision against recall: the expected precision, and below it the share of linked pairs, a lower bound.
function precisionByRecall(steps) {
  const most = Math.max(...steps.found, 0.01);
  const at = frame('Expected precision, and how many known duplicates are found', { name: 'known duplicates found', low: 0, high: most, show: share }, { low: 0, high: 1, show: percent });
  at.curve('curve', pointsOf(steps.found, steps.expected));
  at.curve('curve lower', pointsOf(steps.found, steps.linked));
  return { figure: at.figure, move: pointed(at, steps.found, steps.expected) };
}

function plotsOf(run) {
  const { steps } = run;
  const plots = [
    byThreshold('Questions in clusters', steps, 'questions', whole),
    byThreshold('Expected precision of the encoder’s pairs', steps, 'expected', percent),
  ];
  if (steps.found) plots.push(precisionByRecall(steps));
  return plots;
}

function thresholds(run) {
  const { steps } = run;
  const slider = byId('threshold');
  const own = steps.threshold.findLastIndex((threshold, place) => threshold <= (run.threshold ?? 0) + 1e-9 && steps.pairs[place]);
  const plots = plotsOf(run);
  byId('threshold-plots').replaceChildren(...plots.map((one) => one.figure));
  const columns = { pairs: number, expected: share, known: number, found: share, clusters: number, questions: number, largest: number };
  const move = () => {
    const place = Number(slider.value);
    const threshold = steps.threshold[place].toFixed(2);
    for (const [name, show] of Object.entries(columns)) byId(`there-${name}`).textContent = shownOrDash(steps[name]?.[place], show);
    byId('threshold-value').textContent = threshold;
    byId('threshold-setting').textContent = `--set clusters.threshold=${threshold}`;
    slider.setAttribute('aria-valuetext', `${threshold}: ${counted(steps.pairs[place], 'pair')}, `
      + `${counted(steps.clusters[place], 'cluster')} of ${counted(steps.questions[place], 'question')}`);
    plots.forEach((one) => one.move(place));
  };
  slider.max = steps.threshold.length - 1;
  slider.value = Math.max(own, 0);
  slider.addEventListener('input', move);
  move();
}
