// The open run: its facts, the pipeline's bars, curves and log.
"use strict";

const POINTS = 400; // minimum of a curve; twice as many are averaged in pairs
const PIECES = 6; // of a long history, read before everything else is read again
const LOG_START = 30000, LOG_MOST = 200000; // characters
const COLOURS = ["#3b7ddd", "#d9822b"];

let feed = null; // of the open run

const fresh = () => ({ next: 0, last: 0, steps: newCurve(), windows: newCurve(), tests: [], set: "test", pipeline: null });

function showRun(run) {
  closeRun();
  feed = { ...fresh(), id: run.id, from: "", charts: {}, rowsOf: {}, labelsOf: {}, logged: 0, quiet: false };
  $("log").textContent = $("config-text").textContent = "";
  $("bars").replaceChildren();
  for (const name of ["loss-now", "accuracy-now", "rate-now", "stall-now", "verdict", "waits"]) $(name).textContent = "";
  $("config").open = false;
  $("follow").checked = true;
  $("one").hidden = false;
}

function closeRun() {
  if (feed) Object.values(feed.charts).forEach(chart => chart.destroy());
  feed = null;
  $("one").hidden = true;
}

function showFacts(run) {
  const p = run.progress || {};
  const facts = [
    ["step", known(p.step) ? `${whole(p.step)} of ${whole(p.total_steps)}, epoch ${fixed(p.epoch, 2)}` : null],
    ["doing", run.state === "running" ? p.doing : null],
    ["to go", run.state === "running" && known(p.eta_seconds) ? duration(p.eta_seconds) : null],
    ["owner", run.owner],
    ["device", deviceWords(run)],
    ["priority", run.priority],
    ["after", run.after.length ? run.after.join(", ") : null],
    ["tries again", `${run.retries} of ${run.max_retries}`],
    ["submitted", clock(run.submitted)],
    ["started", known(run.started) ? clock(run.started) : null],
    ["ended", known(run.ended) ? clock(run.ended) : null],
    ["config", run.path],
    ["folder", run.dir],
  ].filter(([, value]) => known(value));
  const list = $("facts");
  if (list.children.length !== facts.length)
    list.replaceChildren(...facts.map(() => { const pair = element("div"); pair.append(element("dt"), element("dd")); return pair; }));
  facts.forEach(([name, value], i) => {
    put(list.children[i].firstChild, name);
    put(list.children[i].lastChild, value);
  });
}

// A row of a curve is the average of `every` points; `every` doubles when there are too many rows.
const newCurve = () => ({ every: 1, rows: [], part: [] });

function meanOf(points) {
  return points[0].map((_, i) => i === 0 ? points.at(-1)[0] : points.reduce((sum, point) => sum + point[i], 0) / points.length);
}

function addPoint(curve, point) {
  curve.part.push(point);
  if (curve.part.length < curve.every) return;
  curve.rows.push(meanOf(curve.part));
  curve.part = [];
  if (curve.rows.length < 2 * POINTS) return;
  curve.rows = Array.from({ length: POINTS }, (_, i) => meanOf(curve.rows.slice(2 * i, 2 * i + 2)));
  curve.every *= 2;
}

function addPoints(mine, points) {
  for (const point of points) {
    if (point.event === "step") addPoint(mine.steps, [point.step, point.loss, 100 * point.accuracy]);
    else if (point.event === "eval") {
      mine.set = point.set || "test";
      mine.tests.push([point.step, point[mine.set + "_loss"], 100 * point[mine.set + "_accuracy"]]);
    }
    else if (point.event === "pipeline") {
      addPoint(mine.windows, [point.step, point.images_per_second, 100 * point.stall_ratio]);
      mine.pipeline = point;
    }
    if (point.event === "step") mine.last = point.step;
  }
}

// The file belongs to the run's user: any program may have written it.
const isPoint = point => Boolean(point) && typeof point === "object" && finite(point.step);

// Reads new lines of metrics.jsonl; true: there were some. A file that was cut back is read again.
async function takeMetrics(mine) {
  let something = false;
  for (let piece = 0; piece < PIECES; piece++) {
    const part = await askJson(`/v1/runs/${mine.id}/metrics?from=${mine.next}`);
    if (mine !== feed) return false;
    const points = part.points.filter(isPoint), first = points.find(point => point.event === "step");
    if (part.next < mine.next || (first && first.step <= mine.last)) {
      Object.assign(mine, fresh());
      continue;
    }
    addPoints(mine, points);
    mine.next = part.next;
    something = something || part.points.length > 0;
    if (part.points.length === 0) break;
  }
  return something;
}

// Training and test values at their steps; null if one has none.
function both(mine, column) {
  const at = new Map(mine.steps.rows.map(row => [row[0], [row[column], null]]));
  for (const test of mine.tests) at.set(test[0], [(at.get(test[0]) || [null])[0], test[column]]);
  return [...at].sort((a, b) => a[0] - b[0]).map(([step, values]) => [step, ...values]);
}

function readout(name, digits, row) {
  const labels = feed.labelsOf[name];
  const values = labels.map((label, i) => known(row[i + 1]) ? `${labels.length > 1 ? label + " " : ""}${digits ? row[i + 1].toFixed(digits) : whole(row[i + 1])}` : "").filter(Boolean);
  put($(name + "-now"), values.length ? `step ${whole(row[0])}: ${values.join(", ")}` : "");
}

// The newest value of each; their steps differ if evaluations are rarer than steps.
function newest(rows) {
  const last = [...rows.at(-1)];
  for (let i = rows.length - 1; i >= 0 && last.some(value => !known(value)); i--)
    rows[i].forEach((value, k) => { if (!known(last[k])) last[k] = value; });
  return last;
}

const yLabel = value => Math.abs(value) >= 1000 ? whole(value) : String(Number(value.toPrecision(4)));

function draw(name, rows, labels, digits, more) {
  if (rows.length === 0) return;
  const chart = feed.charts[name], ink = getComputedStyle(document.body);
  feed.rowsOf[name] = rows;
  feed.labelsOf[name] = labels;
  if (chart) {
    chart.updateOptions({ file: rows, labels: ["step", ...labels] });
  } else {
    feed.charts[name] = new Dygraph($(name), rows, {
      labels: ["step", ...labels], colors: COLOURS, connectSeparatedPoints: true,
      strokeWidth: 1.4, pointSize: 2.5, drawPoints: labels.length > 1, drawPointCallback: labels.length > 1 ? onlyTests : undefined,
      gridLineColor: ink.getPropertyValue("--grid"), axisLineColor: ink.getPropertyValue("--line"), axisLabelFontSize: 12, includeZero: false,
      axes: { x: { pixelsPerLabel: 70, axisLabelFormatter: whole }, y: { pixelsPerLabel: 35, axisLabelWidth: 58, axisLabelFormatter: yLabel } },
      highlightCallback: (event, x, points, index) => readout(name, digits, feed.rowsOf[name][index]),
      unhighlightCallback: () => { if (feed) readout(name, digits, newest(feed.rowsOf[name])); },
      ...more,
    });
    $(name).setAttribute("role", "img");
  }
  if (!$(name).matches(":hover")) readout(name, digits, newest(rows));
  $(name).setAttribute("aria-label", $(name + "-now").textContent);
}

function onlyTests(chart, series, context, x, y, colour, size) {
  if (series === "training") return;
  context.beginPath();
  context.fillStyle = colour;
  context.arc(x, y, size, 0, 2 * Math.PI);
  context.fill();
}

function drawCurves() {
  draw("loss", both(feed, 1), ["training", feed.set], 4);
  draw("accuracy", both(feed, 2), ["training", feed.set], 2);
  draw("rate", feed.windows.rows.map(row => [row[0], row[1]]), ["img/s"], 0, { includeZero: true });
  draw("stall", feed.windows.rows.map(row => [row[0], row[2]]), ["stall"], 1, { valueRange: [0, 101] });
}

function showVerdict(pipeline, goes) {
  const seen = goes ? "" : "When it last ran: ";
  const names = { limited: "limited by ", balanced: "balanced", inconclusive: "inconclusive" };
  const line = $("verdict");
  line.className = pipeline.verdict;
  line.replaceChildren(seen, element("b", names[pipeline.verdict] + (pipeline.limiter || "")));
  if (pipeline.verdict === "limited")
    line.append(`: ${whole(pipeline.images_per_second)} img/s, ${known(pipeline.gain) ? fixed(pipeline.gain, 2) + " times that" : "without bound"} if ${pipeline.limiter} cost nothing`);
  else line.append(`: ${pipeline.reason}`);
}

function drawPipeline(run) {
  const pipeline = feed.pipeline, goes = run.state === "running";
  if (!pipeline || !pipeline.bars) {
    put($("verdict"), goes ? "It comes with the first two seconds of training." : "No measurements yet.", "");
    return;
  }
  if (feed.drawn === pipeline && feed.drawnGoing === goes) return;
  feed.drawn = pipeline;
  feed.drawnGoing = goes;
  showVerdict(pipeline, goes);
  $("bars").replaceChildren(barsOf(pipeline.bars, pipeline.limiter, pipeline.images_per_second, false).made);
  const waits = Object.entries(pipeline.stall_causes || {}).filter(([, part]) => part * pipeline.stall_ratio >= 0.005).sort((a, b) => b[1] - a[1]);
  put($("waits"), waits.length ? `The device waited ${percent(pipeline.stall_ratio, 0)} of the time: ${waits.map(([stage, part]) => `for ${stage} ${percent(part * pipeline.stall_ratio, 0)}`).join(", ")}.`
    : "The device waited for nothing.");
}

async function takeLog(mine) {
  const answer = await ask("GET", `/v1/runs/${mine.id}/log?${mine.from ? "from=" + mine.from : "tail=" + LOG_START}`);
  let text = await answer.text();
  if (mine !== feed) return false;
  if (!mine.from && text.length >= LOG_START) text = text.slice(text.indexOf("\n") + 1);
  mine.from = answer.headers.get("X-Next") || mine.from;
  if (!text) return false;
  const log = $("log");
  log.append(text);
  mine.logged += text.length;
  while (mine.logged > LOG_MOST && log.childNodes.length > 1) {
    mine.logged -= log.firstChild.length;
    log.firstChild.remove();
  }
  toEnd();
  return true;
}

// Scrolling back stops following the log; scrolling to its end starts it again.
let logTop = 0;
$("log").addEventListener("scroll", () => {
  const log = $("log"), atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
  if (atEnd || log.scrollTop < logTop) $("follow").checked = atEnd;
  logTop = log.scrollTop;
});
const toEnd = () => { if ($("follow").checked) $("log").scrollTop = $("log").scrollHeight; };
$("follow").addEventListener("change", toEnd);
new ResizeObserver(toEnd).observe($("log"));

$("config").addEventListener("toggle", async () => {
  if (!$("config").open || !feed || $("config-text").textContent) return;
  const mine = feed;
  try {
    const text = await (await ask("GET", `/v1/runs/${mine.id}/config`)).text();
    if (mine === feed) $("config-text").textContent = text;
  } catch (error) {
    if (mine === feed) $("config-text").textContent = error.message;
  }
});

// A run's files may contain anything; an error in them must not affect the rest of the page.
function tryTo(place, draw) {
  try {
    draw();
  } catch (error) {
    put($(place), `What the run wrote cannot be drawn: ${error.message}`);
  }
}

// mayRead: false sends no request that would be refused. A finished run that was read to its end is skipped.
async function followRun(run, mayRead) {
  const mine = feed;
  put($("one-name"), `${run.id} ${run.name}`);
  put($("one-state"), run.state, "state " + run.state);
  put($("one-why"), run.reason);
  showFacts(run);
  $("denied").hidden = mayRead;
  $("shown").hidden = !mayRead;
  if (!mayRead || (mine.quiet && mine.state === run.state)) return;
  mine.state = run.state;
  const [points, text] = await Promise.all([takeMetrics(mine), takeLog(mine)]);
  if (mine !== feed) return;
  tryTo("loss-now", () => { if (points) drawCurves(); });
  tryTo("verdict", () => drawPipeline(run));
  mine.quiet = OVER.includes(run.state) && !points && !text;
}

// Grid and axes take their colours from the page only when they are created.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  if (!feed) return;
  Object.values(feed.charts).forEach(chart => chart.destroy());
  feed.charts = {};
  drawCurves();
});
