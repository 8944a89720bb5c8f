// Draws an evaluation from the JSON of `nnpipe eval --html`: what was right, classes, confusions, calibration, and the
// images with the highest losses.
"use strict";

const MATRIX = 40; // classes up to which the whole matrix is shown
const CONFUSIONS = 20; // of the list

function section(id, title, hint, ...children) {
  const made = block("section", "", element("h2", title), hint ? element("p", hint, "hint") : null, ...children);
  made.id = id;
  return made;
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function head(data) {
  const top = data.top_accuracy;
  const made = block("header", "", element("b", data.name), element("span", `${data.set} set`), element("span", data.weights),
    element("span", `${data.precision} on ${data.device}${data.tta === "none" ? "" : `, mean over views: ${data.tta}`}`));
  const lead = block("p", "lead", `loss ${fixed(data.loss, 4)}`,
    top.length > 4 ? `, top 5 ${percent(top[4], 2)}` : "", `, mean F1 of the classes ${percent(data.macro.f1, 2)}`,
    `, calibration error ${percent(data.calibration.error, 2)}`);
  return [made, block("section", "", element("h1", `${percent(top[0], 2)} of ${whole(data.images)} images are right`), lead)];
}

// --- classes --------------------------------------------------------------------------------------------

const COLUMNS = [["class", "class"], ["images", "images"], ["predicted", "predicted"], ["precision", "precision"], ["recall", "recall"], ["f1", "F1"]];

function classes(data) {
  const table = element("table", null, "facts"), body = element("tbody");
  const fill = key => {
    const rows = [...data.classes].sort((a, b) => key === "class" ? a.class.localeCompare(b.class) : a[key] - b[key]);
    body.replaceChildren(...rows.map(row => block("tr", "", element("th", row.class), element("td", whole(row.images)), element("td", whole(row.predicted)),
      element("td", percent(row.precision)), element("td", percent(row.recall)), element("td", percent(row.f1)))));
  };
  const line = element("tr");
  for (const [key, title] of COLUMNS) {
    const button = element("button", title), cell = element("th");
    button.addEventListener("click", () => fill(key));
    cell.append(button);
    line.append(cell);
  }
  table.append(block("thead", "", line), body);
  fill("f1");
  const means = ["macro", "weighted"].map(kind => `${kind} mean: precision ${percent(data[kind].precision)}, recall ${percent(data[kind].recall)}, F1 ${percent(data[kind].f1)}`);
  return section("classes", "Classes", means.join("; ") + ". The lowest F1 first; a click on a column sorts by it.", block("div", "wide", table));
}

// --- confusions -------------------------------------------------------------------------------------------

function matrix(data) {
  const names = data.classes.map(row => row.class), table = element("table", null, "matrix"), body = element("tbody");
  const cells = new Map(data.confusion.map(([label, predicted, images]) => [`${label},${predicted}`, images]));
  table.append(block("thead", "", block("tr", "", element("th"), ...names.map(name => element("th", name)))));
  names.forEach((name, label) => {
    const line = block("tr", "", element("th", name));
    names.forEach((_, predicted) => {
      const images = cells.get(`${label},${predicted}`) || 0, cell = element("td", images || "");
      const share = data.classes[label].images ? images / data.classes[label].images : 0;
      if (images) cell.style.background = `color-mix(in srgb, var(${label === predicted ? "--read" : "--bad"}) ${Math.round(15 + 70 * share)}%, transparent)`;
      cell.title = `${name} as ${names[predicted]}: ${whole(images)}`;
      line.append(cell);
    });
    body.append(line);
  });
  table.append(body);
  return block("div", "wide", table);
}

function confusions(data) {
  const names = data.classes.map(row => row.class), table = element("table", null, "facts");
  const wrong = data.confusion.filter(([label, predicted]) => label !== predicted).sort((a, b) => b[2] - a[2]);
  table.append(block("thead", "", block("tr", "", ...["is", "taken for", "images", "of the class"].map(title => element("th", title)))),
    block("tbody", "", ...wrong.slice(0, CONFUSIONS).map(([label, predicted, images]) => block("tr", "", element("th", names[label]), element("td", names[predicted]),
      element("td", whole(images)), element("td", percent(images / data.classes[label].images))))));
  return section("confusion", "Confusions", names.length <= MATRIX ? "A row for each class, a column for each answer." : "The most frequent ones.",
    names.length <= MATRIX ? matrix(data) : null, wrong.length ? block("div", "wide", element("h3", "Most frequent"), table) : element("p", "None.", "hint"));
}

// --- calibration ------------------------------------------------------------------------------------------

function calibration(data) {
  const { bins, error, max_error } = data.calibration, size = 300, n = bins.length, wide = size / n;
  const most = Math.max(1, ...bins.map(bin => bin.images));
  const plot = svg("svg", { class: "plot", role: "img", width: "100%", height: 420, viewBox: `-40 -10 ${size + 60} 420` });
  plot.setAttribute("aria-label", `Accuracy over confidence; expected calibration error ${percent(error, 2)}`);
  bins.forEach((bin, i) => {
    if (!bin.images) return;
    const low = Math.min(bin.accuracy, bin.confidence), high = Math.max(bin.accuracy, bin.confidence);
    const hint = svg("title", {}, `${whole(bin.images)} images: confidence ${percent(bin.confidence)}, accuracy ${percent(bin.accuracy)}`);
    plot.append(svg("g", {}, hint,
      svg("rect", { class: "got", x: i * wide + 1, width: wide - 2, y: size * (1 - bin.accuracy), height: size * bin.accuracy }),
      svg("rect", { class: "gap", x: i * wide + 1, width: wide - 2, y: size * (1 - high), height: size * (high - low) }),
      svg("rect", { class: "rates", x: i * wide + 1, width: wide - 2, y: 325, height: 60 * bin.images / most })));
  });
  plot.append(svg("line", { class: "ideal", x1: 0, y1: size, x2: size, y2: 0 }), svg("line", { class: "axis", x1: 0, y1: size, x2: size, y2: size }));
  for (const share of [0, 0.5, 1]) {
    plot.append(svg("text", { class: "tick", x: -6, y: size * (1 - share) + 4, "text-anchor": "end" }, percent(share, 0)));
    plot.append(svg("text", { class: "tick", x: size * share, y: size + 18, "text-anchor": "middle" }, percent(share, 0)));
  }
  return section("calibration", "Calibration", `Accuracy (bars) of images whose answer had this probability; below, how many they are. On the dashed line a probability means what it says. Expected error ${percent(error, 2)}, largest ${percent(max_error, 1)}.`, plot);
}

// --- worst ------------------------------------------------------------------------------------------------

const answer = row => row.label === row.predicted ? [`${row.label}, right, but with ${percent(row.probability)} only`]
  : [`${row.label}, taken for `, element("b", row.predicted), ` (${percent(row.probability)})`];

function worst(data) {
  const figures = data.worst.map(row => {
    const made = element("figure"), image = element("img");
    image.alt = row.path;
    if (row.picture) image.src = row.picture;
    made.append(image, block("figcaption", "", element("div", row.path), block("div", "", ...answer(row)), element("div", `loss ${fixed(row.loss, 3)}`)));
    return made;
  });
  return section("worst", "Highest losses", "As the network saw them, reduced. Wrong labels are often among them.", block("div", "gallery", ...figures));
}

function drawEvaluation(data, into) {
  document.title = `${data.name}: ${data.set}`;
  into.replaceChildren(...head(data), classes(data), confusions(data), calibration(data), worst(data));
}
