// The page of nnpipe's service: asks the same HTTP API as the commands (docs/SERVICE.md), once a second.
"use strict";

const $ = id => document.getElementById(id);
const OVER = ["done", "failed", "stopped"];
const POINTS = 2000; // of a chart; older ones are thinned out
let chosen = null; // id of the run that is shown
let feed = null; // what is known of it: {next, points, charts, log}

// --- asking -------------------------------------------------------------------------------------

async function ask(method, path, body) {
  const headers = {};
  if ($("token").value) headers.Authorization = "Bearer " + $("token").value.trim();
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  if (!answer.ok) {
    let text = answer.status + " " + answer.statusText;
    try { text = (await answer.json()).error.text; } catch { /* not ours */ }
    throw Object.assign(new Error(text), { status: answer.status });
  }
  return answer;
}

function complain(text) {
  $("problem").textContent = text;
  $("problem").hidden = !text;
}

// --- words --------------------------------------------------------------------------------------

const known = value => value !== null && value !== undefined;
const fixed = (value, digits) => known(value) ? value.toFixed(digits) : "–";
const whole = value => known(value) ? Math.round(value).toLocaleString("en") : "–";
const percent = value => known(value) ? (100 * value).toFixed(1) + "%" : "–";

function duration(seconds) {
  if (!known(seconds)) return "";
  const s = Math.max(0, Math.round(seconds)), pad = n => String(n).padStart(2, "0");
  return s >= 3600 ? `${Math.floor(s / 3600)}:${pad(Math.floor(s / 60) % 60)}:${pad(s % 60)}` : `${Math.floor(s / 60)}:${pad(s % 60)}`;
}

// An element with text, never markup: names and reasons come from users.
function element(tag, text, className) {
  const made = document.createElement(tag);
  if (known(text)) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// --- runs ---------------------------------------------------------------------------------------

function actions(run) {
  const cell = element("td");
  const button = (name, verb) => {
    const made = element("button", name);
    made.type = "button";
    made.addEventListener("click", async event => {
      event.stopPropagation();
      if (verb === "stop" && !confirm(`Stop run ${run.id}, ${run.name}?`)) return;
      try {
        await ask("POST", `/v1/runs/${run.id}/${verb}`);
        complain("");
        refresh();
      } catch (error) {
        complain(error.status === 403 ? "That needs the token: it is in the file `token` of the service's state folder." : error.message);
      }
    });
    cell.append(made, " ");
  };
  if (run.state === "paused") button("resume", "resume");
  else if (["queued", "running", "yielding"].includes(run.state)) button("pause", "pause");
  if (!OVER.includes(run.state) && run.state !== "stopping") button("stop", "stop");
  return cell;
}

function progressCell(run) {
  const cell = element("td"), progress = run.progress;
  if (progress && known(progress.step) && progress.total_steps) {
    const bar = element("progress");
    bar.max = progress.total_steps;
    bar.value = progress.step;
    cell.append(bar, ` ${whole(progress.step)}/${whole(progress.total_steps)}`);
    if (run.state === "running" && known(progress.eta_seconds)) cell.append(`, ${duration(progress.eta_seconds)} to go`);
  } else {
    cell.textContent = run.reason || (progress ? progress.doing : "–");
    cell.className = "text";
  }
  return cell;
}

function row(run) {
  const made = element("tr"), p = run.progress || {};
  made.tabIndex = 0;
  made.dataset.id = run.id;
  if (run.id === chosen) made.className = "chosen";
  const goes = run.state === "running";
  made.append(element("td", run.id), element("td", run.name), element("td", run.state, "state " + run.state),
    element("td", run.owner), element("td", run.assigned || run.device), progressCell(run),
    element("td", fixed(p.loss, 4)), element("td", percent(p.accuracy)), element("td", goes ? whole(p.images_per_second) : "–"),
    element("td", goes && known(p.stall_ratio) ? percent(p.stall_ratio) + (p.cause ? " " + p.cause : "") : "–"), actions(run));
  made.addEventListener("click", () => choose(run.id));
  made.addEventListener("keydown", event => { if (event.key === "Enter") choose(run.id); });
  return made;
}

function showRuns(runs) {
  const rows = runs.filter(run => $("all").checked || !OVER.includes(run.state)).reverse();
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.id : null;
  $("runs").tBodies[0].replaceChildren(...rows.map(row));
  $("none").hidden = rows.length > 0;
  if (focused) {
    const again = $("runs").querySelector(`tr[data-id="${Number(focused)}"]`);
    if (again) again.focus();
  }
  const count = state => runs.filter(run => run.state === state).length;
  $("summary").textContent = `${count("running")} running, ${count("queued")} queued, ${count("paused")} paused`;
}

function showDevices(devices, runs) {
  $("devices").replaceChildren(...devices.map(device => {
    const made = element("div", null, "device");
    const names = device.runs.map(id => { const run = runs.find(one => one.id === id); return run ? `${id} ${run.name}` : id; });
    made.append(element("b", device.name), element("span", names.length ? names.join(", ") : "idle"),
      element("small", ` (${device.runs.length} of ${device.slots})`));
    return made;
  }));
}

// --- one run ------------------------------------------------------------------------------------

function choose(id) {
  chosen = id === chosen ? null : id;
  if (feed) Object.values(feed.charts).forEach(chart => chart.destroy());
  feed = chosen === null ? null : { next: 0, from: "0:0", train: [], tests: [], lines: [], charts: {}, denied: false };
  $("one").hidden = chosen === null;
  $("log").textContent = "";
  $("pipeline").replaceChildren();
  refresh();
}

// Every second point, as often as there are too many.
function thin(points) {
  return points.length > 2 * POINTS ? points.filter((_, i) => i % 2 === 0 || i === points.length - 1) : points;
}

async function follow(run) {
  const mine = feed;
  for (;;) { // what there is by now, in pieces
    const part = await (await ask("GET", `/v1/runs/${run.id}/metrics?from=${mine.next}`)).json();
    if (mine !== feed) return;
    for (const point of part.points) {
      if (point.event === "step") mine.train.push([point.step, point.loss, 100 * point.accuracy, point.images_per_second, 100 * point.stall_ratio]);
      else if (point.event === "eval") mine.tests.push([point.step, point.test_loss, 100 * point.test_accuracy]);
      else if (point.event === "pipeline") mine.pipeline = point;
    }
    mine.train = thin(mine.train);
    if (part.next === mine.next || part.points.length === 0) break;
    mine.next = part.next;
  }
  const answer = await ask("GET", `/v1/runs/${run.id}/log?from=${mine.from}${mine.from === "0:0" ? "&tail=20000" : ""}`);
  const text = await answer.text();
  if (mine !== feed) return;
  mine.from = answer.headers.get("X-Next") || mine.from;
  if (text) {
    const log = $("log"), atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 5;
    log.textContent = (log.textContent + text).slice(-60000);
    if (atEnd) log.scrollTop = log.scrollHeight;
  }
}

// Training and test values at their steps: a hole where one has none.
function both(train, tests, column, testColumn) {
  const at = new Map(train.map(point => [point[0], [point[column], null]]));
  for (const test of tests) at.set(test[0], [(at.get(test[0]) || [null])[0], test[testColumn]]);
  return [...at].sort((a, b) => a[0] - b[0]).map(([step, values]) => [step, ...values]);
}

function draw(name, rows, labels) {
  if (rows.length === 0) return;
  if (feed.charts[name]) feed.charts[name].updateOptions({ file: rows });
  else
    feed.charts[name] = new Dygraph($(name), rows, { labels: ["step", ...labels], connectSeparatedPoints: true, drawPoints: labels.length > 1,
      pointSize: 2, strokeWidth: 1.2, legend: "follow", colors: ["#3377cc", "#cc7722"], axes: { x: { axisLabelWidth: 50 } }, rollPeriod: name === "loss" || name === "accuracy" ? 1 : 5 });
}

// Busy shares of the newest pipeline line, the stage that most of the stall is due to marked.
function drawPipeline(pipeline) {
  if (!pipeline || !pipeline.stages) return;
  const readers = Math.max(1, pipeline.readers || 1), seconds = pipeline.seconds || 1;
  const causes = Object.entries(pipeline.stall_causes || {}).sort((a, b) => b[1] - a[1]);
  const limit = pipeline.stall_ratio > 0.05 && causes.length ? causes[0][0] : "step";
  const bars = Object.entries(pipeline.stages).filter(([, stage]) => stage.items > 0).map(([name, stage]) => {
    const shared = ["read", "decompress", "decode", "augment", "batch"].includes(name);
    const device = pipeline.feed || {};
    const busy = name === "copy" && device.copy_nanoseconds ? device.copy_nanoseconds / 1e9 / seconds
      : name === "step" && device.compute_nanoseconds ? device.compute_nanoseconds / 1e9 / seconds
      : stage.work_seconds / seconds / (shared ? readers : 1);
    const bar = element("div", null, "bar" + (name === limit ? " limit" : ""));
    const track = element("div", null, "track"), fill = element("div", null, "fill");
    fill.style.width = Math.min(100, 100 * busy) + "%";
    track.append(fill);
    bar.append(element("span", name === limit ? name + " ◄ limit" : name), track, element("span", `${Math.round(100 * busy)}% busy`, "numbers"));
    return bar;
  });
  $("pipeline").replaceChildren(...bars);
}

async function showOne(run) {
  $("one-name").textContent = `${run.id} ${run.name}: ${run.state}`;
  $("one-why").textContent = [run.reason, run.path, run.dir].filter(Boolean).join(" · ");
  try {
    await follow(run);
  } catch (error) {
    if (feed && error.status === 403) $("log").textContent = "A run's log and metrics are its owner's: give the token above, or use the Unix socket.";
    else throw error;
  }
  if (!feed) return;
  draw("loss", both(feed.train, feed.tests, 1, 1), ["training", "test"]);
  draw("accuracy", both(feed.train, feed.tests, 2, 2), ["training", "test"]);
  draw("rate", feed.train.map(point => [point[0], point[3]]), ["img/s"]);
  draw("stall", feed.train.map(point => [point[0], point[4]]), ["stall"]);
  drawPipeline(feed.pipeline);
}

// --- the clock ----------------------------------------------------------------------------------

let refreshing = false;
async function refresh() {
  if (refreshing) return;
  refreshing = true;
  try {
    const runs = (await (await ask("GET", "/v1/runs")).json()).runs;
    const devices = (await (await ask("GET", "/v1/devices")).json()).devices;
    showRuns(runs);
    showDevices(devices, runs);
    const one = runs.find(run => run.id === chosen);
    if (one) await showOne(one);
    else if (chosen !== null) choose(chosen);
    if ($("problem").dataset.lost) complain("");
    delete $("problem").dataset.lost;
  } catch (error) {
    complain(error.status ? error.message : "The service does not answer; trying again.");
    $("problem").dataset.lost = "1";
  } finally {
    refreshing = false;
  }
}

$("all").addEventListener("change", refresh);
$("close").addEventListener("click", () => choose(chosen));
$("token-form").addEventListener("submit", event => { event.preventDefault(); refresh(); });
refresh();
setInterval(refresh, 1000);
