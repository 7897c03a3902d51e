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
  const ids = Object.keys(data.plots);
  for (const id of ids) {
    const { data: traces, layout, narrow = {} } = data.plots[id];
    const whole = withBase(layout);
    if (document.getElementById(id).clientWidth < 560) {
      for (const [name, patch] of Object.entries(narrow)) whole[name] = patch instanceof Object ? { ...whole[name], ...patch } : patch;
      for (const note of whole.annotations ?? []) note.font = { ...note.font, size: 10 };
    }
    await Plotly.newPlot(id, traces, whole, config);
  }

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

  const draw = () => {
    const level = map.levels[key];
    members = level.names.map(() => []);
    level.groups.forEach((group, i) => members[group].push(i));
    const traces = members.map((index, group) => ({
      type: useGl ? "scattergl" : "scatter", mode: "markers", name: plain(level.names[group]), hoverinfo: "none",
      x: index.map((i) => map.x[i]), y: index.map((i) => map.y[i]), customdata: index, visible: index.length > 0,
      marker: { color: level.colours[group], symbol: level.symbols[group], size, opacity: n > 2000 ? 0.65 : 0.8, line: { width: 0 } },
    }));
    const narrow = box.clientWidth < 560;
    const legend = members.length > 1 && members.length <= 30;
    const short = (name) => plain(name.length > 14 ? name.slice(0, 13) + "…" : name);
    const annotations = members.length > 150 ? [] : Object.entries(level.middles).map(([group, [x, y]]) => ({
      x, y, text: `<b>${short(level.names[group])}</b>`, showarrow: false, bgcolor: "rgba(255,255,255,.85)", borderpad: 1,
      font: { size: members.length > 60 ? 9 : members.length > 30 ? 10 : 12 }, captureevents: false,
    }));
    const span = (values) => {
      let low = Infinity, high = -Infinity;
      for (const v of values) { if (v < low) low = v; if (v > high) high = v; }
      const pad = 0.04 * (high - low) || 1;
      return [low - pad, high + pad];
    };
    const bare = { showticklabels: false, showgrid: false, showline: false, ticks: "", fixedrange: coarse };
    const layout = withBase({
      height: narrow ? Math.min(box.clientWidth, 460) + (legend ? 90 : 0) : 600, hovermode: "closest", dragmode: coarse ? false : "zoom",
      showlegend: legend, margin: { l: 4, r: 4, t: 4, b: 4 }, annotations, uirevision: "same",
      legend: {
        itemsizing: "constant", title: { text: narrow ? "" : level.title.toLowerCase() }, font: { size: 12 },
        ...(narrow ? { orientation: "h", y: -0.02, x: 0, yanchor: "top" } : {}),
      },
      xaxis: { ...bare, range: span(map.x) }, yaxis: { ...bare, range: span(map.y) },
    });
    box.dataset.level = key;
    return Plotly.react(box, traces, layout, config);
  };

  const words = (i) => {
    const lines = Object.values(map.levels).map((level) => `${level.word} ${level.names[level.groups[i]]}`);
    return [`Sample ${map.index[i]}`, ...lines, `confidence ${map.confidence[i].toFixed(3)}`];
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

  await draw();
  box.on("plotly_hover", (event) => show(event.points[0].customdata));
  box.on("plotly_click", (event) => show(event.points[0].customdata));
  box.on("plotly_unhover", hide);
  box.on("plotly_relayouting", hide);
  box.addEventListener("blur", hide);
  box.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (event.key === "Escape") hide();
    if (!(event.key in steps)) return;
    event.preventDefault();
    const order = members.flat(), at = order.indexOf(shown);
    show(order[(at + steps[event.key] + order.length) % order.length]);
    said.textContent = words(shown).join(", ");
  });
  const buttons = document.querySelectorAll(".switch button");
  for (const button of buttons) {
    button.addEventListener("click", () => {
      key = button.dataset.level;
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      hide();
      draw();
    });
  }

  // --- paper is narrower than a screen
  const all = [...ids, "map"];
  window.addEventListener("beforeprint", () => { for (const id of all) Plotly.relayout(id, { width: 680, autosize: false }); });
  window.addEventListener("afterprint", () => { for (const id of all) Plotly.relayout(id, { width: null, autosize: true }); });
  root.dataset.state = "ready";
})().catch((error) => {
  document.documentElement.dataset.state = "failed";
  const box = document.getElementById("warning");
  box.textContent = `The plots could not be drawn (${error.message}); pictures and tables are below.`;
  box.hidden = false;
  console.error(error);
});
