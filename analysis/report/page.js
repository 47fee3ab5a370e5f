"use strict";
// Draws every chart of the report from the embedded data and answers the reader's controls. Nothing is fetched.
(function () {
  const data = JSON.parse(document.getElementById("run-data").textContent);
  const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6A3D9A", "#8C564B",
    "#555555", "#117733", "#882255", "#999933"];
  const MARKERS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star", "hexagon", "pentagon",
    "hourglass"];
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
  const NEAR = 0.01; // options within one per cent of the best are named beside it
  const MOST_LEVELS = 8;
  const byId = (id) => document.getElementById(id);

  // Plotly reads a little HTML in its labels; names from the run are shown as they are.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const LONGEST = 44; // characters of a name that a chart has room for
  const brief = (text) => plain(text.length > LONGEST ? text.slice(0, LONGEST - 1) + "…" : text);
  const number = (value, digits) => (value === null || value === undefined ? "–" : value.toFixed(digits));
  const range = (low, high, digits) =>
    low === null || high === null ? "" : " (" + number(low, digits) + " to " + number(high, digits) + ")";

  // A value, or both ends of what a run of intervals certifies.
  const ends = (low, high, digits, unit) =>
    number(low, digits) + (number(low, digits) === number(high, digits) ? "" : " to " + number(high, digits)) + (unit || "");

  const optima = data.schemes.map((s, i) => i).filter((i) => data.schemes[i].kind === "optimum");
  const others = data.schemes.map((s, i) => i).filter((i) => data.schemes[i].kind !== "optimum");
  const style = data.schemes.map((scheme, i) => {
    if (scheme.kind === "optimum") {
      return { colour: "#000000", dash: DASHES[optima.indexOf(i) % DASHES.length], marker: "circle-open", width: 2.4 };
    }
    const rank = others.indexOf(i);
    return {
      colour: COLOURS[rank % COLOURS.length],
      dash: DASHES[Math.floor(rank / COLOURS.length + rank) % DASHES.length],
      marker: MARKERS[rank % MARKERS.length],
      width: 1.8,
    };
  });
  const columnOf = data.schemes.map(() => new Map());
  data.columns.forEach((column, index) => columnOf[column.scheme].set(column.k, index));
  const ks = Array.from(new Set(data.columns.map((column) => column.k))).sort((a, b) => a - b);

  // ---- reading the controls -------------------------------------------------------------------------------------------
  const state = () => ({
    setting: Number(byId("setting").value),
    k: Number(byId("drafts").value),
    draftCost: Number(byId("draft-cost").value),
    verifyCost: Number(byId("verify-cost").value),
    levels: Number(byId("levels").value),
    shown: data.schemes.map((scheme, i) => byId("scheme-" + i).checked),
    optimum: Boolean(byId("consider-optimum")) && byId("consider-optimum").checked, // absent where no optimum is usable
  });
  const candidate = (now) => (scheme) =>
    data.schemes[scheme].usable && now.shown[scheme] && (now.optimum || data.schemes[scheme].kind !== "optimum");

  // ---- the cost model; the page states the same formulas in words -------------------------------------------------------
  const tokensPerCall = (acceptance, levels) => {
    let sum = 1;
    let power = 1;
    for (let i = 0; i < levels; i += 1) {
      power *= acceptance;
      sum += power;
    }
    return sum;
  };
  const draftedTokens = (k, levels) => {
    let sum = 0;
    let power = 1;
    for (let i = 0; i < levels; i += 1) {
      power *= k;
      sum += power;
    }
    return sum;
  };
  const callCost = (k, levels, now) => 1 + levels * now.draftCost + draftedTokens(k, levels) * now.verifyCost;
  const speed = (acceptance, k, levels, now) => tokensPerCall(acceptance, levels) / callCost(k, levels, now);

  // Sorted by the lower end; the upper end is the same unless the run holds intervals.
  function options(now, levels, wanted) {
    const means = data.acceptance[now.setting];
    const found = [];
    data.columns.forEach((column, index) => {
      const acceptance = means.mean[index];
      if (acceptance === null || !wanted(column.scheme)) {
        return;
      }
      const low = means.low[index];
      const high = means.high[index];
      const upper = means.upper[index];
      found.push({
        scheme: column.scheme,
        k: column.k,
        levels: levels,
        acceptance: acceptance,
        acceptanceUpper: upper,
        tokens: tokensPerCall(acceptance, levels),
        tokensUpper: tokensPerCall(upper, levels),
        tokensLow: low === null ? null : tokensPerCall(low, levels),
        tokensHigh: high === null ? null : tokensPerCall(high, levels),
        speed: speed(acceptance, column.k, levels, now),
        speedUpper: speed(upper, column.k, levels, now),
        speedLow: low === null ? null : speed(low, column.k, levels, now),
        speedHigh: high === null ? null : speed(high, column.k, levels, now),
      });
    });
    found.sort((a, b) => b.speed - a.speed || a.k - b.k);
    return found;
  }

  // ---- charts ---------------------------------------------------------------------------------------------------------
  const AXIS = { gridcolor: "#e6e6e6", zerolinecolor: "#bbbbbb", linecolor: "#888888", ticks: "outside", automargin: true };
  const axis = (title, extra) => Object.assign({}, AXIS, { title: { text: title } }, extra || {});
  const layout = (x, y, extra) =>
    Object.assign(
      {
        xaxis: x,
        yaxis: y,
        margin: { l: 64, r: 16, t: 34, b: 52 },
        paper_bgcolor: "#ffffff",
        plot_bgcolor: "#ffffff",
        font: { family: "Helvetica, Arial, sans-serif", size: 13, color: "#222222" },
        legend: { x: 1.01, xanchor: "left", y: 1, yanchor: "top", font: { size: 12 }, tracegroupgap: 0 },
        hovermode: "closest",
      },
      extra || {}
    );
  // The buttons are named one by one: the library's own choice would offer to upload the chart.
  const CONFIG = {
    displaylogo: false,
    displayModeBar: "hover",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    toImageButtonOptions: { format: "svg" },
  };

  // One line with its band: the interval over prompts, or the certified interval where logits were partial.
  function band(scheme, x, mean, low, high, extra) {
    const look = style[scheme];
    const name = brief(data.schemes[scheme].label);
    const keep = x.map((_, i) => i).filter((i) => mean[i] !== null);
    const at = (values) => keep.map((i) => values[i]);
    const sure = keep.filter((i) => low[i] !== null && high[i] !== null);
    const traces = [];
    if (sure.length > 0) {
      const up = sure.map((i) => high[i]);
      const down = sure.map((i) => low[i]).reverse();
      const across = sure.map((i) => x[i]);
      traces.push({
        type: "scatter",
        x: across.concat(across.slice().reverse()),
        y: up.concat(down),
        fill: "toself",
        fillcolor: look.colour + "22",
        line: { width: sure.length === 1 ? 3 : 0, color: look.colour + "22" },
        mode: "lines",
        hoverinfo: "skip",
        legendgroup: String(scheme),
        showlegend: false,
      });
    }
    const detail = keep.map((i) => range(low[i], high[i], 4));
    traces.push(
      Object.assign(
        {
          type: "scatter",
          x: at(x),
          y: at(mean),
          text: detail,
          name: name,
          legendgroup: String(scheme),
          mode: "lines+markers",
          line: { color: look.colour, dash: look.dash, width: look.width },
          marker: { color: look.colour, symbol: look.marker, size: 8, line: { color: look.colour, width: 1.5 } },
          hovertemplate: name + "<br>%{x}: %{y:.4f}%{text}<extra></extra>",
        },
        extra || {}
      )
    );
    return traces;
  }

  const kAxis = () => axis("number of drafts k", { tickvals: ks, type: ks[ks.length - 1] > 8 ? "log" : "linear" });
  const overK = (table, wanted) =>
    data.schemes.flatMap((scheme, i) => {
      if (!wanted(i)) {
        return [];
      }
      const own = Array.from(columnOf[i].keys()).sort((a, b) => a - b);
      const pick = (values) => own.map((k) => values[columnOf[i].get(k)]);
      return band(i, own, pick(table.mean), pick(table.low), pick(table.high));
    });
  const atK = (now, draw) =>
    data.schemes.flatMap((scheme, i) => (now.shown[i] && columnOf[i].has(now.k) ? draw(i, columnOf[i].get(now.k)) : []));
  const overBins = (table, now) =>
    atK(now, (scheme, column) => {
      const pick = (rows) => rows.map((row) => row[column]);
      return band(scheme, table.centre, pick(table.mean), pick(table.low), pick(table.high));
    });
  const probability = (title) => axis(title, { rangemode: "normal" });

  const charts = {
    "chart-acceptance": (now) => ({
      traces: overK(data.acceptance[now.setting], (i) => now.shown[i]),
      layout: layout(kAxis(), probability("mean acceptance")),
    }),
    "chart-gap": (now) => ({
      traces: overK(data.gap[now.setting], (i) => now.shown[i] && data.schemes[i].kind === "verifier" && data.schemes[i].optimum !== null),
      layout: layout(kAxis(), axis("optimum − scheme", { rangemode: "tozero" })),
    }),
    // One row per scheme: the histogram of its positions above a bar with quantiles, median and mean.
    "chart-spread": (now) => {
      const spread = data.spread[now.setting];
      const mean = data.acceptance[now.setting].mean;
      const rows = atK(now, (scheme, column) => (spread.quantiles[column][0] === null ? [] : [[scheme, column]]));
      const traces = rows.flatMap(([scheme, column], row) => {
        const share = spread.histogram[column];
        const scale = 0.62 / Math.max(...share);
        const edges = share.map((_, i) => i / share.length);
        const name = brief(data.schemes[scheme].label);
        const q = spread.quantiles[column];
        const base = { type: "scatter", showlegend: false, hoverinfo: "skip", mode: "lines" };
        const bar = (from, to, width) =>
          Object.assign({}, base, { x: [from, to], y: [-row - 0.12, -row - 0.12], line: { color: style[scheme].colour, width: width } });
        return [
          Object.assign({}, base, {
            x: [0].concat(edges.flatMap((edge) => [edge, edge + 1 / share.length]), [1]),
            y: [-row].concat(share.flatMap((value) => [value * scale - row, value * scale - row]), [-row]),
            fill: "toself",
            fillcolor: style[scheme].colour + "3a",
            line: { color: style[scheme].colour, width: 1.2 },
          }),
          bar(q[0], q[4], 1.5),
          bar(q[1], q[3], 7),
          {
            type: "scatter",
            showlegend: false,
            mode: "markers",
            x: [q[2], mean[column]],
            y: [-row - 0.12, -row - 0.12],
            text: ["median", "mean"],
            marker: {
              opacity: 1, color: "#ffffff", symbol: ["circle", "diamond"], size: [9, 10], line: { color: style[scheme].colour, width: 2 },
            },
            hovertemplate: name + "<br>%{text} %{x:.3f}<br>5 %: " + q[0].toFixed(3) + ", 25 %: " + q[1].toFixed(3) +
              ", 75 %: " + q[3].toFixed(3) + ", 95 %: " + q[4].toFixed(3) + "<extra></extra>",
          },
        ];
      });
      const names = rows.map(([scheme]) => brief(data.schemes[scheme].label));
      const ticks = {
        tickvals: rows.map((_, row) => -row),
        ticktext: names,
        range: [-rows.length + 0.65, 0.75],
        ticks: "",
        zeroline: false,
      };
      return {
        rows: names,
        traces: traces,
        layout: layout(axis("acceptance at one position", { range: [-0.02, 1.02] }), Object.assign({}, AXIS, ticks), {
          height: 100 + 58 * rows.length,
        }),
      };
    },
    "chart-entropy": (now) => ({
      traces: overBins(data.entropy[now.setting], now),
      layout: layout(axis("entropy of the target (nats)"), probability("mean acceptance")),
    }),
    "chart-position": (now) => ({
      traces: overBins(data.position[now.setting], now),
      layout: layout(axis("position in the text (tokens)"), probability("mean acceptance")),
    }),
    "chart-speed": (now) => {
      const found = options(now, now.levels, candidate(now));
      const traces = data.schemes.flatMap((scheme, i) => {
        const own = found.filter((option) => option.scheme === i).sort((a, b) => a.k - b.k);
        const pick = (name) => own.map((option) => option[name]);
        return own.length === 0 ? [] : band(i, pick("k"), pick("speed"), pick("speedLow"), pick("speedHigh"));
      });
      traces.push({
        type: "scatter",
        mode: "lines",
        x: [ks[0], ks[ks.length - 1]],
        y: [1, 1],
        name: "plain decoding",
        line: { color: "#777777", width: 1, dash: "dot" },
        hoverinfo: "skip",
      });
      return { traces: traces, layout: layout(kAxis(), axis("speed-up over plain decoding (×)")) };
    },
  };

  // Charts against a sampling setting: the other settings stay as chosen above.
  for (const name of data.varied) {
    charts["chart-" + name.replace(/_/g, "-")] = (now) => {
      const here = data.settings[now.setting].values;
      const same = data.settings
        .map((setting, i) => i)
        .filter((i) => Object.keys(here).every((key) => key === name || data.settings[i].values[key] === here[key]))
        .sort((a, b) => data.settings[a].values[name] - data.settings[b].values[name]);
      const x = same.map((i) => data.settings[i].values[name]);
      const traces = atK(now, (scheme, column) => {
        const pick = (part) => same.map((i) => data.acceptance[i][part][column]);
        return band(scheme, x, pick("mean"), pick("low"), pick("high"));
      });
      return { traces: traces, layout: layout(axis(name.replace(/_/g, " ").replace("top p", "top-p"), { tickvals: x }), probability("mean acceptance")) };
    };
  }
  if (data.decode.length > 0) {
    charts["chart-decode"] = () => {
      const known = data.decode.filter((row) => row.predicted !== null);
      const top = Math.max(1, ...known.map((row) => Math.max(row.predicted, row.measured_high || row.measured))) * 1.05;
      return {
        traces: [
          {
            type: "scatter",
            mode: "lines",
            x: [1, top],
            y: [1, top],
            name: "measured = predicted",
            line: { color: "#777777", width: 1, dash: "dot" },
            hoverinfo: "skip",
          },
          {
            type: "scatter",
            mode: "markers",
            x: known.map((row) => row.predicted),
            y: known.map((row) => row.measured),
            error_y: {
              type: "data",
              symmetric: false,
              array: known.map((row) => (row.measured_high === null ? 0 : row.measured_high - row.measured)),
              arrayminus: known.map((row) => (row.measured_low === null ? 0 : row.measured - row.measured_low)),
            },
            text: known.map((row) => brief(row.decoder)),
            name: "decoders",
            marker: { color: COLOURS[0], size: 9 },
            hovertemplate: "%{text}<br>predicted %{x:.3f}, measured %{y:.3f}<extra></extra>",
          },
        ],
        layout: layout(axis("predicted tokens per target call"), axis("measured tokens per target call")),
      };
    };
  }

  // A wide chart has its legend beside it, a narrow one below it and grows by the legend's lines.
  const NARROW = 620;
  function placed(chart, width) {
    const named = chart.traces.filter((trace) => trace.showlegend !== false);
    const height = chart.layout.height || Math.max(370, 110 + 20 * named.length);
    chart.layout.showlegend = named.length > 1;
    chart.layout.height = height;
    if (width < NARROW) {
      chart.layout.legend = { orientation: "h", x: 0, xanchor: "left", y: -70 / (height - 86), yanchor: "top", font: { size: 11 }, tracegroupgap: 0 };
      chart.layout.margin = { l: 48, r: 8, t: 34, b: 52 };
      chart.layout.height = height + (chart.layout.showlegend ? 21 * named.length : 0);
      if (chart.rows) {
        chart.layout.yaxis.showticklabels = false; // no room beside the rows: names go into them
        chart.layout.annotations = chart.rows.map((text, row) => ({
          x: 0, y: -row + 0.02, xanchor: "left", yanchor: "bottom", text: text, showarrow: false, bgcolor: "#ffffffb0", font: { size: 11 },
        }));
      }
    }
    return chart;
  }

  let paper = 0; // width on paper while printing, else 0
  function draw(ids, now) {
    return Promise.all(
      ids.filter((id) => byId(id)).map((id) => {
        const width = paper || byId(id).clientWidth;
        const chart = placed(charts[id](now), width);
        chart.layout.width = width; // said, because the library measures its element on the first drawing only
        return Plotly.react(byId(id), chart.traces, chart.layout, CONFIG);
      })
    );
  }

  // ---- the recommendation in words --------------------------------------------------------------------------------------
  const say = (id, text) => {
    byId(id).textContent = text;
  };
  const list = (id, lines) => {
    byId(id).replaceChildren();
    for (const text of lines) {
      byId(id).appendChild(document.createElement("li")).textContent = text;
    }
  };
  const fill = (id, rows) => {
    if (!byId(id)) {
      return;
    }
    byId(id).replaceChildren();
    for (const cells of rows) {
      const row = byId(id).appendChild(document.createElement("tr"));
      for (const text of cells) {
        row.appendChild(document.createElement("td")).textContent = text;
      }
    }
  };
  const named = (option) => data.schemes[option.scheme].label + ", k\u00a0=\u00a0" + option.k;

  function recommend(now) {
    const wanted = candidate(now);
    const found = options(now, now.levels, wanted);
    say("draft-cost-value", number(now.draftCost, 2));
    say("verify-cost-value", number(now.verifyCost, 3));
    say("levels-value", String(now.levels));
    fill("setting-rows", data.settings.flatMap((setting, i) => {
      const best = options(Object.assign({}, now, { setting: i }), now.levels, wanted)[0];
      return best
        ? [[setting.label, data.schemes[best.scheme].label, String(best.k), ends(best.acceptance, best.acceptanceUpper, 4),
            ends(best.tokens, best.tokensUpper, 3), ends(best.speed, best.speedUpper, 3, "×")]]
        : [];
    }));
    if (found.length === 0) {
      fill("recommendation-rows", []);
      ["best-scheme", "best-tokens", "best-speed"].forEach((id) => say(id, "–"));
      list("best-notes", ["Choose at least one scheme."]);
      return;
    }
    const best = found[0];
    say("best-scheme", named(best));
    say("best-tokens", ends(best.tokens, best.tokensUpper, 3));
    say("best-speed", ends(best.speed, best.speedUpper, 3, "×"));
    const wider = best.speedLow < best.speed || best.speedHigh > best.speedUpper; // with one prompt only the ends are known
    say("best-tokens-range", wider ? range(best.tokensLow, best.tokensHigh, 3) : "");
    say("best-speed-range", wider ? range(best.speedLow, best.speedHigh, 3) : "");
    list("best-notes", notes(now, found, wanted));
    fill("recommendation-rows", found.slice(0, 8).map((option) => [
      data.schemes[option.scheme].label,
      String(option.k),
      ends(option.acceptance, option.acceptanceUpper, 4),
      ends(option.tokens, option.tokensUpper, 3),
      String(draftedTokens(option.k, now.levels)),
      number(callCost(option.k, now.levels, now), 3),
      ends(option.speed, option.speedUpper, 3, "×"),
    ]));
  }

  function notes(now, found, wanted) {
    const best = found[0];
    const lines = [];
    const most = Math.max(...found.map((option) => option.speedUpper));
    if (most <= 1) {
      lines.push("At these costs nothing here beats plain decoding: do not speculate.");
    } else if (best.speed <= 1) {
      lines.push("Whether anything here beats plain decoding is undecided: between " + number(best.speed, 2) + "× and " + number(most, 2) +
        "×; log more tokens (larger m).");
    }
    if (data.intervals) {
      lines.push("Only both ends of each value are certified; choices are ordered by the lower one.");
    }
    const near = found.slice(1).filter((option) => option.speed >= best.speed * (1 - NEAR));
    if (near.length > 0) {
      const close = data.intervals ? "Lower end within 1 %: " : "Within 1 % of it: ";
      lines.push(close + near.slice(0, 4).map(named).join("; ") + (near.length > 4 ? "; and others." : "."));
    }
    if (best.k === ks[ks.length - 1] && ks.length > 1 && best.speed > 1) {
      lines.push("k = " + best.k + " is the largest number of drafts measured; more may pay.");
    }
    const rival = found.find((option) => data.schemes[option.scheme].kind !== "optimum");
    if (data.schemes[best.scheme].kind === "optimum") {
      lines.push("It attains the optimum of its drafts." +
        (rival ? " Best other verifier: " + named(rival) + ", with " + ends(rival.speed, rival.speedUpper, 3, "×") + "." : ""));
    }
    const optimum = data.schemes[best.scheme].optimum;
    if (optimum !== null && optimum !== best.scheme && data.schemes[optimum].kind === "optimum" && columnOf[optimum].has(best.k)) {
      const means = data.acceptance[now.setting];
      const limit = columnOf[optimum].get(best.k);
      const reach = ["mean", "upper"].map((part) => speed(means[part][limit], best.k, now.levels, now));
      lines.push(
        "An optimal verifier on the same drafts would reach " + ends(reach[0], reach[1], 3, "×") +
          (data.intervals ? "." : ", " + number(100 * (reach[0] / best.speed - 1), 1) + " % more.")
      );
    }
    let length = best;
    for (let levels = 1; levels <= MOST_LEVELS; levels += 1) {
      const candidate = options(now, levels, wanted)[0];
      if (candidate.speed > length.speed * (1 + 1e-12)) {
        length = candidate;
      }
    }
    if (length.levels !== now.levels) {
      const faster = data.intervals ? "Another draft length has a larger lower end: " : "Another draft length would be faster: ";
      lines.push(
        faster + length.levels + (length.levels === 1 ? " level" : " levels") + " with " +
          named(length) + " gives " + ends(length.speed, length.speedUpper, 3, "×") + "."
      );
    } else {
      const superlative = data.intervals ? " has the largest lower end." : " is the fastest.";
      lines.push("Of 1 to " + MOST_LEVELS + " drafted levels, " + now.levels + superlative);
    }
    return lines;
  }

  // ---- wiring -----------------------------------------------------------------------------------------------------------
  const everything = Object.keys(charts);
  const refresh = (ids) => {
    const now = state();
    document.querySelectorAll("[data-say=setting]").forEach((node) => {
      node.textContent = data.settings[now.setting].label;
    });
    document.querySelectorAll("[data-say=k]").forEach((node) => {
      node.textContent = "k\u00a0=\u00a0" + now.k;
    });
    document.querySelectorAll("[data-setting]").forEach((node) => {
      node.hidden = Number(node.dataset.setting) !== now.setting;
    });
    recommend(now);
    return draw(ids, now);
  };
  ["setting", "drafts"].forEach((id) => byId(id).addEventListener("change", () => refresh(everything)));
  ["draft-cost", "verify-cost", "levels"].forEach((id) => byId(id).addEventListener("input", () => refresh(["chart-speed"])));
  if (byId("consider-optimum")) {
    byId("consider-optimum").addEventListener("change", () => refresh(["chart-speed"]));
  }
  data.schemes.forEach((scheme, i) => byId("scheme-" + i).addEventListener("change", () => refresh(everything)));

  // Paper has one width, whatever the window had: redraw for it, and open what is folded.
  const PAPER = 660;
  const folded = [];
  window.addEventListener("beforeprint", () => {
    document.querySelectorAll("main details:not([open])").forEach((node) => {
      folded.push(node);
      node.open = true;
    });
    paper = PAPER;
    refresh(everything);
  });
  window.addEventListener("afterprint", () => {
    folded.splice(0).forEach((node) => {
      node.open = false;
    });
    paper = 0;
    refresh(everything);
  });

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
