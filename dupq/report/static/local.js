// The clusters in the page's data, and the queries on them.

const SIZES = { two: [2, 2], few: [3, 5], many: [6, 20], most: [21, Infinity] };
const CERTAINTIES = { sure: [0.9, 1.1], likely: [0.7, 0.9], fair: [0.5, 0.7], doubtful: [0, 0.5] };
const SORTS = {
  telling: null,
  largest: (one, other) => other.size - one.size,
  least: (one, other) => one.weakest_link - other.weakest_link,
  most: (one, other) => other.weakest_link - one.weakest_link,
};

const isInMeaning = (run, pair) => pair.source === 'encoder'
  && (pair.title_overlap ?? 1) < run.meaning[0] && (pair.text_overlap ?? 1) < run.meaning[1];

// The values of a cluster that filters test, computed once.
function indexed(run, cluster) {
  const questions = cluster.questions.map((place) => run.questions[place]);
  const { text, ids } = searched(run, questions);
  return {
    cluster, text, ids: ids.add(cluster.id.toLowerCase()),
    title: titleOf(questions[0]),
    sites: new Set(questions.map((question) => question.site)),
    sources: [...new Set(cluster.pairs.map((pair) => pair.source))],
    known: cluster.pairs.some((pair) => pair.known),
    meaning: cluster.pairs.some((pair) => isInMeaning(run, pair)),
  };
}

function isWanted(entry, asked) {
  const within = (value, range) => !range || (value >= range[0] && value <= range[1]);
  const { cluster } = entry;
  const sure = CERTAINTIES[asked.certainty];
  return hasWords(entry, asked.words)
    && (asked.site === '' || entry.sites.has(Number(asked.site)))
    && within(cluster.size, SIZES[asked.size])
    && (!sure || (cluster.weakest_link >= sure[0] && cluster.weakest_link < sure[1]))
    && (asked.evidence === '' || (asked.evidence === 'known' ? entry.known : entry.sources.includes(asked.evidence)))
    && (!asked.change || (asked.change === 'any' ? cluster.changes.length > 0 : cluster.changes.includes(asked.change)))
    && (!asked.meaning || entry.meaning);
}

function sourceOf(run) {
  const entries = run.clusters.map((cluster) => indexed(run, cluster));
  const used = new Set(entries.flatMap((entry) => [...entry.sites]));
  let last = { asked: null, wanted: [] };
  return {
    count: entries.length,
    sites: run.sites.map((_, place) => place).filter((place) => used.has(place)),
    find(asked, from, open, then) {
      if (last.asked !== asked) {
        last = { asked, wanted: entries.filter((entry) => isWanted(entry, asked)) };
        if (SORTS[asked.sort]) last.wanted.sort((one, other) => SORTS[asked.sort](one.cluster, other.cluster));
      }
      const { wanted } = last;
      then({ total: wanted.length, entries: wanted.slice(from, from + SHOWN), isOpenFound: wanted.includes(open) });
    },
    cluster({ cluster }, then) {
      then({ ...cluster, questions: cluster.questions.map((place) => ({ ...run.questions[place], place })) });
    },
    compared: (cluster, pair, then) => then(...pair.ends.map((end) => cluster.questions[end]), pair),
    beside: (left, right, then) => then(left, right),
  };
}
