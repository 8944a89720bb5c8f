// Draws a learning-rate range test from the JSON of `nnpipe lr --html`: the loss over the rate, and the rates to try.
"use strict";

const WIDE = 900, HIGH = 360, LEFT = 70, BELOW = 40;
const rate = value => value === null ? "none" : value.toExponential(1);

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Losses far above the first one are cut off: they would stretch the axis.
function plot(data) {
  const points = data.points, smooth = points.map(point => point.smooth);
  const low = Math.min(...smooth), high = Math.min(Math.max(...smooth), low + 2 * Math.max(smooth[0] - low, 0.1));
  const from = Math.log(points[0].lr), way = Math.log(points[points.length - 1].lr) - from || 1;
  const x = lr => LEFT + (WIDE - LEFT - 10) * (Math.log(lr) - from) / way;
  const y = loss => 10 + (HIGH - BELOW - 10) * (1 - Math.min(Math.max((loss - low) / (high - low), 0), 1));
  const line = (key, name) => svg("polyline", { class: name, points: points.map(point => `${x(point.lr).toFixed(1)},${y(point[key]).toFixed(1)}`).join(" ") });
  const mark = lr => lr === null ? "" : svg("line", { class: "mark", x1: x(lr), x2: x(lr), y1: 10, y2: HIGH - BELOW });
  const label = (at, where, anchor, text) => svg("text", { x: at, y: where, "text-anchor": anchor }, text);
  return svg("svg", { class: "plot", viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": "loss over the learning rate" },
    line("loss", "raw"), line("smooth", "line"), mark(data.steepest), mark(data.minimum_tenth),
    label(LEFT - 8, 20, "end", fixed(high, 3)), label(LEFT - 8, HIGH - BELOW, "end", fixed(low, 3)),
    label(LEFT, HIGH - 12, "start", rate(points[0].lr)), label(WIDE - 10, HIGH - 12, "end", rate(points[points.length - 1].lr)));
}

function drawRange(data, into) {
  document.title = `${data.name}: learning rates`;
  into.replaceChildren(
    block("header", "", element("b", data.name), element("span", `${whole(data.steps)} updates`), element("span", `${data.precision} on ${data.device}`)),
    block("section", "", element("h1", data.steepest === null || data.minimum_tenth === null ? "The loss does not fall" : `Try ${rate(data.minimum_tenth)}`),
      block("p", "lead", `steepest fall at ${rate(data.steepest)}; a tenth of the minimum's rate: ${rate(data.minimum_tenth)}`, data.diverged ? "; the loss diverged at the highest rate" : "")),
    block("section", "", element("h2", "Loss over the learning rate"), element("p", "The mean over about fifty updates, and each update's loss; dashed: the two rates.", "hint"), plot(data)));
}
