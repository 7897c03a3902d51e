"use strict";
(async () => {
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  const fail = (message) => {
    const box = document.getElementById("warning");
    box.textContent = message;
    box.hidden = false;
    root.dataset.state = "failed";
  };

  const unpack = async (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  if (typeof DecompressionStream === "undefined") {
    fail("This browser is too old to draw the plots; pictures and tables are below.");
    return;
  }
  const script = document.createElement("script");
  script.textContent = await unpack(document.getElementById("library").textContent);
  document.head.append(script);

  const coarse = window.matchMedia("(pointer: coarse)").matches;
  const font = { family: getComputedStyle(root).fontFamily, size: 13, color: "#1f2933" };
  const axis = { gridcolor: "#e8ebef", zeroline: false, linecolor: "#9aa5b1", tickcolor: "#9aa5b1", fixedrange: true };
  const base = {
    font, autosize: true, showlegend: false, dragmode: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 48, r: 14, t: 20, b: 44 }, hoverlabel: { font: { ...font, size: 12 }, bgcolor: "#fff", bordercolor: "#9aa5b1" },
  };
  const config = { displayModeBar: false, responsive: true, showTips: false };
  const withBase = (layout) => {
    const whole = { ...base, ...layout, margin: { ...base.margin, ...layout.margin } };
    for (const name of Object.keys(layout)) if (/^[xy]axis/.test(name)) whole[name] = { ...axis, ...layout[name] };
    return whole;
  };
  const ids = Object.keys(data.plots), drawn = new Set();
  const drawPlot = async (id) => {
    const element = document.getElementById(id);
    if (drawn.has(id) || element.closest("[hidden]")) return; // what is hidden has no width: it is drawn when it is shown
    drawn.add(id);
    const { data: traces, layout, narrow = {} } = data.plots[id];
    const whole = withBase(layout);
    if (element.clientWidth < 560) {
      for (const [name, patch] of Object.entries(narrow)) whole[name] = patch instanceof Object ? { ...whole[name], ...patch } : patch;
      for (const note of whole.annotations ?? []) note.font = { ...note.font, size: 10 };
    }
    await Plotly.newPlot(id, traces, whole, config);
  };
  for (const id of ids) await drawPlot(id);

  // --- the map
  const map = data.map, box = document.getElementById("map"), card = document.getElementById("card");
  const said = document.getElementById("said");
  const plain = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
  const n = map.x.length;
  const useGl = n > 2000 && (() => {
    try { return !!document.createElement("canvas").getContext("webgl"); } catch { return false; }
  })();
  const size = n > 5000 ? 4 : n > 1000 ? 5 : 8;
  let key = Object.keys(map.levels)[0];
  let members = [];
  let chosen = null; // numbers of samples, or null for all
  let chosenBy = "";
  let drag = coarse ? false : "zoom";

  const span = (values) => {
    let low = Infinity, high = -Infinity;
    for (const v of values) { if (v < low) low = v; if (v > high) high = v; }
    const pad = 0.04 * (high - low) || 1;
    return [low - pad, high + pad];
  };
  const ranges = { x: span(map.x), y: span(map.y) };
  const short = (name) => plain(name.length > 18 ? name.slice(0, 17) + "…" : name);

  // Names stand in the middle of large groups and above small ones, and move up where they would cover each other.
  const labels = (level) => {
    if (members.length > 150) return [];
    const width = box.clientWidth || 600, height = box.clientWidth < 560 ? Math.min(box.clientWidth, 460) : 600;
    const px = (x) => (x - ranges.x[0]) / (ranges.x[1] - ranges.x[0]) * width;
    const py = (y) => (ranges.y[1] - y) / (ranges.y[1] - ranges.y[0]) * height;
    const size = members.length > 60 ? 9 : members.length > 30 ? 10 : 12;
    const placed = [];
    const order = Object.entries(level.middles).map(([group, [x, y]]) => {
      const far = members[group].map((i) => Math.hypot(px(map.x[i]) - px(x), py(map.y[i]) - py(y))).sort((a, b) => a - b);
      return { group, x, y, reach: far[Math.floor(0.8 * (far.length - 1))] };
    }).sort((a, b) => members[b.group].length - members[a.group].length);
    return order.map(({ group, x, y, reach }) => {
      const text = short(level.names[group]), wide = 0.62 * size * text.length + 6, tall = size + 6;
      let shift = reach < 24 ? reach + 0.8 * size : 0;
      const covers = () => placed.some((p) => Math.abs(p.x - px(x)) < (p.wide + wide) / 2 && Math.abs(p.y - (py(y) - shift)) < tall);
      for (let i = 0; i < 12 && covers(); i += 1) shift += tall / 2;
      placed.push({ x: px(x), y: py(y) - shift, wide });
      return {
        x, y, yshift: shift, text: `<b>${text}</b>`, showarrow: false, bgcolor: "rgba(255,255,255,.82)", borderpad: 1,
        bordercolor: level.colours[group], borderwidth: shift ? 1 : 0, font: { size }, captureevents: false,
      };
    });
  };

  const draw = () => {
    const level = map.levels[key];
    members = level.names.map(() => []);
    level.groups.forEach((group, i) => members[group].push(i));
    const isChosen = chosen && new Set(chosen);
    const traces = members.map((index, group) => ({
      type: useGl ? "scattergl" : "scatter", mode: "markers", name: plain(level.names[group]), hoverinfo: "none",
      x: index.map((i) => map.x[i]), y: index.map((i) => map.y[i]), customdata: index, visible: index.length > 0,
      marker: { color: level.colours[group], symbol: level.symbols[group], size, opacity: n > 2000 ? 0.65 : 0.8, line: { width: 0 } },
      selectedpoints: isChosen ? index.flatMap((i, at) => (isChosen.has(i) ? [at] : [])) : null,
      selected: { marker: { opacity: 0.95 } }, unselected: { marker: { opacity: 0.06 } },
    }));
    const narrow = box.clientWidth < 560;
    const legend = members.length > 1 && members.length <= 40;
    const bare = { showticklabels: false, showgrid: false, showline: false, ticks: "", fixedrange: drag === false };
    const view = box._fullLayout && box._fullLayout.xaxis ? { x: [...box._fullLayout.xaxis.range], y: [...box._fullLayout.yaxis.range] } : { x: [...ranges.x], y: [...ranges.y] };
    const layout = withBase({
      height: narrow ? Math.min(box.clientWidth, 460) + (legend ? 90 : 0) : 600, hovermode: "closest", dragmode: drag,
      showlegend: legend, margin: { l: 4, r: 4, t: 4, b: 4 }, annotations: labels(level),
      legend: {
        itemsizing: "constant", title: { text: narrow ? "" : level.title.toLowerCase() }, font: { size: 12 }, itemclick: false, itemdoubleclick: false,
        ...(narrow ? { orientation: "h", y: -0.02, x: 0, yanchor: "top" } : {}),
      },
      xaxis: { ...bare, range: view.x }, yaxis: { ...bare, range: view.y },
    });
    box.dataset.level = key;
    box.dataset.chosen = chosen ? chosen.length : "";
    return Plotly.react(box, traces, layout, { ...config, scrollZoom: !coarse });
  };

  const choose = (index, by) => {
    chosen = index && index.length < n ? index : null;
    chosenBy = chosen ? by : "";
    const count = (chosen ? chosen.length : n).toLocaleString("en");
    document.getElementById("chosen-text").textContent = chosen ? `Chosen: ${chosenBy}, ${count} of the samples shown.` : `All ${count} samples shown.`;
    document.getElementById("clear").hidden = !chosen;
    return draw();
  };
  const chooseGroup = (i) => {
    const level = map.levels[key], group = level.groups[i];
    return choose(members[group].slice(), `${level.word} ${level.names[group]}`);
  };
  const search = (text) => {
    const wanted = text.trim().toLowerCase();
    if (!wanted) return choose(null);
    const levels = Object.entries(map.levels).filter(([name]) => name === key || !name.startsWith("layer-")).map(([, level]) => level);
    const exact = levels.flatMap((level) => level.names.flatMap((name, group) => {
      const names = [name.toLowerCase(), `${level.word} ${name}`.toLowerCase(), `${level.word} ${level.numbers[group]}`];
      return names.includes(wanted) && /[a-z]/.test(wanted) ? [[level, group]] : [];
    }));
    const found = [];
    for (let i = 0; i < n; i += 1) {
      const name = map.names ? map.names[i].toLowerCase() : "";
      const hit = exact.length
        ? exact.some(([level, group]) => level.groups[i] === group)
        : String(map.index[i]) === wanted || `sample ${map.index[i]}` === wanted || (name && name.includes(wanted))
          || (map.rows && map.rows.which[i].some((f) => map.rows.names[f].toLowerCase().includes(wanted)));
      if (hit) found.push(i);
    }
    return choose(found, `“${text.trim()}”`).then(() => { if (found.length === 1) show(found[0]); });
  };
  const save = () => {
    const levels = Object.entries(map.levels).filter(([name]) => name === key || !name.startsWith("layer-"));
    const cell = (value) => (/[",\n\r]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
    const safe = (text) => (/^[=+\-@\t]/.test(text) ? `'${text}` : text); // a sheet would take it for a formula
    const head = ["sample", ...(map.names ? ["name"] : []), ...levels.map(([, level]) => level.word), "confidence"];
    const rows = (chosen ?? map.index.map((_, i) => i)).map((i) => [
      map.index[i], ...(map.names ? [safe(map.names[i])] : []), ...levels.map(([, level]) => safe(level.names[level.groups[i]])), map.confidence[i],
    ]);
    const text = [head, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = "samples.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    root.dataset.saved = text; // what was saved, for whoever drives the page
  };

  const words = (i) => {
    const levels = Object.entries(map.levels).filter(([name]) => name === key || !name.startsWith("layer-"));
    const lines = levels.map(([, level]) => `${level.word} ${level.names[level.groups[i]]}`);
    return [`Sample ${map.index[i]}`, ...(map.names ? [map.names[i]] : []), ...lines, `confidence ${map.confidence[i].toFixed(3)}`];
  };
  let shown = -1;
  const show = (i) => {
    shown = i;
    const [title, ...lines] = words(i);
    card.replaceChildren();
    if (map.sheet) {
      const s = map.sheet, scale = Math.max(1, Math.floor(88 / Math.max(s.width, s.height)));
      const thumb = document.createElement("div");
      thumb.className = "thumb";
      Object.assign(thumb.style, {
        width: `${s.width * scale}px`, height: `${s.height * scale}px`, backgroundImage: `url(${s.uri})`,
        backgroundSize: `${s.width * s.columns * scale}px ${s.height * s.rows * scale}px`,
        backgroundPosition: `${-(i % s.columns) * s.width * scale}px ${-Math.floor(i / s.columns) * s.height * scale}px`,
      });
      card.append(thumb);
    }
    const text = document.createElement("div"), bold = document.createElement("b");
    bold.textContent = title;
    text.append(bold);
    for (const line of lines) text.append(line, document.createElement("br"));
    if (map.rows) {
      const table = document.createElement("table");
      map.rows.which[i].forEach((feature, j) => {
        const row = table.insertRow();
        row.insertCell().textContent = map.rows.names[feature];
        row.insertCell().textContent = map.rows.values[i][j];
      });
      text.append(table);
    }
    card.append(text);
    card.dataset.sample = map.index[i];
    card.hidden = false;
    const { xaxis, yaxis } = box._fullLayout;
    const x = xaxis._offset + xaxis.l2p(map.x[i]), y = yaxis._offset + yaxis.l2p(map.y[i]);
    const left = x + 14 + card.offsetWidth > box.clientWidth ? x - 14 - card.offsetWidth : x + 14;
    card.style.left = `${Math.max(0, Math.min(left, box.clientWidth - card.offsetWidth))}px`;
    card.style.top = `${Math.max(0, Math.min(y - card.offsetHeight / 2, box.clientHeight - card.offsetHeight))}px`;
  };
  const hide = () => { card.hidden = true; };

  await choose(null);
  box.on("plotly_hover", (event) => show(event.points[0].customdata));
  box.on("plotly_click", (event) => chooseGroup(event.points[0].customdata).then(() => show(event.points[0].customdata)));
  box.on("plotly_legendclick", (event) => {
    const group = event.curveNumber;
    if (members[group].length) choose(members[group].slice(), `${map.levels[key].word} ${map.levels[key].names[group]}`);
    return false;
  });
  box.on("plotly_selected", (event) => {
    if (event && event.points.length) choose(event.points.map((point) => point.customdata), "by lasso");
  });
  box.on("plotly_doubleclick", () => { choose(null); return false; });
  document.getElementById("save").addEventListener("click", save);
  document.getElementById("clear").addEventListener("click", () => { document.getElementById("search").value = ""; choose(null); });
  let waiting = 0;
  document.getElementById("search").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => search(event.target.value), 150);
  });
  const tools = document.querySelectorAll("[data-tool]");
  const pressTool = () => { for (const tool of tools) tool.setAttribute("aria-pressed", String(tool.dataset.tool === drag)); };
  for (const tool of tools) {
    tool.addEventListener("click", () => {
      if (tool.dataset.tool === "reset") {
        Plotly.relayout(box, { "xaxis.range": [...ranges.x], "yaxis.range": [...ranges.y] });
        return;
      }
      drag = drag === tool.dataset.tool && coarse ? false : tool.dataset.tool; // on a phone, pressed again, the page scrolls
      pressTool();
      Plotly.relayout(box, { dragmode: drag, "xaxis.fixedrange": drag === false, "yaxis.fixedrange": drag === false });
    });
  }
  pressTool();
  box.on("plotly_unhover", hide);
  box.on("plotly_relayouting", hide);
  box.addEventListener("blur", hide);
  box.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (event.key === "Escape") { hide(); if (chosen) choose(null); }
    if (event.key === "Enter" && shown >= 0) chooseGroup(shown);
    if (!(event.key in steps)) return;
    event.preventDefault();
    const order = members.flat(), at = order.indexOf(shown);
    show(order[(at + steps[event.key] + order.length) % order.length]);
    said.textContent = words(shown).join(", ");
  });
  const buttons = document.querySelectorAll("button[data-level]");
  const picker = document.getElementById("layer");
  let layer = "cluster";
  const colourBy = (name) => {
    key = name;
    for (const other of buttons) {
      const own = other.dataset.level === "cluster" ? layer : other.dataset.level;
      other.setAttribute("aria-pressed", String(own === key));
    }
    hide();
    return choose(null);
  };
  for (const button of buttons) {
    button.addEventListener("click", () => colourBy(button.dataset.level === "cluster" ? layer : button.dataset.level));
  }
  if (picker) {
    picker.addEventListener("change", async () => {
      layer = picker.value;
      for (const part of document.querySelectorAll("[data-layer]")) part.hidden = part.dataset.layer !== layer;
      await colourBy(layer);
      for (const id of ids) await drawPlot(id);
      root.dataset.shownLayer = layer;
    });
  }

  // --- paper is narrower than a screen
  const all = () => [...drawn, "map"];
  window.addEventListener("beforeprint", () => { for (const id of all()) Plotly.relayout(id, { width: 680, autosize: false }); });
  window.addEventListener("afterprint", () => { for (const id of all()) Plotly.relayout(id, { width: null, autosize: true }); });
  root.dataset.state = "ready";
})().catch((error) => {
  document.documentElement.dataset.state = "failed";
  const box = document.getElementById("warning");
  box.textContent = `The plots could not be drawn (${error.message}); pictures and tables are below.`;
  box.hidden = false;
  console.error(error);
});
