// How evidence becomes a probability: what each kind adds to the log-odds, one after the other.

const FALL = { value: 60, row: 24 };

// On a narrow screen the picture is narrow, so that its letters stay readable.
const fallSize = () => (matchMedia('(max-width: 44rem)').matches ? { width: 360, label: 170 } : { width: 620, label: 230 });

function waterfall(pair) {
  let end = 0;
  const rows = pair.odds.map(([label, value]) => {
    const start = end;
    end += value;
    return { label, value, start, end, kind: value < 0 ? 'one' : 'two' };
  });
  rows.push({ label: `probability ${score(pair.probability)}`, value: end, start: 0, end, kind: 'three' });
  const low = Math.min(0, ...rows.map((row) => row.end)), high = Math.max(0.1, ...rows.map((row) => row.end));
  const { width, label } = fallSize();
  const across = (value) => label + ((value - low) / (high - low)) * (width - label - FALL.value);
  const said = rows.map((row) => `${row.label}: ${row.value.toFixed(2)}`).join('; ');
  return drawn('svg', {
    class: 'waterfall', role: 'img', viewBox: `0 0 ${width} ${rows.length * FALL.row}`, 'aria-label': `What the probability is made of. ${said}`,
  }, rows.map((row, index) => fallRow(row, index * FALL.row, label, across)));
}

function fallRow(row, top, label, across) {
  const from = Math.min(across(row.start), across(row.end));
  const width = Math.max(1.5, Math.abs(across(row.end) - across(row.start)));
  return drawn('g', {},
    drawn('text', { class: 'label', x: label - 10, y: top + 16, 'text-anchor': 'end' }, row.label),
    drawn('rect', { class: row.kind, x: from, y: top + 4, width, height: FALL.row - 8, rx: 2 }),
    drawn('text', { x: from + width + 6, y: top + 16 }, `${row.value >= 0 ? '+' : ''}${row.value.toFixed(2)}`));
}
