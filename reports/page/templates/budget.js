"use strict";
// The formulas of engines/cost.py, in the same order of operations, so that doubles agree.
(function () {
  const data = JSON.parse(document.getElementById("budget-data").textContent);
  const field = (id) => document.getElementById("in-" + id);

  // Python's round(): halves go to the even neighbour.
  function round(x) {
    const floor = Math.floor(x), rest = x - floor;
    if (rest !== 0.5) return Math.round(x);
    return floor % 2 === 0 ? floor : floor + 1;
  }
  const sum = (items, f) => items.reduce((total, item) => total + f(item), 0);
  const tokensKept = (layer, context) => layer.window === null ? context : Math.min(context, layer.window);

  function weightBytes(shape, width) { return round(shape.parameters * width); }

  function copiesRead(linear, tokens) {
    return linear.copies * (1 - Math.pow(1 - linear.active / linear.copies, tokens));
  }
  function valuesRead(layer, batch) {
    return layer.vectors +
      sum(layer.linears, (one) => one.parameters / one.copies * copiesRead(one, batch));
  }
  function decodeWeightBytes(shape, width, batch) {
    const outer = shape.tables * batch * shape.hidden + shape.outer;
    const inside = sum(shape.layers, (layer) => layer.count * valuesRead(layer, batch));
    return round((shape.head + outer + inside) * width);
  }
  function kvBytes(shape, context, batch, width) {
    const values = sum(shape.layers, (layer) => layer.count * layer.kv * tokensKept(layer, context));
    return round(values * batch * width);
  }
  function valuesPerToken(shape, beyond) {
    const growing = shape.layers.filter((layer) => layer.window === null || layer.window > beyond);
    return sum(growing, (layer) => layer.count * layer.kv);
  }
  function tokensThatFill(shape, memory, batch, width, kvWidth) {
    let values = Math.max(0, memory - weightBytes(shape, width)) / kvWidth / batch;
    let reached = 0;
    const windows = new Set(shape.layers.map((layer) => layer.window || 0));
    windows.delete(0);
    for (const window of Array.from(windows).sort((a, b) => a - b)) {
      const perToken = valuesPerToken(shape, reached);
      if (values <= perToken * (window - reached)) return reached + values / perToken;
      values -= perToken * (window - reached);
      reached = window;
    }
    const perToken = valuesPerToken(shape, reached);
    return perToken ? reached + values / perToken : null;
  }

  function budget(shape, gpu, weights, kv, context, batch) {
    const width = data.weights[weights].width, kvWidth = data.kv[kv].width;
    const saved = shape.saved[weights] || 0;
    const memory = gpu.memory_bytes + saved;
    const held = weightBytes(shape, width) - saved;
    const cache = kvBytes(shape, context, batch, kvWidth);
    const step = decodeWeightBytes(shape, width, batch) - saved + cache;
    const free = memory - weightBytes(shape, width);
    return {
      weights_bytes: held,
      kv_bytes: cache,
      kv_token_bytes: kvBytes(shape, 1, 1, kvWidth),
      left_bytes: gpu.memory_bytes - held - cache,
      sequences: Math.max(0, free / kvBytes(shape, context, 1, kvWidth)),
      fills_at_tokens: tokensThatFill(shape, memory, batch, width, kvWidth),
      step_bytes: step,
      ceiling_tokens_per_s: batch * gpu.bandwidth_bytes_per_s / step,
    };
  }

  const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
  const three = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });
  const tenth = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
  const gb = (bytes) => three.format(bytes / 1e9) + " GB";
  const bytes = (value) => whole.format(value) + " B  (" + gb(value) + ")";

  const shown = {
    weights_bytes: bytes,
    kv_bytes: bytes,
    kv_token_bytes: (value) => whole.format(value) + " B",
    left_bytes: bytes,
    sequences: (value) => tenth.format(Math.floor(value * 10) / 10),
    fills_at_tokens: (value) => value === null ? "never" : whole.format(Math.floor(value)) + " tokens",
    step_bytes: bytes,
    ceiling_tokens_per_s: (value) => three.format(value) + " tok/s",
  };

  function headline(answer, gpu, context, batch) {
    const asked = batch === 1 ? "One request" : whole.format(batch) + " requests";
    const of = asked + " of " + whole.format(context) + " tokens ";
    if (answer.weights_bytes > gpu.memory_bytes) return "The weights alone are larger than the card.";
    if (answer.left_bytes < 0) return of + "do not fit: " + gb(-answer.left_bytes) + " too much.";
    return of + (batch === 1 ? "fits" : "fit") + ", " + gb(answer.left_bytes) + " left.";
  }

  function fill(id, entries) {
    for (const [value, label] of entries) field(id).add(new Option(label, value));
  }
  function wholeNumber(id) {
    const value = Number(field(id).value);
    const fits = Number.isInteger(value) && value >= 1 && value <= 1e9;
    field(id).setAttribute("aria-invalid", String(!fits));
    return fits ? value : null;
  }

  function update() {
    const context = wholeNumber("context"), batch = wholeNumber("batch");
    const line = document.getElementById("out-headline");
    if (context === null || batch === null) {
      line.textContent = "Context and requests must be whole numbers, 1 or more.";
      return;
    }
    const gpu = data.gpus[field("gpu").value], shape = data.models[field("model").value];
    const answer = budget(shape, gpu, field("weights").value, field("kv").value, context, batch);
    for (const key of Object.keys(shown)) {
      const output = document.getElementById("out-" + key);
      output.value = shown[key](answer[key]);
      output.dataset.value = String(answer[key]);
    }
    line.textContent = headline(answer, gpu, context, batch);
    line.classList.toggle("over", answer.left_bytes < 0);
    const share = (value) => Math.min(100, 100 * value / Math.max(gpu.memory_bytes, answer.weights_bytes + answer.kv_bytes)) + "%";
    document.getElementById("bar-weights").style.width = share(answer.weights_bytes);
    document.getElementById("bar-kv").style.width = share(answer.kv_bytes);
  }

  fill("model", Object.keys(data.models).map((name) => [name, name]));
  fill("gpu", Object.keys(data.gpus).map((name) => [name, data.gpus[name].label]));
  fill("weights", Object.entries(data.weights).map(([key, one]) => [key, one.label]));
  fill("kv", Object.entries(data.kv).map(([key, one]) => [key, one.label]));
  for (const [id, value] of Object.entries(data.chosen)) field(id).value = value;
  document.getElementById("budget-form").addEventListener("input", update);
  document.getElementById("budget-form").addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("details")) one.open = true;
  });
  update();
})();
