// The page's data and curves; report.js, in the same script element, fills the rest.
'use strict';

const data = JSON.parse(document.getElementById('data').textContent);

function element(parent, tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  parent.appendChild(made);
  return made;
}

function short(value) {
  if (value === null || value === undefined) return 'non-finite';
  if (typeof value !== 'number') {
    const text = typeof value === 'object' ? JSON.stringify(value) : String(value);
    return text.length > 800 ? text.slice(0, 800) + '…' : text;
  }
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString('en-US');
  const size = Math.abs(value);
  return size >= 1e-3 && size < 1e6 ? String(Number(value.toPrecision(5))) : value.toExponential(2);
}

// Axis labels: 0.0002 as 2e-4, 12000 as 12k.
function tick(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-2 || size >= 1e6))
    return Number(value.toPrecision(3)).toExponential().replace('e+', 'e');
  return size >= 1e4 ? value / 1e3 + 'k' : String(Number(value.toPrecision(6)));
}

// Two lines of an objective of preferences, each with the dots of the evaluations.
function preference(id, title, lines, zero) {
  const has = (key) => (data.series[key] || []).length > 0;
  const evaluated = lines.some(({key}) => has('held-out ' + key));
  const series = lines.flatMap(({key, name, color}) => [
    {key, name, color, width: 2},
    {key: 'held-out ' + key, color, width: 0, points: true}]);
  return {id, title, zero, optional: true, unit: evaluated ? 'dots: held-out' : '',
    series: has(lines[0].key) ? series : []};
}

// A figure of the routers of experts, with a sentence that says what it is.
function experts(key, title, unit, color) {
  const has = (data.series[key] || []).length > 0;
  return {id: key, title, unit, zero: true, optional: true,
    series: has ? [{key, name: 'step', color, width: 1.3}] : []};
}

function sides(key) {
  return [{key: key + '_chosen', name: 'chosen', color: '--loss'},
    {key: key + '_rejected', name: 'rejected', color: '--eval'}];
}

const kCharts = [
  {id: 'loss', title: 'Loss', series: [
    {key: 'loss', name: 'step', color: '--faint', width: 1.2},
    {key: 'loss_smooth', name: 'smoothed', color: '--loss', width: 2},
    {key: 'eval_loss', name: 'held-out', color: '--eval', width: 2, points: true}]},
  preference('margin', 'Reward margin',
    [{key: 'reward_margin', name: 'smoothed', color: '--lr'}], true),
  preference('accuracy', 'Reward accuracy',
    [{key: 'reward_accuracy', name: 'smoothed', color: '--norm'}]),
  preference('rewards', 'Rewards', sides('rewards')),
  preference('logps', 'Log-probability of an answer', sides('logps')),
  {id: 'lr', title: 'Learning rate', series: [
    {key: 'lr', name: 'base group', color: '--lr', width: 2}].concat(
    Object.keys(data.series).filter((key) => key.startsWith('lr ')).map((key, i) => (
      {key, name: key.slice(3), color: ['--eval', '--norm', '--speed', '--loss'][i % 4],
        width: 2})))},
  {id: 'grad_norm', title: 'Gradient norm', log: true, series: [
    {key: 'grad_norm', name: 'before clipping, log scale', color: '--norm', width: 1.3}]},
  experts('expert_load', 'Expert load',
    'The busiest expert of any layer computed this many times its equal share; 1 is balanced.',
    '--lr'),
  experts('experts_unused', 'Unused experts',
    'The share of the experts of all layers that computed no token of the step.', '--eval'),
  experts('balance_loss', 'Load balancing loss',
    'Added to the loss with the weight of config.json; the number of choices if balanced.',
    '--norm'),
  {id: 'sources', title: 'Loss by source, smoothed', optional: true, series:
    Object.keys(data.series).filter((key) => key.startsWith('loss of ')).map((key, i) => (
      {key, name: key.slice(8), color: ['--loss', '--eval', '--norm', '--speed', '--lr'][i % 5],
        width: 2}))},
  {id: 'speed', title: 'Throughput', zero: true, series: [
    {key: 'tokens_per_s', name: 'tokens/s', color: '--speed', width: 1.3}]},
];

// Dashed lines at the steps where something went wrong.
const kAlarms = {
  id: 'alarms',
  beforeDatasetsDraw(chart) {
    const {ctx, chartArea, scales} = chart;
    ctx.save();
    ctx.strokeStyle = css('--mark');
    ctx.setLineDash([4, 4]);
    for (const step of data.alarms) {
      const x = scales.x.getPixelForValue(step);
      if (x < chartArea.left || x > chartArea.right) continue;
      ctx.beginPath();
      ctx.moveTo(x, chartArea.top);
      ctx.lineTo(x, chartArea.bottom);
      ctx.stroke();
    }
    ctx.restore();
  },
};

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function points(key, log) {
  return (data.series[key] || []).map(([x, y]) => (
    {x, y: y === null || (log && y <= 0) ? NaN : y}));
}

function dataset(one, log) {
  const line = points(one.key, log);
  return {
    label: one.name || 'held-out', data: line, borderColor: css(one.color),
    backgroundColor: css(one.color), borderWidth: one.width, showLine: one.width > 0,
    pointRadius: one.points || line.length === 1 ? 3.5 : 0, pointHitRadius: 6, tension: 0, clip: 6,
  };
}

// 1, 2 and 5 of each decade; over more than three decades the powers of ten only.
function roundTicks(axis) {
  const wide = axis.max / axis.min > 1e3;
  axis.ticks = axis.ticks.filter(({value}) => (
    wide ? ['1'] : ['1', '2', '5']).includes(value.toExponential()[0]));
}

function options(chart, steps) {
  const grid = {color: css('--grid'), borderColor: css('--line')};
  return {
    animation: false, parsing: false, normalized: true, responsive: true,
    maintainAspectRatio: false,
    interaction: {mode: 'nearest', axis: 'x', intersect: false},
    plugins: {
      legend: {display: false},
      tooltip: {callbacks: {
        title: (items) => 'step ' + items[0].parsed.x,
        label: (item) => item.dataset.label + ': ' + short(item.parsed.y)}},
    },
    scales: {
      x: {
        type: 'linear', min: steps[0], max: steps[1], grid,
        ticks: {
          color: css('--dim'), maxTicksLimit: 8, precision: 0, maxRotation: 0, callback: tick}},
      y: {
        type: chart.log ? 'logarithmic' : 'linear', beginAtZero: Boolean(chart.zero), grid,
        afterBuildTicks: chart.log ? roundTicks : undefined,
        ticks: {color: css('--dim'), maxTicksLimit: 7, callback: tick},
      },
    },
  };
}

let drawn = [];
function draw() {
  for (const chart of drawn) chart.destroy();
  const root = document.getElementById('charts');
  root.replaceChildren();
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  drawn = kCharts.filter((chart) => !chart.optional || chart.series.length > 0).map((chart) => {
    const figure = element(root, 'figure', undefined, 'card');
    const caption = element(figure, 'figcaption', chart.title);
    const plot = element(figure, 'div', undefined, 'plot');
    const shown = chart.series.filter((one) => (data.series[one.key] || []).length > 0);
    if (shown.length === 0) {
      element(plot, 'div', 'no step recorded', 'none');
      return null;
    }
    for (const one of shown.filter(({name}) => name))
      element(caption, 'span', one.name, 'key').style.setProperty('--c', css(one.color));
    if (chart.unit) element(caption, 'span', chart.unit, 'unit');
    const canvas = element(plot, 'canvas');
    canvas.id = 'chart-' + chart.id;
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', chart.title + ' over steps');
    return new Chart(canvas, {
      type: 'line', data: {datasets: shown.map((one) => dataset(one, chart.log)).reverse()},
      options: options(chart, data.steps), plugins: [kAlarms],
    });
  }).filter(Boolean);
  document.body.dataset.charts = drawn.length;
}

// Layers x steps. Colour is the logarithm of the value; zero and non-finite values have the alarm
// colour, absent values have none.
const kMaps = [
  {key: 'layer_grad_norms', title: 'Gradient norm by layer', unit: 'L2 before clipping, log scale'},
  {key: 'layer_activation_norms', title: 'Activation norm by layer',
    unit: 'RMS of the output, log scale'},
];
const kColours = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

function colour(share) {
  const at = Math.min(Math.max(share, 0), 1) * (kColours.length - 1);
  const low = Math.min(Math.floor(at), kColours.length - 2);
  const mixed = kColours[low].map((value, i) => (
    Math.round(value + (kColours[low + 1][i] - value) * (at - low))));
  return 'rgb(' + mixed.join(' ') + ')';
}

function drawMap(root, one) {
  const map = data.layers[one.key];
  if (!map) return;
  const figure = element(root, 'figure', undefined, 'card');
  const caption = element(figure, 'figcaption', one.title);
  element(caption, 'span', one.unit, 'unit');
  const finite = map.values.flat().filter((value) => typeof value === 'number' && value > 0);
  const low = Math.log(Math.min(...finite)), high = Math.log(Math.max(...finite));
  const share = (value) => (high > low ? (Math.log(value) - low) / (high - low) : 0.5);
  if (finite.length > 0) {
    const scale = element(caption, 'span', undefined, 'scale');
    element(scale, 'span', short(Number(Math.exp(low).toPrecision(2))));
    element(scale, 'i').style.background =
      'linear-gradient(90deg,' + [0, 0.25, 0.5, 0.75, 1].map(colour) + ')';
    element(scale, 'span', short(Number(Math.exp(high).toPrecision(2))));
  }
  const canvas = element(figure, 'canvas'), said = element(figure, 'output', ' ');
  canvas.id = 'map-' + one.key;
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', one.title + ' over steps');
  const rows = map.rows.length, columns = map.steps.length, top = 4, below = 22;
  const cell = Math.min(Math.max(Math.floor(216 / rows), 7), 24);
  const ratio = window.devicePixelRatio || 1;
  const width = figure.clientWidth - 32, height = top + cell * rows + below;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = height + 'px';
  const ctx = canvas.getContext('2d');
  ctx.scale(ratio, ratio);
  ctx.font = '12px ' + getComputedStyle(document.body).fontFamily;
  ctx.textBaseline = 'middle';
  const labels = map.rows.map((label) => (label.length > 22 ? '…' + label.slice(-21) : label));
  const left = Math.max(...labels.map((label) => ctx.measureText(label).width)) + 8;
  const step = (width - left) / columns;
  const every = Math.ceil(13 / cell);
  for (let row = 0; row < rows; ++row) {
    const y = top + cell * row;
    ctx.fillStyle = css('--dim');
    ctx.textAlign = 'right';
    if (row % every === 0) ctx.fillText(labels[row], left - 6, y + cell / 2);
    for (let column = 0; column < columns; ++column) {
      const value = map.values[row][column];
      if (value === false) continue;
      ctx.fillStyle = value > 0 ? colour(share(value)) : css('--mark');
      ctx.fillRect(left + step * column, y, Math.ceil(step + 0.5) - (step > 12 ? 2 : 0),
        cell - (cell > 9 ? 1 : 0));
    }
  }
  ctx.fillStyle = css('--dim');
  ctx.textAlign = 'center';
  let free = left - 1;
  for (let column = 0; column < columns; ++column) {
    const text = tick(map.steps[column]), half = ctx.measureText(text).width / 2;
    const x = Math.min(left + step * (column + 0.5), width - half);
    if (x - half < free) continue;
    ctx.fillText(text, x, top + cell * rows + 12);
    free = x + half + 14;
  }
  canvas.onmousemove = (event) => {
    const row = Math.floor((event.offsetY - top) / cell);
    const column = Math.floor((event.offsetX - left) / step);
    const value = (map.values[row] || [])[column];
    said.textContent = value === undefined || value === false ? ' ' :
      map.names[row] + ' · step ' + map.steps[column] + ' · ' + short(value);
  };
}

function drawMaps() {
  const root = document.getElementById('maps');
  root.replaceChildren();
  for (const one of kMaps) drawMap(root, one);
}
