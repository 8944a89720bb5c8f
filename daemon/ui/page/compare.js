// Runs side by side: a table of what differs, and their curves over each other. For the service's page and for the
// file of `nnpipe compare --html`.
"use strict";

// As in compare.svg: the second eight runs have the colours of the first eight, dashed.
const RUN_COLOURS = ["#3f7fc4", "#d9581c", "#2e9e5b", "#a24fc0", "#b08900", "#d1437e", "#0b98a8", "#7d6b58"];

// Its legend sets styles as text, which the page's policy forbids; values stand beside a chart, and
// the table names the colours.
Dygraph.PLUGINS = [Dygraph.Plugins.Axes, Dygraph.Plugins.Grid];

const runColour = i => RUN_COLOURS[i % RUN_COLOURS.length];
const best = (a, b) => (known(b) ? b : -Infinity) - (known(a) ? a : -Infinity);
const byBest = (a, b) => best(a.best_accuracy, b.best_accuracy) || best(-(a.loss ?? Infinity), -(b.loss ?? Infinity));

const COMPARED = [
  ["state", run => run.state],
  ["best", run => percent(run.best_accuracy, 2)],
  ["last", run => percent(run.accuracy, 2)],
  ["loss", run => fixed(run.loss, 4)],
  ["train loss", run => fixed(run.train_loss, 4)],
  ["epoch", run => fixed(run.epoch, 2)],
  ["s/epoch", run => known(run.epoch_seconds) ? run.epoch_seconds.toPrecision(3) : "–"],
  ["img/s", run => whole(run.images_per_second)],
  ["time", run => duration(run.seconds)],
];

// "lr" for "optimizer.sgd.lr", unless another key ends with it, too.
function shortKey(key, keys) {
  const last = key.split(".").at(-1);
  return keys.filter(other => other.split(".").at(-1) === last).length > 1 ? key : last;
}

function comparisonTable(data) {
  const table = element("table", null, "compared"), head = element("tr"), body = element("tbody");
  for (const name of ["run", ...COMPARED.map(([name]) => name)]) head.append(element("th", name));
  for (const key of data.keys) {
    const cell = element("th", shortKey(key, data.keys));
    cell.title = key;
    head.append(cell);
  }
  data.runs.forEach((run, i) => {
    const row = element("tr"), name = element("td", null, "name"), swatch = element("span", null, "swatch");
    swatch.style.background = runColour(i);
    if (i >= RUN_COLOURS.length) swatch.classList.add("more");
    name.append(swatch, known(run.id) ? `${run.id} ${run.run}` : run.run);
    row.append(name, ...COMPARED.map(([, text], k) => element("td", text(run), k ? "number" : "state " + run.state)));
    for (const key of data.keys) row.append(element("td", run.values[key] ?? "–", "value"));
    body.append(row);
  });
  const top = element("thead");
  top.append(head);
  table.append(top, body);
  return table;
}

// One row for each epoch at which a run has a point: [epoch, a value or null of each run].
function merged(curves) {
  const at = new Map();
  curves.forEach((curve, i) => {
    for (const [epoch, value] of curve) {
      if (!at.has(epoch)) at.set(epoch, curves.map(() => null));
      at.get(epoch)[i] = value;
    }
  });
  return [...at].sort((a, b) => a[0] - b[0]).map(([epoch, values]) => [epoch, ...values]);
}

function comparisonChart(place, runs, curves, dots) {
  const rows = merged(curves), ink = getComputedStyle(document.body), labels = runs.map((run, i) => `${i} ${run.run}`);
  if (rows.length === 0) return null;
  return new Dygraph(place, rows, {
    labels: ["epoch", ...labels], colors: runs.map((_, i) => runColour(i)), connectSeparatedPoints: true,
    strokeWidth: 1.6, pointSize: 2.5, drawPoints: dots, includeZero: false,
    series: Object.fromEntries(labels.map((label, i) => [label, i < RUN_COLOURS.length ? {} : { strokePattern: [6, 3] }])),
    gridLineColor: ink.getPropertyValue("--grid"), axisLineColor: ink.getPropertyValue("--line"), axisLabelFontSize: 12,
    axes: { x: { pixelsPerLabel: 70 }, y: { pixelsPerLabel: 35, axisLabelWidth: 58 } },
  });
}

// A view in an element. show(data) draws it anew if data differs from the last one: {keys, runs: [{run, id, state,
// ..., values, loss_curve, accuracy_curve}]}, as `nnpipe compare` writes it.
function newComparison(place) {
  const table = element("div", null, "wide"), charts = element("div", null, "charts"), drawn = [];
  const places = ["Training loss", "Accuracy of evaluations, %"].map(name => {
    const figure = element("figure"), chart = element("div", null, "chart");
    chart.setAttribute("role", "img");
    chart.setAttribute("aria-label", name + ", by epoch, a line for each run");
    figure.append(element("figcaption", name), chart);
    charts.append(figure);
    return chart;
  });
  let shown = null, text = "";
  place.append(table, charts);

  function clear() {
    drawn.splice(0).forEach(chart => chart && chart.destroy());
  }
  function redraw() {
    clear();
    if (!shown) return;
    const { runs } = shown;
    drawn.push(comparisonChart(places[0], runs, runs.map(run => run.loss_curve), false));
    drawn.push(comparisonChart(places[1], runs,
      runs.map(run => run.accuracy_curve.map(([epoch, value]) => [epoch, 100 * value])), true));
  }
  function show(data) {
    const now = JSON.stringify(data);
    if (now === text) return;
    text = now;
    shown = data;
    table.replaceChildren(comparisonTable(data));
    redraw();
  }
  return { show, redraw, clear, charts: drawn };
}
