"use strict";
// Looks up what the reader's controls ask for and draws every chart from the embedded data. Nothing is fetched.
(async function () {
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

  function unpacked(id) {
    const packed = Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }
  // The library for charts lies in the page compressed. Unpacked it is a script that the policy knows by its hash.
  async function added(id) {
    const script = document.createElement("script");
    script.textContent = await unpacked(id);
    document.head.append(script);
  }
  const ready = added("plotly");
  // By setting and costs: cards and lines by budget. The first costs are the report's own.
  const answers = JSON.parse(await unpacked("answers"));

  // Plotly reads a little HTML in its labels; names from the run are shown as they are.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
  const fixed = (value, digits) => value.toFixed(digits);

  // ---- the controls -----------------------------------------------------------------------------------------------------
  let own = false; // whether the reader has set costs
  const state = () => ({
    setting: Number(byId("setting").value),
    k: Number(byId("drafts").value),
    budget: Number(byId("budget").value),
    drafting: Number(byId("draft-cost").value),
    checking: Number(byId("verify-cost").value),
  });
  const at = (now, setting) => answers[setting][own ? 1 + now.drafting * answer.checking.length + now.checking : 0];
  const say = (id, text) => {
    byId(id).textContent = text;
  };
  const stop = (id, value) => {
    say(id + "-value", String(value));
    byId(id).setAttribute("aria-valuetext", String(value));
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
    const card = at(now, now.setting).cards[now.budget];
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
        const there = at(now, setting).cards[now.budget];
        return row([label, there.title, there.what, there.who ? there.boxes[0].value : ""]);
      }));
    }
    stop("budget", answer.budgets[now.budget]);
    stop("draft-cost", own ? answer.drafting[now.drafting] : "–");
    stop("verify-cost", own ? answer.checking[now.checking] : "–");
    byId("back").hidden = !own && now.budget === answer.budgets.length - 1;
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

  // A few lines, each labelled at its end; labels that would overlap are moved apart. On a phone the labels stand below, or they
  // would take a third of the width.
  function lineChart(width, lines, xaxis, title) {
    const below = width < NARROW, right = below ? 12 : 170;
    const height = below ? 340 + 20 * lines.length : paper ? 270 : 340;
    const values = lines.flatMap((line) => [...line.y, ...(line.low || []), ...(line.high || [])]).filter((y) => y !== null);
    const [least, most] = [Math.min(...values), Math.max(...values)];
    const room = 0.06 * (most - least) || 0.1;
    const chart = layout(width, xaxis, axis(title, { range: [least - room, most + room] }), height, right);
    const plot = height - chart.margin.t - chart.margin.b;
    const pixel = (y) => ((most + room - y) / (most - least + 2 * room)) * plot;
    const labels = lines.filter((line) => line.label && line.y.length > 0).map((line) => {
      const text = broken(line.label, 22);
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
    if (below) {
      Object.assign(chart, { showlegend: true, legend: { orientation: "h", x: 0, y: -0.24, yanchor: "top", font: { size: 12 } } });
    }
    chart.annotations = below ? [] : labels.map((label) => ({
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
        type: "scatter", mode: "lines", hoverinfo: "skip", showlegend: false, fill: "toself", fillcolor: line.colour + "1c",
        line: { width: sure.length === 1 ? 3 : 0, color: line.colour + "1c" },
        x: [...sure.map((i) => line.x[i]), ...sure.map((i) => line.x[i]).reverse()],
        y: [...sure.map((i) => line.high[i]), ...sure.map((i) => line.low[i]).reverse()],
      });
    }
    traces.push({
      type: "scatter", mode: line.points ? "lines+markers" : "lines", name: plain(cut(line.label || "", 34)), showlegend: Boolean(line.label),
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

  const charts = {
    "chart-speed": (now, width) => {
      const ends = { cheap: look().go, dear: look().stop };
      const lines = at(now, now.setting).lines.map(({ label, scheme, end, y }) => Object.assign(
        { label, x: answer.budgets, y, shape: "hv" },
        end ? { colour: ends[end], dash: scheme === CHAIN ? "dot" : "solid" } : lineOf(scheme)));
      const [budget, most] = [now.budget, answer.budgets.length - 1].map((place) => answer.budgets[place]);
      lines.push({ label: "plain decoding", colour: look().soft, dash: "dot", width: 1, x: [1, most], y: [1, 1] });
      const chart = lineChart(width, lines, axis("drafted tokens of a call, at most", { tickvals: powers(most), type: most > 8 ? "log" : "linear" }), "× plain decoding");
      if (budget < most) {
        chart.layout.shapes = [{ type: "line", x0: budget, x1: budget, yref: "paper", y0: 0, y1: 1, line: { color: look().soft, width: 1, dash: "dot" } }];
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
