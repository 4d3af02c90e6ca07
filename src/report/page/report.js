// Fills the page from its embedded JSON. Text goes in through textContent only.
'use strict';

function showImage(parent, url, text) {
  const image = element(parent, 'img');
  image.alt = text;
  image.onload = () => image.classList.toggle('small', image.naturalWidth < 112);
  image.src = url;
  return image;
}

// The position of an event in the run: "step 240 of 400", or before the first step.
function place(step) {
  const total = data.total_steps || data.steps[1];
  return step === 0 ? 'before step 1' :
    'step ' + short(step) + (total ? ' of ' + short(total) : '');
}

const kSentences = ['what', 'reason', 'text'];

function fillAlarms() {
  const alarms = data.events.filter((event) => event.alarm);
  const section = document.getElementById('alarms');
  section.hidden = alarms.length === 0;
  section.querySelector('small').textContent = alarms.length > 1 ? String(alarms.length) : '';
  const total = data.total_steps || data.steps[1];
  for (const event of alarms) {
    const card = element(section.querySelector('.alarms'), 'article', undefined,
      'card' + (data.alarms.includes(event.step) ? '' : ' mild'));
    const head = element(card, 'header');
    element(head, 'h3', event.name.replaceAll('_', ' '));
    element(head, 'span', place(event.step));
    element(head, 'i', undefined, 'place').style.setProperty('--at', event.step / total);
    const rest = [];
    for (const [key, value] of event.fields) {
      if (kSentences.includes(key)) element(card, 'p', short(value));
      else if (key !== 'next') rest.push(key.replaceAll('_', ' ') + ' ' + short(value));
    }
    if (rest.length > 0) element(card, 'p', rest.join('  ·  '), 'next');
    for (const [key, value] of event.fields)
      if (key === 'next') element(card, 'p', 'Next: ' + short(value), 'next');
    if (event.image) showImage(card, event.image, 'image of the row at fault');
  }
}

function fillEvents() {
  const events = data.events.filter((event) => !event.alarm);
  document.getElementById('events').hidden = events.length === 0 && data.hidden_events === 0;
  document.querySelector('#event-list summary').textContent =
    events.length + (events.length === 1 ? ' event' : ' events') +
    (data.hidden_events > 0 ? ', ' + short(data.hidden_events) + ' more in metrics.jsonl' : '');
  const body = document.querySelector('#event-list tbody');
  for (const event of events) {
    const row = element(body, 'tr');
    element(row, 'td', event.step);
    element(row, 'td', event.name.replaceAll('_', ' '));
    const fields = event.fields.map(([key, value]) => (
      key.replaceAll('_', ' ') + ' ' + short(value)));
    element(row, 'td', fields.join('  ·  '));
  }
}

// The last answer: the finished run's, or that of the last evaluation.
function fillAnswer(list, one) {
  const waits = one.answer === null;
  const said = (answer) => (answer === '' ? '(nothing)' : answer);
  element(list, 'dt', one.pair ? 'chosen' : 'expected');
  element(list, 'dd', one.reference);
  if (one.pair) {
    element(list, 'dt', 'rejected');
    element(list, 'dd', one.pair.rejected);
  }
  if (one.before !== null) {
    element(list, 'dt', one.pair ? 'model before' : 'before');
    element(list, 'dd', said(one.before), 'before');
  }
  for (const [step, answer] of one.pair ? [] : one.evaluations) {
    element(list, 'dt', 'step ' + step);
    element(list, 'dd', said(answer), 'before');
  }
  if (one.pair && waits) return;
  const time = one.answered_at ? 'step ' + one.answered_at : 'after';
  element(list, 'dt', one.pair ? 'model ' + (one.answered_at ? 'at ' : '') + time : time);
  element(list, 'dd', waits ? 'not answered yet' : said(one.answer),
    waits || one.pair ? 'before' : 'got');
}

// The log-probabilities of the two answers of a pair, and the margin of their rewards.
function fillPair(card, pair) {
  const table = element(element(card, 'div', undefined, 'pair'), 'table');
  const head = element(element(table, 'thead'), 'tr'), body = element(table, 'tbody');
  for (const name of ['log p', 'chosen', 'rejected', 'margin']) element(head, 'th', name);
  for (const [time, ...figures] of pair.rows) {
    const row = element(body, 'tr');
    element(row, 'td', time);
    for (const figure of figures)
      element(row, 'td', figure === null ? '–' : String(Number(figure.toPrecision(3))));
  }
}

const kOfAnswers = {title: 'Answers', right: '✓ match', wrong: '✗ differs',
  count: (right, all) => right + ' of the ' + all + ' shown match exactly'};
const kOfPairs = {title: 'Pairs', right: '✓ margin above 0', wrong: '✗ margin below 0',
  count: (right, all) => (
    'the margin is above 0 in ' + right + ' of the ' + all + ' shown')};

function fillAnswers() {
  const section = document.getElementById('answers');
  section.hidden = data.answers.length === 0;
  const judged = (one) => (one.pair ? one.pair.judged : one.answer !== null);
  const words = data.answers.some((one) => one.pair) ? kOfPairs : kOfAnswers;
  section.querySelector('h2').firstChild.data = words.title;
  const right = data.answers.filter((one) => one.right).length;
  section.querySelector('small').textContent =
    (data.answers_of ? data.answers_of + ': ' : '') + (!data.answers.some(judged) ?
      'before training' : words.count(right, data.answers.length));
  const list = section.querySelector('.answers');
  for (const one of data.answers) {
    const card = element(list, 'article', undefined, 'card answer ' +
      (!judged(one) ? '' : one.right ? 'right' : 'wrong') + (one.image ? '' : ' text'));
    if (one.image) {
      const image = showImage(card, one.image, 'image of ' + one.id);
      image.onclick = () => card.classList.toggle('zoomed');
    }
    const side = element(card, 'div');
    const head = element(side, 'header');
    element(head, 'span', one.id);
    if (judged(one)) element(head, 'span', one.right ? words.right : words.wrong, 'badge');
    element(side, 'p', one.question);
    fillAnswer(element(side, 'dl'), one);
    if (one.note) element(side, 'p', one.note, 'note');
    if (one.pair) fillPair(card, one.pair);
  }
}

// The head of a run's page. A page that was written during the run reloads itself, and says since
// when nothing was written: the process may have been killed.
const kGood = ['learnt', 'still_falling', 'known'];
const kPoor = ['failed', 'diverged', 'nothing_learnt', 'ignores_images', 'at_half'];

function fillState() {
  if (!data.state) return;
  const state = document.getElementById('state');
  state.hidden = false;
  state.className = 'state ' + data.state;
  state.textContent = data.state === 'running' ? 'in progress' : data.state;
  const verdict = document.getElementById('verdict'), kind = data.verdict.kind;
  verdict.hidden = false;
  verdict.textContent = data.verdict.text;
  verdict.classList.add(kGood.includes(kind) ? 'good' : kPoor.includes(kind) ? 'poor' :
    kind === 'running' ? 'open' : 'fair');
}

function ago(seconds) {
  if (seconds < 90) return Math.max(0, Math.round(seconds)) + ' s ago';
  return seconds < 5400 ? Math.round(seconds / 60) + ' min ago' :
    Math.round(seconds / 3600) + ' h ago';
}

function fillUnder() {
  const written = new Date(data.written * 1000);
  const age = Date.now() / 1000 - data.written;
  const running = data.state === 'running';
  const late = running && age > 3 * data.slowest_s + 60;
  document.getElementById('under').textContent = data.under + ' · written ' +
    written.toLocaleString() + (running ? ' (' + ago(age) + ')' : '') +
    (late ? ': since then nothing was written, the process may have been killed' : '');
  if (late) {
    const state = document.getElementById('state');
    state.className = 'state stopped';
    state.textContent = 'no longer written';
  }
}

// Reloads restore which parts are open.
function keepOpen() {
  for (const part of document.querySelectorAll('details')) {
    const key = location.pathname + '#' + part.id;
    try {
      part.open = sessionStorage.getItem(key) === 'open';
      part.ontoggle = () => sessionStorage.setItem(key, part.open ? 'open' : '');
    } catch (error) {
      return;  // the browser keeps nothing for this page
    }
  }
}

function fillText(id, text) {
  const block = document.getElementById(id);
  block.hidden = text === '';
  block.querySelector('pre').textContent = text;
}

for (const [name, value] of data.facts) {
  const card = element(document.getElementById('facts'), 'div', undefined, 'card');
  element(card, 'dt', name);
  const shown = element(card, 'dd');
  value.split('/').forEach((part, i) => {  // a path is broken after its slashes
    if (i > 0) shown.append('/', document.createElement('wbr'));
    shown.append(part);
  });
}
for (const [name, value] of data.details) {
  const row = element(document.querySelector('#details tbody'), 'tr');
  element(row, 'td', name);
  element(row, 'td', value);
}
fillState();
fillUnder();
fillAnswers();
fillAlarms();
fillEvents();
fillText('recipe', data.recipe);
fillText('environment', data.environment);
document.getElementById('details').hidden = data.details.length === 0;
document.getElementById('sources').hidden =
  data.recipe === '' && data.environment === '' && data.details.length === 0;
keepOpen();
if (data.state === 'running') {
  setInterval(fillUnder, 5000);
  setTimeout(() => location.reload(), 20000);
}
draw();
drawMaps();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawMaps);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
