"use strict";
// Answers the reader's controls and draws every chart from the embedded data. Nothing is fetched.
(function () {
  const { answer, measured } = JSON.parse(document.getElementById("run-data").textContent);
  // Colours of charts by day and by night; schemes have theirs in turn.
  const LOOKS = {
    light: {
      paper: "#ffffff", ink: "#222222", best: "#000000", grid: "#e6e6e6", zero: "#bbbbbb", axis: "#888888", soft: "#6f6f6f", go: "#1a7f37", stop: "#b3261e",
      schemes: ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#56B4E9", "#6A3D9A", "#8C564B"],
    },
    dark: {
      paper: "#0f141a", ink: "#dde3ea", best: "#ffffff", grid: "#2a323c", zero: "#4a5562", axis: "#7f8a96", soft: "#9aa6b2", go: "#4cc26a", stop: "#ff7b6e",
      schemes: ["#4DA3E0", "#F0803C", "#2FC79A", "#E29CC3", "#E0B040", "#8FD0FA", "#A98BDC", "#C99A8C"],
    },
  };
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
  const MOST_LINES = 6; // of a chart; more cannot be told apart
  const CHAIN = -1;
  const byId = (id) => document.getElementById(id);

  // The library for charts lies in the page compressed. Unpacked it is a script that the policy knows by its hash.
  async function unpacked(id) {
    const packed = Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0));
    const script = document.createElement("script");
    script.textContent = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
    document.head.append(script);
  }
  const ready = unpacked("plotly");

  // Plotly reads a little HTML in its labels; names from the run are shown as they are.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
  const fixed = (value, digits) => value.toFixed(digits);
  const ends = (low, high, digits, unit) =>
    fixed(low, digits) + (fixed(low, digits) === fixed(high, digits) ? "" : " to " + fixed(high, digits)) + (unit || "");

  // ---- what can be drafted, and what it is worth: analysis/report/verdict_card.py says the same --------------------------
  for (const plans of answer.plans) {
    plans.all = plans.all.map(([scheme, kind, name, nodes, depth, widths, tokens, upper, variance, covariance, slope]) =>
      ({ scheme, kind, name, nodes, depth, widths, tokens, upper: upper || tokens, variance, covariance, slope }));
  }
  const ratios = (draft, verify) =>
    ({ draft: [[1, draft]], target: [[0, 1], [answer.mostNodes, 1 + answer.mostNodes * verify]], rest: null, source: "" });

  function at(points, value) {
    let i = points.findIndex((point) => point[0] >= value);
    if (i === 0 || (i < 0 && points.length === 1)) {
      return points[0][1];
    }
    i = i < 0 ? points.length - 1 : i;
    const [[x0, y0], [x1, y1]] = [points[i - 1], points[i]];
    return value >= x1 ? y1 : y0 + ((y1 - y0) / (x1 - x0)) * (value - x0);
  }
  function callCost(plan, costs) {
    const drafting = plan.widths.reduce((sum, width) => sum + at(costs.draft, width), 0);
    const [fixedPart, level, node] = costs.rest && plan.kind >= 0 ? costs.rest[plan.kind] : [0, 0, 0];
    return drafting + at(costs.target, plan.nodes) + fixedPart + level * plan.depth + node * plan.nodes;
  }
  const speedOf = (plan, costs) => plan.tokens / callCost(plan, costs);
  const speed = (value, upper, low, high) => ({
    value, upper, low, high,
    text: ends(value, upper, 2, "×"),
    interval: low === null ? "" : fixed(low, 2) + " to " + fixed(high, 2),
  });
  const sure = (found) => (found.interval ? "95 %: " + found.interval : "");
  const drafts = (depth) => (depth === 1 ? "1 draft" : depth + " drafts");
  const withInterval = (found) => (found.interval ? found.text + " (" + found.interval + ")" : found.text);

  function overPlain(plan, plans, costs) {
    const cost = callCost(plan, costs);
    const value = plan.tokens / cost;
    const upper = plan.upper / cost;
    if (plan.variance === null) {
      return speed(value, upper, plans.certified ? value : null, plans.certified ? upper : null);
    }
    const half = Math.exp(plans.quantile * Math.sqrt(plan.variance));
    return speed(value, upper, Math.max(1, plan.tokens / half) / cost, Math.min(plan.depth + 1, plan.upper * half) / cost);
  }
  function overChain(plan, chain, plans, costs) {
    const ratio = callCost(chain, costs) / callCost(plan, costs);
    const value = (plan.tokens / chain.upper) * ratio;
    const upper = (plan.upper / chain.tokens) * ratio;
    if ([plan.variance, plan.covariance, plans.variance, chain.variance].includes(null)) {
      return speed(value, upper, plans.certified ? value : null, plans.certified ? upper : null);
    }
    const error = plans.certified
      ? Math.sqrt(plan.variance) + Math.sqrt(chain.variance)
      : Math.sqrt(Math.max(0, plan.variance - 2 * chain.slope * plan.covariance + chain.slope ** 2 * plans.variance));
    const half = Math.exp(plans.quantile * error);
    return speed(value, upper, Math.max(ratio / (chain.depth + 1), value / half), Math.min(ratio * (plan.depth + 1), upper * half));
  }
  const byScheme = (plans) => Array.from(new Set(plans.map((plan) => plan.scheme)), (s) => plans.filter((plan) => plan.scheme === s));
  const faster = (costs) => (a, b) => speedOf(b, costs) - speedOf(a, costs) || a.nodes - b.nodes;
  const fastest = (plans, costs, budget) => plans.filter((plan) => plan.nodes <= budget).sort(faster(costs))[0];
  const bestChain = (plans, costs, budget) => fastest(plans.all.filter((plan) => plan.scheme === CHAIN), costs, budget);
  const bestOfEach = (plans, costs, budget) =>
    byScheme(plans.all).map((mine) => fastest(mine, costs, budget)).filter(Boolean).sort(faster(costs));

  const listed = (plans) => {
    const chains = plans.slice(answer.words.rows).filter((plan) => plan.scheme === CHAIN);
    return plans.slice(0, answer.words.rows - chains.length).concat(chains);
  };

  function verdict(plans, costs, budget) {
    const within = plans.all.filter((plan) => plan.nodes <= budget).map((plan) => overPlain(plan, plans, costs));
    const best = within.reduce((a, b) => (b.value > a.value ? b : a));
    const most = Math.max(...within.map((found) => (found.high === null ? found.upper : found.high)));
    if (best.low !== null && best.low > 1) {
      return "Speculate";
    }
    if (most <= 1 && best.low !== null) {
      return "Do not speculate";
    }
    if (plans.certified && best.value <= 1 && Math.max(...within.map((found) => found.upper)) > 1) {
      return "Undecided";
    }
    return (best.value > 1 ? "Speculate" : "Do not speculate") + ", probably";
  }
  const tone = (title) => (title === "Speculate" ? "go" : title === "Do not speculate" ? "stop" : "maybe");

  function cardAt(plans, costs, budget) {
    const best = fastest(plans.all, costs, budget);
    const chain = bestChain(plans, costs, budget);
    const alone = Boolean(costs.source) && !costs.rest;
    const settled = verdict(plans, costs, budget);
    const title = settled === "Speculate" && alone ? "Speculate, probably" : settled; // what comes on top may take it all
    const found = overPlain(best, plans, costs);
    const boxes = [{ value: found.text, label: (alone ? "at most " : "") + "the speed of plain decoding", note: sure(found) }];
    if (chain && chain === best) {
      boxes.push({ value: "1.00×", label: answer.words.itself, note: "" });
    } else if (chain) {
      const ratio = overChain(best, chain, plans, costs);
      boxes.push({ value: ratio.text, label: "the speed of today’s best chain, " + drafts(chain.depth), note: sure(ratio) });
    }
    boxes.push({ value: ends(best.tokens, best.upper, 2), label: "tokens per target call", note: best.nodes + " drafted" });
    const rows = listed(bestOfEach(plans, costs, budget)).map((plan) => [
      answer.verifiers[plan.scheme], withInterval(overPlain(plan, plans, costs)),
      chain && plan !== chain ? overChain(plan, chain, plans, costs).text : "", plan.name, ends(plan.tokens, plan.upper, 2),
    ]);
    const stop = title.startsWith("Do not speculate");
    const who = "verified by " + answer.verifiers[best.scheme];
    return {
      title,
      tone: tone(title),
      what: stop ? "plain decoding" : best.name,
      who: stop ? "the fastest alternative: " + best.name + ", " + who : who,
      boxes,
      basis: (costs.source || "Costs as set") + ". In steps of plain decoding, a draft pass takes " + fixed(at(costs.draft, 1), 2) +
        " and a target pass that checks " + best.nodes + " drafted " + fixed(at(costs.target, best.nodes), 2) + ". " + answer.words.predicted +
        (costs.rest ? "" : answer.words.passes) + (best.nodes === budget && !stop ? answer.words.binds : ""),
      ask: "",
      head: answer.words.head,
      rows,
    };
  }
  function cardOverRange(plans, budget) {
    const sides = [["cheap", answer.cheap], ["dear", answer.dear]].map(([name, costs]) => {
      const best = fastest(plans.all, costs, budget);
      const chain = bestChain(plans, costs, budget);
      const found = overPlain(best, plans, costs);
      let beside = "";
      if (chain && chain === best) {
        beside = ", the best chain itself";
      } else if (chain) {
        const ratio = overChain(best, chain, plans, costs);
        beside = ", " + ratio.text + " the best chain" + (ratio.interval ? " (" + ratio.interval + ")" : "");
      }
      const label = answer.words[name];
      const each = bestOfEach(plans, costs, budget).map((plan) => [plan, overPlain(plan, plans, costs)]);
      return { found, each, box: { value: found.text, label, note: best.name + beside } };
    });
    const [cheap, dear] = sides;
    const best = verdict(plans, answer.cheap, budget);
    const title = best.startsWith("Speculate") ? "It depends on your costs" : best; // dear is no bound: steps can cost more
    const rows = listed(cheap.each.map(([plan]) => plan)).map((plan) => {
      const [, found] = cheap.each.find(([one]) => one === plan);
      const [other, there] = dear.each.find(([one]) => one.scheme === plan.scheme);
      return [answer.verifiers[plan.scheme], withInterval(found), withInterval(there), plan.name, other.name];
    });
    return {
      title,
      tone: tone(title),
      what: "assumed ones make it " + fixed(dear.found.value, 2) + " to " + fixed(cheap.found.upper, 2) +
        "× plain decoding",
      who: "",
      boxes: sides.map((side) => side.box),
      basis: answer.words.range,
      ask: answer.words.ask,
      head: answer.words.rangeHead,
      rows,
    };
  }

  // ---- the controls -----------------------------------------------------------------------------------------------------
  let own = false; // whether the reader has set costs
  const state = () => ({
    setting: Number(byId("setting").value),
    k: Number(byId("drafts").value),
    budget: Number(byId("budget").value),
    costs: own ? ratios(Number(byId("draft-cost").value), Number(byId("verify-cost").value)) : answer.costs,
  });
  function cardOf(now, setting) {
    const plans = answer.plans[setting];
    if (answer.cards[setting] && !own && now.budget === answer.budget) {
      return answer.cards[setting]; // measured by advise, not predicted
    }
    if (plans.all.filter((plan) => plan.nodes <= now.budget).length === 0) {
      const what = "the run holds no verifier that could be used";
      return { title: "Undecided", tone: "maybe", what, who: "", boxes: [], basis: "", ask: "", head: [], rows: [] };
    }
    return now.costs ? cardAt(plans, now.costs, now.budget) : cardOverRange(plans, now.budget);
  }
  const say = (id, text) => {
    byId(id).textContent = text;
  };
  const element = (name, text, className) => {
    const made = document.createElement(name);
    made.textContent = text;
    made.className = className || "";
    return made;
  };
  const row = (cells, name) => {
    const made = document.createElement("tr");
    made.append(...cells.map((text) => element(name || "td", text)));
    return made;
  };
  function show(now) {
    const card = cardOf(now, now.setting);
    byId("card").className = card.tone;
    ["title", "what", "who", "basis", "ask"].forEach((part) => say("card-" + part, card[part]));
    byId("card-boxes").replaceChildren(...card.boxes.map((box) => {
      const made = document.createElement("div");
      made.append(element("dd", box.value), element("dt", box.label), element("dd", box.note, "note"));
      return made;
    }));
    document.querySelector("#plans thead").replaceChildren(row(card.head, "th"));
    document.querySelector("#plans tbody").replaceChildren(...card.rows.map((cells) => row(cells)));
    if (byId("setting-rows")) {
      byId("setting-rows").replaceChildren(...measured.settings.map((label, setting) => {
        const there = setting === now.setting ? card : cardOf(now, setting);
        return row([label, there.title, there.what, there.who ? there.boxes[0].value : ""]);
      }));
    }
    say("budget-value", String(now.budget));
    say("draft-cost-value", own ? fixed(now.costs.draft[0][1], 2) : "–");
    say("verify-cost-value", own ? byId("verify-cost").value : "–");
    byId("back").hidden = !own && now.budget === answer.budget;
    document.querySelectorAll("[data-say=setting]").forEach((node) => {
      node.textContent = measured.settings[now.setting];
    });
    document.querySelectorAll("[data-say=k]").forEach((node) => {
      node.textContent = "k\u00a0=\u00a0" + now.k;
    });
    document.querySelectorAll("[data-setting]").forEach((node) => {
      node.hidden = Number(node.dataset.setting) !== now.setting;
    });
  }

  // ---- charts -----------------------------------------------------------------------------------------------------------
  const night = window.matchMedia("(prefers-color-scheme: dark)");
  let paper = 0; // width on paper while printing, else 0
  const look = () => LOOKS[night.matches && paper === 0 ? "dark" : "light"];
  const bare = (extra) => Object.assign({ gridcolor: look().grid, zerolinecolor: look().zero, linecolor: look().axis, ticks: "outside", automargin: true }, extra);
  const axis = (title, extra) => bare(Object.assign({ title: { text: title } }, extra));
  const NARROW = 620;
  const layout = (width, x, y, height, right) => ({
    xaxis: x, yaxis: y, width, height, showlegend: false, hovermode: "closest",
    margin: { l: width < NARROW ? 48 : 60, r: right, t: 12, b: 48 },
    paper_bgcolor: look().paper, plot_bgcolor: look().paper,
    font: { family: "Helvetica, Arial, sans-serif", size: 13, color: look().ink },
  });
  const CONFIG = { displayModeBar: false }; // its buttons would lie on the labels, and one of them uploads the chart

  // Colour and dash of a scheme: the same in every chart.
  function lineOf(place) {
    if (place === CHAIN) {
      return { colour: look().soft, dash: "solid" };
    }
    const { kind } = measured.schemes[place];
    const rank = measured.schemes.slice(0, place).filter((other) => (other.kind === "optimum") === (kind === "optimum")).length;
    const colours = look().schemes;
    return kind === "optimum"
      ? { colour: look().best, dash: DASHES[rank % DASHES.length] }
      : { colour: colours[rank % colours.length], dash: DASHES[Math.floor(rank / colours.length) % DASHES.length] };
  }

  // A name on at most three lines of so many characters, broken between words where it can be.
  function broken(text, most) {
    const lines = [];
    for (const word of text.split(" ").flatMap((one) => one.match(new RegExp(".{1," + most + "}", "gu")) || [])) {
      const last = lines.length - 1;
      if (last >= 0 && lines[last].length + word.length < most) {
        lines[last] += " " + word;
      } else if (lines.push(word) > 3) {
        return [...lines.slice(0, 2), lines[2].slice(0, most - 1) + "…"];
      }
    }
    return lines;
  }

  // A few lines, each labelled at its end; labels that would overlap are moved apart.
  function lineChart(width, lines, xaxis, title) {
    const right = width < NARROW ? 112 : 170;
    const height = paper ? 270 : 340;
    const values = lines.flatMap((line) => [...line.y, ...(line.low || []), ...(line.high || [])]).filter((y) => y !== null);
    const [least, most] = [Math.min(...values), Math.max(...values)];
    const room = 0.06 * (most - least) || 0.1;
    const chart = layout(width, xaxis, axis(title, { range: [least - room, most + room] }), height, right);
    const plot = height - chart.margin.t - chart.margin.b;
    const pixel = (y) => ((most + room - y) / (most - least + 2 * room)) * plot;
    const labels = lines.filter((line) => line.label && line.y.length > 0).map((line) => {
      const text = broken(line.label, width < NARROW ? 14 : 22);
      return { line, text: text.map(plain).join("<br>"), size: 15 * text.length + 2, at: pixel(line.y[line.y.length - 1]) };
    }).sort((a, b) => a.at - b.at);
    let free = 0;
    for (const label of labels) {
      label.at = Math.max(label.at, free + label.size / 2);
      free = label.at + label.size / 2;
    }
    let floor = plot + chart.margin.b;
    for (const label of labels.reverse()) {
      label.at = Math.min(label.at, floor - label.size / 2);
      floor = label.at - label.size / 2;
    }
    chart.annotations = labels.map((label) => ({
      xref: "paper", yref: "paper", x: 1, y: 1 - label.at / plot, xanchor: "left", yanchor: "middle", xshift: 6, align: "left", showarrow: false,
      text: label.text, font: { size: 12, color: label.line.colour },
    }));
    const end = (line) => line.y[line.y.length - 1];
    const ranked = lines.filter((line) => line.low).sort((a, b) => end(b) - end(a)); // bands of more could not be told apart
    return { traces: lines.flatMap((line) => lineTraces(line, line === ranked[0] || line === ranked[ranked.length - 1])), layout: chart };
  }
  function lineTraces(line, band) {
    const keep = line.x.map((_, i) => i).filter((i) => line.y[i] !== null);
    const sure = line.low && band ? keep.filter((i) => line.low[i] !== null && line.high[i] !== null) : [];
    const traces = [];
    if (sure.length > 0) {
      traces.push({
        type: "scatter", mode: "lines", hoverinfo: "skip", fill: "toself", fillcolor: line.colour + "1c",
        line: { width: sure.length === 1 ? 3 : 0, color: line.colour + "1c" },
        x: [...sure.map((i) => line.x[i]), ...sure.map((i) => line.x[i]).reverse()],
        y: [...sure.map((i) => line.high[i]), ...sure.map((i) => line.low[i]).reverse()],
      });
    }
    traces.push({
      type: "scatter", mode: line.points ? "lines+markers" : "lines", name: plain(line.label || ""),
      x: keep.map((i) => line.x[i]), y: keep.map((i) => line.y[i]),
      text: keep.map((i) => (line.low && line.low[i] !== null ? " (" + fixed(line.low[i], 3) + " to " + fixed(line.high[i], 3) + ")" : "")),
      line: { color: line.colour, dash: line.dash, width: line.width || 2, shape: line.shape || "linear" },
      marker: { color: line.colour, size: 7 },
      hovertemplate: plain(cut(line.label || "", 44)) + "<br>%{x}: %{y:.3f}%{text}<extra></extra>",
    });
    return traces;
  }

  const powers = (most) => [1, 2, 4, 8, 16, 32, 64].filter((n) => n <= most);
  const ks = Array.from(new Set(measured.columns.map((column) => column.k))).sort((a, b) => a - b);
  const columnOf = measured.schemes.map(() => new Map());
  measured.columns.forEach((column, index) => columnOf[column.scheme].set(column.k, index));

  // The lossless schemes that accept most at this k.
  const chosen = (now) => {
    const mean = measured.acceptance[now.setting].mean;
    return measured.schemes.map((_, i) => i)
      .filter((i) => ["optimum", "verifier"].includes(measured.schemes[i].kind) && columnOf[i].has(now.k) && mean[columnOf[i].get(now.k)] !== null)
      .sort((a, b) => mean[columnOf[b].get(now.k)] - mean[columnOf[a].get(now.k)]).slice(0, MOST_LINES).sort((a, b) => a - b);
  };
  const styled = (scheme, line) => Object.assign({ label: measured.schemes[scheme].short, points: true }, lineOf(scheme), line);
  const overBins = (table, now) => chosen(now).map((scheme) => {
    const pick = (rows) => rows.map((one) => one[columnOf[scheme].get(now.k)]);
    return styled(scheme, { x: table.centre, y: pick(table.mean), low: pick(table.low), high: pick(table.high) });
  });

  // The best speed within every budget up to the largest.
  function overBudget(plans, costs) {
    const x = Array.from({ length: answer.budget }, (_, i) => i + 1);
    const best = new Array(answer.budget + 1).fill(null);
    for (const plan of plans) {
      if (plan.nodes <= answer.budget) {
        best[plan.nodes] = Math.max(best[plan.nodes] || 0, speedOf(plan, costs));
      }
    }
    const first = best.findIndex((value) => value !== null);
    for (let n = first + 1; first > 0 && n <= answer.budget; n += 1) {
      best[n] = Math.max(best[n] || 0, best[n - 1]);
    }
    return { x: x.slice(first - 1), y: best.slice(first), shape: "hv" };
  }

  const charts = {
    "chart-speed": (now, width) => {
      const plans = answer.plans[now.setting];
      const chain = plans.all.filter((plan) => plan.scheme === CHAIN);
      let lines = [];
      if (now.costs) {
        const schemes = bestOfEach(plans, now.costs, now.budget).map((plan) => plan.scheme).filter((scheme) => scheme !== CHAIN);
        lines = (chain.length > 0 ? [CHAIN] : []).concat(schemes.slice(0, MOST_LINES - 2)).map((scheme) => Object.assign(
          { label: answer.short[scheme] }, lineOf(scheme), overBudget(plans.all.filter((plan) => plan.scheme === scheme), now.costs)));
      } else {
        lines = [["cheap", answer.cheap, look().go], ["dear", answer.dear, look().stop]].flatMap(([name, costs, colour]) =>
          [["best tree if " + name, plans.all, "solid"], ["best chain if " + name, chain, "dot"]].filter(([, some]) => some.length > 0)
            .map(([label, some, dash]) => Object.assign({ label, colour, dash }, overBudget(some, costs))));
      }
      lines = lines.filter((line) => line.y.length > 0);
      lines.push({ label: "plain decoding", colour: look().soft, dash: "dot", width: 1, x: [1, answer.budget], y: [1, 1] });
      const chart = lineChart(width, lines, axis("drafted tokens of a call, at most", { tickvals: powers(answer.budget), type: answer.budget > 8 ? "log" : "linear" }), "× plain decoding");
      if (now.budget < answer.budget) {
        chart.layout.shapes = [{ type: "line", x0: now.budget, x1: now.budget, yref: "paper", y0: 0, y1: 1, line: { color: look().soft, width: 1, dash: "dot" } }];
      }
      return chart;
    },
    "chart-acceptance": (now, width) => {
      const table = measured.acceptance[now.setting];
      const lines = chosen(now).map((scheme) => {
        const x = Array.from(columnOf[scheme].keys()).sort((a, b) => a - b);
        const pick = (values) => x.map((k) => values[columnOf[scheme].get(k)]);
        return styled(scheme, { x, y: pick(table.mean), low: pick(table.low), high: pick(table.high) });
      });
      return lineChart(width, lines, axis("number of drafts k", { tickvals: ks, type: ks[ks.length - 1] > 8 ? "log" : "linear" }), "mean acceptance");
    },
    "chart-entropy": (now, width) => lineChart(width, overBins(measured.entropy[now.setting], now), axis("entropy of the target (nats)"), "mean acceptance"),
    "chart-position": (now, width) => lineChart(width, overBins(measured.position[now.setting], now), axis("position in the text (tokens)"), "mean acceptance"),
    // One row per scheme: the histogram of its positions above a bar with quantiles, median and mean.
    "chart-spread": (now, width) => {
      const spread = measured.spread[now.setting];
      const mean = measured.acceptance[now.setting].mean;
      const rows = chosen(now).map((scheme) => [scheme, columnOf[scheme].get(now.k)]).filter(([, column]) => spread.quantiles[column][0] !== null);
      const traces = rows.flatMap(([scheme, column], place) => {
        const share = spread.histogram[column];
        const scale = 0.62 / Math.max(...share);
        const colour = lineOf(scheme).colour;
        const q = spread.quantiles[column];
        const base = { type: "scatter", hoverinfo: "skip", mode: "lines" };
        const bar = (from, to, thick) => Object.assign({}, base, { x: [from, to], y: [-place - 0.12, -place - 0.12], line: { color: colour, width: thick } });
        return [
          Object.assign({}, base, {
            x: [0, ...share.flatMap((_, i) => [i / share.length, (i + 1) / share.length]), 1],
            y: [-place, ...share.flatMap((value) => [value * scale - place, value * scale - place]), -place],
            fill: "toself", fillcolor: colour + "3a", line: { color: colour, width: 1.2 },
          }),
          bar(q[0], q[4], 1.5),
          bar(q[1], q[3], 7),
          {
            type: "scatter", mode: "markers", x: [q[2], mean[column]], y: [-place - 0.12, -place - 0.12], text: ["median", "mean"],
            marker: { opacity: 1, color: look().paper, symbol: ["circle", "diamond"], size: [9, 10], line: { color: colour, width: 2 } },
            hovertemplate: plain(cut(measured.schemes[scheme].short, 44)) + "<br>%{text} %{x:.3f}<extra></extra>",
          },
        ];
      });
      const ticks = { showticklabels: false, range: [-rows.length + 0.65, 0.75], ticks: "", zeroline: false, showgrid: false };
      const chart = layout(width, axis("acceptance at one position", { range: [-0.02, 1.02] }), bare(ticks), 80 + 58 * rows.length, 12);
      chart.annotations = rows.map(([scheme], place) => ({
        x: 0, y: 0.3 - place, xanchor: "left", yanchor: "middle", showarrow: false, bgcolor: look().paper + "c0", font: { size: 12 },
        text: plain(cut(measured.schemes[scheme].short, 44)),
      }));
      return { traces, layout: chart };
    },
    // One bar per part, the accepted drafts on top; together they make 1.
    "chart-lost": (now, width) => {
      const parts = measured.lost[now.setting];
      const traces = parts.map((part, place) => ({
        type: "bar", orientation: "h", x: [part.mean], y: [-place - 0.2], width: 0.34, marker: { color: place === 0 ? look().go : look().schemes[1] },
        error_x: part.low === null ? undefined : {
          type: "data", symmetric: false, array: [part.high - part.mean], arrayminus: [part.mean - part.low], color: look().soft, thickness: 1, width: 3,
        },
        hovertemplate: plain(part.words) + "<br>%{x:.3f}<extra></extra>",
      }));
      const most = Math.max(...parts.map((part) => (part.high === null ? part.mean : part.high)));
      const ticks = { showticklabels: false, range: [-parts.length + 0.4, 0.6], ticks: "", zeroline: false, showgrid: false };
      const chart = layout(width, axis("share of first drafts", { range: [0, most * 1.05] }), bare(ticks), 60 + 42 * parts.length, 12);
      chart.annotations = parts.map((part, place) => ({
        x: 0, y: 0.2 - place, xanchor: "left", yanchor: "middle", showarrow: false, font: { size: 12 },
        text: fixed(part.mean, 3) + " " + plain(cut(part.words, width < NARROW ? 44 : 80)),
      }));
      return { traces, layout: chart };
    },
  };

  const draw = (ids, now) => Promise.all(ids.map((id) => {
    const place = byId(id);
    const width = paper || (place && place.clientWidth); // said, because the library measures its element on the first drawing only
    if (!width) {
      return Promise.resolve(); // not on this page, or hidden
    }
    const chart = charts[id](now, width);
    return ready.then(() => Plotly.react(place, chart.traces, chart.layout, CONFIG));
  }));

  // ---- wiring -----------------------------------------------------------------------------------------------------------
  const everything = Object.keys(charts);
  const refresh = (ids) => {
    const now = state();
    show(now);
    return draw(ids, now);
  };
  ["setting", "drafts"].forEach((id) => byId(id).addEventListener("change", () => refresh(everything)));
  byId("budget").addEventListener("input", () => refresh(["chart-speed"]));
  ["draft-cost", "verify-cost"].forEach((id) => byId(id).addEventListener("input", () => {
    own = true;
    refresh(["chart-speed"]);
  }));
  byId("back").addEventListener("click", () => {
    own = false;
    byId("controls").reset();
    refresh(["chart-speed"]);
  });

  night.addEventListener("change", () => refresh(everything));

  // Paper has one width, whatever the window had.
  const PAPER = 680;
  const printing = (width) => () => {
    paper = width;
    refresh(["chart-speed"]);
  };
  window.addEventListener("beforeprint", printing(PAPER));
  window.addEventListener("afterprint", printing(0));

  // The column can change its width at any time, while the first charts are drawn too, and without a resize of the window: a
  // scroll bar appears. What counts is the width that the charts were drawn at.
  const column = document.querySelector("main");
  let drawn = 0;
  const fits = () => paper > 0 || column.clientWidth === 0 || column.clientWidth === drawn; // 0: no window at all
  const fit = () => {
    if (fits()) {
      return Promise.resolve();
    }
    drawn = column.clientWidth;
    return refresh(everything).then(fit);
  };
  let resizing = 0;
  new ResizeObserver(() => {
    if (fits()) {
      return;
    }
    if (resizing === 0) {
      fit(); // at once, then once more when the window has come to rest
    }
    clearTimeout(resizing);
    resizing = setTimeout(() => {
      resizing = 0;
      fit();
    }, 150);
  }).observe(column);

  fit().then(() => {
    document.documentElement.dataset.drawn = "yes";
  });
})();
