// Set up the page when it opens.

// Scrollable elements can be focused by keys, and are named by the heading before them.
function reachable() {
  let heading = '';
  for (const node of document.querySelectorAll('h2, h3, h4, .scroll, .members')) {
    if (node.tagName.startsWith('H')) heading = node.textContent;
    else nameIf(node, node.scrollWidth > node.clientWidth || node.scrollHeight > node.clientHeight, heading);
  }
}

function nameIf(box, scrolls, heading) {
  const attributes = { tabindex: '0', role: 'region', 'aria-label': `${heading}, scrolls` };
  for (const [key, value] of Object.entries(attributes)) {
    if (scrolls) box.setAttribute(key, value);
    else box.removeAttribute(key);
  }
}

function start() {
  const run = JSON.parse(byId('run-data').textContent);
  const source = sourceOf(run);
  // first, as the explorer shows verdict buttons once there is something to judge
  for (const list of [worklistOf(run, source), sampleOf(run)]) if (list.pairs.length) judge(run, source, list);
  if (byId('filters')) {
    fillSites(run, source.sites);
    explorer(run, source);
  }
  if (run.steps) thresholds(run);
  source.start?.();
  reachable();
  addEventListener('resize', reachable);
  document.documentElement.dataset.ready = 'yes';
}

start();
