// The page as it opens.

function theme() {
  const button = byId('theme');
  const names = ['auto', 'light', 'dark'];
  const show = (name) => {
    if (name === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    button.textContent = `Colours: ${name}`;
    button.dataset.name = name;
  };
  const kept = remembered('dupq-theme');
  show(names.includes(kept) ? kept : 'auto');
  button.hidden = false;
  button.addEventListener('click', () => {
    const next = names[(names.indexOf(button.dataset.name) + 1) % names.length];
    show(next);
    remember('dupq-theme', next);
  });
}

function start() {
  theme();
  const run = JSON.parse(byId('run-data').textContent);
  if (run.clusters.length) {
    fillSites(run);
    explorer(run);
  }
  if (run.steps) thresholds(run);
  if (run.review.length) judge(run);
  document.documentElement.dataset.ready = 'yes';
}

start();
