// What a pair's score is made of: the vectors' part, then what each shared word adds.

const FALL = { value: 70, row: 24 };

// A narrow screen has a narrow picture, so that its letters stay as large.
const fallSize = () => (matchMedia('(max-width: 44rem)').matches ? { width: 340, label: 110 } : { width: 560, label: 150 });

function stepsOf(parts) {
  const steps = [{ label: 'Vectors', value: parts.dense, kind: 'one' }];
  for (const [word, value] of parts.words) steps.push({ label: word, value, kind: 'two' });
  if (parts.others) steps.push({ label: counted(parts.others, 'other word'), value: parts.rest, kind: 'two' });
  return steps;
}

function waterfall(pair) {
  const steps = stepsOf(pair.parts);
  let end = 0;
  const rows = steps.map((step) => {
    const start = end;
    end += step.value;
    return { ...step, start, end };
  });
  rows.push({ label: 'Score', value: end, start: 0, end, kind: 'three' });
  const low = Math.min(0, ...rows.map((row) => row.end)), high = Math.max(...rows.map((row) => row.end), low + 1e-6);
  const { width, label } = fallSize();
  const across = (value) => label + ((value - low) / (high - low)) * (width - label - FALL.value);
  const said = rows.map((row) => `${row.label}: ${row.value.toFixed(3)}`).join('; ');
  return drawn('svg', {
    class: 'waterfall', role: 'img', viewBox: `0 0 ${width} ${rows.length * FALL.row}`,
    'aria-label': `What the score is made of. ${said}`,
  }, rows.map((row, index) => fallRow(row, index * FALL.row, label, across, index + 1 < rows.length)));
}

function fallRow(row, top, label, across, goesOn) {
  const from = Math.min(across(row.start), across(row.end));
  const width = Math.max(1.5, Math.abs(across(row.end) - across(row.start)));
  const sign = row.kind === 'two' && row.value >= 0 ? '+' : '';
  return drawn('g', {},
    drawn('text', { class: 'label', x: label - 10, y: top + 16, 'text-anchor': 'end' }, row.label),
    drawn('rect', { class: row.kind, x: from, y: top + 4, width, height: FALL.row - 8, rx: 2 }),
    goesOn ? drawn('line', { class: 'grid', x1: across(row.end), x2: across(row.end), y1: top + 4, y2: top + FALL.row + 4 }) : null,
    drawn('text', { x: from + width + 8, y: top + 16 }, `${sign}${row.value.toFixed(3)}`));
}
