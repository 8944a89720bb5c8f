// The comparison on the service's page: the runs that the address names, "#compare-3,7" or "#sweep-NAME", side by side.
"use strict";

const MOST_BESIDE = 16, BESIDE_EVERY_MS = 3000;
const LEFT_OUT = ["name", "runs"]; // keys that differ in every run

let beside = null; // { view, feeds, at }

const sweepShown = () => /^#sweep-([A-Za-z0-9_.-]+)$/.exec(location.hash)?.[1] ?? null;

// The runs to compare; null: the address names none.
function besideIds(runs) {
  const list = /^#compare-(\d+(?:,\d+)*)$/.exec(location.hash), sweep = sweepShown();
  if (list) return [...new Set(list[1].split(",").map(Number))].slice(0, MOST_BESIDE);
  return sweep ? runs.filter(run => run.sweep === sweep).map(run => run.id).slice(-MOST_BESIDE) : null;
}

// A box of the table was clicked; false: too many.
function pick(runs, id, on) {
  const others = (besideIds(runs) || []).filter(other => other !== id), ids = on ? [...others, id] : others;
  if (ids.length > MOST_BESIDE) return false;
  location.hash = ids.length ? `compare-${ids.join()}` : "";
  return true;
}

const freshBeside = id => ({ id, next: 0, last: 0, losses: newCurve(), evals: [], step: null, rates: 0, nr: 0, keys: null, over: false });

function addBeside(mine, points) {
  for (const point of points) {
    if (point.event === "step") {
      addPoint(mine.losses, [point.epoch, point.loss]);
      mine.step = point;
      mine.last = point.step;
    } else if (point.event === "eval") {
      const set = point.val_accuracy !== undefined ? "val" : "test";
      mine.evals.push({ epoch: point.epoch, accuracy: point[set + "_accuracy"], loss: point[set + "_loss"] });
    } else if (point.event === "pipeline" && finite(point.images_per_second)) {
      mine.rates += point.images_per_second;
      mine.nr++;
    }
  }
}

// Reads what is new; a file that was cut back is read again.
async function readBeside(mine, run) {
  if (mine.over) return;
  if (!mine.keys) mine.keys = (await askJson(`/v1/runs/${mine.id}/config?flat=1`)).keys;
  for (let piece = 0; piece < 2 * PIECES; piece++) {
    const part = await askJson(`/v1/runs/${mine.id}/metrics?from=${mine.next}`);
    const points = part.points.filter(point => isPoint(point) && finite(point.epoch));
    const first = points.find(point => point.event === "step");
    if (part.next < mine.next || (first && first.step <= mine.last)) {
      Object.assign(mine, { ...freshBeside(mine.id), keys: mine.keys });
      continue;
    }
    addBeside(mine, points);
    mine.next = part.next;
    if (part.points.length === 0) {
      mine.over = OVER.includes(run.state);
      break;
    }
  }
}

// The same fields as `nnpipe compare` writes.
function comparedRun(mine, run) {
  const evals = mine.evals.filter(one => finite(one.accuracy)), last = evals.at(-1), p = run.progress || {};
  const rate = mine.nr ? mine.rates / mine.nr : p.images_per_second, batch = Number(mine.keys["loader.batch"]);
  const perEpoch = mine.step ? batch * mine.step.step / mine.step.epoch / rate : NaN;
  return {
    run: run.name, id: run.id, state: run.state, epoch: mine.step?.epoch,
    best_accuracy: evals.length ? Math.max(...evals.map(one => one.accuracy)) : null,
    accuracy: last?.accuracy, loss: last?.loss, train_loss: mine.step?.loss,
    epoch_seconds: finite(perEpoch) ? perEpoch : null, images_per_second: rate, seconds: run.attempts ? run.ran : null,
    loss_curve: mine.losses.rows.filter(row => finite(row[1])), accuracy_curve: evals.map(one => [one.epoch, one.accuracy]),
  };
}

// By run: key and value where the configs differ. A network is one key.
function differing(feeds) {
  const networks = [];
  const all = feeds.map(mine => {
    const own = {}, network = [];
    for (const [key, value] of Object.entries(mine.keys)) {
      const top = key.split(".")[0];
      if (top === "model" || top === "blocks") network.push(key, value);
      else if (!LEFT_OUT.includes(top)) own[key] = value !== "" && finite(Number(value)) ? String(Number(value)) : value;
    }
    if (!networks.includes(network.join("\n"))) networks.push(network.join("\n"));
    own.model = `network ${networks.indexOf(network.join("\n")) + 1}`;
    return own;
  });
  const keys = [...new Set(all.flatMap(Object.keys))].filter(key => all.some(own => own[key] !== all[0][key])).sort();
  return { keys, values: all.map(own => Object.fromEntries(keys.filter(key => key in own).map(key => [key, own[key]]))) };
}

function closeBeside() {
  if (!beside) return;
  beside.view.clear();
  $("beside-view").replaceChildren();
  $("beside").hidden = true;
  beside = null;
}

function drawBeside(chosen) {
  const feeds = chosen.map(run => beside.feeds.get(run.id)), { keys, values } = differing(feeds);
  const compared = feeds.map((mine, i) => ({ ...comparedRun(mine, chosen[i]), values: values[i] })).sort(byBest);
  beside.view.show({ keys, runs: compared });
  return keys.length ? "" : "No key of their configs differs.";
}

// Runs that may not be read, and those that are gone, are left out.
async function followBeside(runs, mayRead) {
  const ids = besideIds(runs), hash = location.hash;
  if (!ids) {
    closeBeside();
    return;
  }
  if (!beside) {
    beside = { view: newComparison($("beside-view")), feeds: new Map(), at: 0, hash: "" };
    $("beside").hidden = false;
    $("beside").scrollIntoView({ block: "nearest" });
  }
  if (beside.hash === hash && Date.now() - beside.at < BESIDE_EVERY_MS) return;
  Object.assign(beside, { hash, at: Date.now() });
  const chosen = ids.map(id => runs.find(run => run.id === id)).filter(run => run && mayRead(run));
  put($("beside-head"), sweepShown() ? `Sweep ${sweepShown()}` : "Compare");
  for (const run of chosen) {
    if (!beside.feeds.has(run.id)) beside.feeds.set(run.id, freshBeside(run.id));
    await readBeside(beside.feeds.get(run.id), run);
    if (!beside || location.hash !== hash) return;
  }
  let note = "";
  if (chosen.length < ids.length) note = "Only the owner may see a run's curves: enter your token above.";
  else if (chosen.length < 2) note = "Choose another run.";
  $("beside-view").hidden = chosen.length < 2;
  try {
    if (chosen.length >= 2) note ||= drawBeside(chosen);
  } catch (error) { // a run's files may contain anything
    note = `What the runs wrote cannot be drawn: ${error.message}`;
  }
  put($("beside-note"), note);
}

// Grid and axes take their colours from the page only when they are created.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => beside && beside.view.redraw());
