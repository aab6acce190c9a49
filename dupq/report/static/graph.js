// The graph of a cluster: questions as numbered dots, pairs as lines, as thick as they are probable.

const GRAPH = { width: 420, margin: 26, steps: 300, crowd: 16 };

const isCrowd = (count) => count > GRAPH.crowd;
const heightOf = (count) => (count === 2 ? 120 : isCrowd(count) ? 400 : 280);

// Positions by forces (Fruchterman and Reingold 1991) from a circle, so that the same cluster always looks the same.
function laidOut(count, pairs) {
  const places = Array.from({ length: count }, (_, index) => {
    const angle = (2 * Math.PI * index) / count;
    return { x: Math.cos(angle), y: Math.sin(angle) };
  });
  const ideal = 1.6 / Math.sqrt(count);
  for (let step = 0; step < GRAPH.steps; step += 1) {
    const moves = places.map(() => ({ x: 0, y: 0 }));
    const push = (one, other, force) => {
      const x = places[one].x - places[other].x, y = places[one].y - places[other].y;
      const distance = Math.max(Math.hypot(x, y), 1e-3);
      const by = force(distance) / distance;
      moves[one].x += x * by; moves[one].y += y * by;
      moves[other].x -= x * by; moves[other].y -= y * by;
    };
    for (let one = 0; one < count; one += 1) {
      for (let other = 0; other < one; other += 1) push(one, other, (distance) => (ideal * ideal) / distance);
    }
    for (const pair of pairs) push(pair.ends[0], pair.ends[1], (distance) => -(distance * distance) / ideal);
    const most = 0.12 * (1 - step / GRAPH.steps);
    moves.forEach((move, index) => {
      const length = Math.max(Math.hypot(move.x, move.y), 1e-9);
      places[index].x += (move.x / length) * Math.min(length, most);
      places[index].y += (move.y / length) * Math.min(length, most);
    });
  }
  return fitted(places);
}

function fitted(places) {
  const { width, margin } = GRAPH;
  const height = heightOf(places.length);
  const [xs, ys] = [places.map((place) => place.x), places.map((place) => place.y)];
  const [left, top] = [Math.min(...xs), Math.min(...ys)];
  const spread = Math.max((Math.max(...xs) - left) / (width - 2 * margin), (Math.max(...ys) - top) / (height - 2 * margin), 1e-9);
  const dx = (width - (Math.max(...xs) - left) / spread) / 2, dy = (height - (Math.max(...ys) - top) / spread) / 2;
  return places.map(({ x, y }) => ({ x: dx + (x - left) / spread, y: dy + (y - top) / spread }));
}

const placesOf = (cluster) => (cluster.questions.length === 2
  ? [{ x: 90, y: 60 }, { x: 330, y: 60 }] : laidOut(cluster.questions.length, cluster.pairs));

function graphOf(cluster, places, chosen, choose) {
  const height = heightOf(cluster.questions.length);
  const said = `Graph of ${counted(cluster.questions.length, 'question')} and ${counted(cluster.pairs.length, 'pair')};`
    + ' the table of pairs says the same.';
  return drawn('svg', { class: isCrowd(cluster.questions.length) ? 'graph crowd' : 'graph', viewBox: `0 0 ${GRAPH.width} ${height}`, role: 'img', 'aria-label': said },
    cluster.pairs.map((pair) => line(pair, places, pair === chosen, () => choose(pair))),
    cluster.questions.map((_, index) => dot(index, places[index], chosen && chosen.ends.includes(index))));
}

// The legend of the colours and lines that occur in the graph.
function legendOf(cluster) {
  const sources = [...new Set(cluster.pairs.map((pair) => pair.source))];
  return element('p', { class: 'legend note' },
    sources.map((source) => element('span', { class: `key ${source}` }, SOURCES[source] || words(source))),
    element('span', { class: 'key shown' }, 'Pair compared below'),
    element('span', { class: 'key kept' }, 'Question to keep'));
}

function line(pair, places, isChosen, choose) {
  const [from, to] = pair.ends.map((end) => places[end]);
  const ends = { x1: from.x, y1: from.y, x2: to.x, y2: to.y };
  const sure = pair.source === 'encoder' ? `, probability ${score(pair.probability)}` : '';
  const title = `${pair.ends[0] + 1} – ${pair.ends[1] + 1}: ${SOURCES[pair.source] || words(pair.source)}${sure}`;
  return drawn('g', { class: `edge ${pair.source}${isChosen ? ' chosen' : ''}`, on: { click: choose } },
    drawn('title', {}, title),
    drawn('line', { ...ends, class: 'touch' }),
    drawn('line', { ...ends, 'stroke-width': 1 + 4 * pair.probability }));
}

function dot(index, place, isChosen) {
  const kind = `dot${index === 0 ? ' canonical' : ''}${isChosen ? ' chosen' : ''}`;
  return drawn('g', { class: kind },
    drawn('circle', { cx: place.x, cy: place.y, r: 12 }),
    drawn('text', { x: place.x, y: place.y + 4, 'text-anchor': 'middle' }, String(index + 1)));
}
