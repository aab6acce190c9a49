// Elements and numbers. Texts of questions are hostile: they become text nodes, never markup.

const SVG = 'http://www.w3.org/2000/svg';

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'on') for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

const element = (tag, attributes = {}, ...children) => build(document.createElement(tag), attributes, children);
const drawn = (tag, attributes = {}, ...children) => build(document.createElementNS(SVG, tag), attributes, children);
const byId = (id) => document.getElementById(id);

const number = (value) => value.toLocaleString('en-US');
const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? '' : 's'}`;
const score = (value) => value.toFixed(3);
const scoreOrDash = (value) => (value === undefined ? '–' : score(value));
const share = (value) => `${(100 * value).toFixed(1)} %`;
const words = (name) => name.replaceAll('_', ' ').replace(/^./, (letter) => letter.toUpperCase());

// A browser may refuse storage to a page opened from a file; then verdicts last as long as the page.
function remembered(key) {
  try { return localStorage.getItem(key); } catch { return null; }
}

function remember(key, value) {
  try { localStorage.setItem(key, value); } catch { /* kept in memory only */ }
}
