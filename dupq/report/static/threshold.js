// What the run would give at another threshold: columns that were counted when the page was made.

const PLOT = { width: 360, height: 150, left: 52, right: 10, top: 10, bottom: 24 };

function plot(title, steps, column, show) {
  const values = steps[column];
  const low = steps.threshold[0], high = steps.threshold[steps.threshold.length - 1];
  const most = Math.max(...values, 1e-9); // null, where there is nothing to show, counts as 0
  const x = (threshold) => PLOT.left + ((threshold - low) / Math.max(high - low, 1e-9)) * (PLOT.width - PLOT.left - PLOT.right);
  const y = (value) => PLOT.height - PLOT.bottom - (value / most) * (PLOT.height - PLOT.top - PLOT.bottom);
  const text = (attributes, said) => drawn('text', { class: 'axis', ...attributes }, said);
  const mark = drawn('line', { class: 'mark', y1: PLOT.top, y2: PLOT.height - PLOT.bottom });
  const point = drawn('circle', { class: 'one', r: 4 });
  const points = values.flatMap((value, place) => (value === null ? [] : `${x(steps.threshold[place]).toFixed(1)},${y(value).toFixed(1)}`));
  const figure = drawn('svg', { class: 'plot', role: 'img', viewBox: `0 0 ${PLOT.width} ${PLOT.height}`, 'aria-label': `${title} by threshold` },
    [0, 0.5, 1].map((part) => [
      drawn('line', { class: 'grid', x1: PLOT.left, x2: PLOT.width - PLOT.right, y1: y(part * most), y2: y(part * most) }),
      text({ x: PLOT.left - 6, y: y(part * most) + 4, 'text-anchor': 'end' }, show(part * most))]),
    [[low, 'start'], [(low + high) / 2, 'middle'], [high, 'end']].map(([at, anchor]) =>
      text({ x: x(at), y: PLOT.height - 6, 'text-anchor': anchor }, at.toFixed(2))),
    drawn('polyline', { class: 'curve', points: points.join(' ') }), mark, point);
  const move = (place) => {
    const at = x(steps.threshold[place]);
    mark.setAttribute('x1', at);
    mark.setAttribute('x2', at);
    point.setAttribute('cx', at);
    point.setAttribute('cy', y(values[place]));
    point.setAttribute('visibility', values[place] === null ? 'hidden' : 'visible');
  };
  return { figure: element('figure', {}, element('figcaption', {}, title), figure), move };
}

function thresholds(run) {
  const { steps } = run;
  const slider = byId('threshold');
  const own = steps.threshold.findLastIndex((threshold) => threshold <= (run.threshold ?? 0) + 1e-9);
  const plots = [
    plot('Questions in clusters', steps, 'questions', (value) => number(Math.round(value))),
    plot('Expected precision of the encoder’s pairs', steps, 'expected', (value) => `${Math.round(100 * value)} %`),
  ];
  byId('threshold-plots').replaceChildren(...plots.map((one) => one.figure));
  const shown = (value, show) => (value === null ? '–' : show(value));
  const columns = { pairs: number, expected: share, known: number, clusters: number, questions: number, largest: number };
  const move = () => {
    const place = Number(slider.value);
    const threshold = steps.threshold[place].toFixed(2);
    for (const [name, show] of Object.entries(columns)) byId(`there-${name}`).textContent = shown(steps[name][place], show);
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
