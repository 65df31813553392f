"use strict";

(() => {
  // A canvas knows no light-dark(): the browser resolves it as the colour of an element.
  const probe = document.createElement("i");
  probe.hidden = true;
  document.body.append(probe);
  const color = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const drawn = new Map();
  const HEIGHT = 164;
  const TALL = 240;

  // Whole microseconds: a Date cuts what sums of fractions lack of a millisecond.
  const day = (seconds) => new Date(Math.round(seconds * 1e6) / 1000).toISOString();
  const number = (value) => {
    const size = Math.abs(value);
    if (size >= 1e15 || (size > 0 && size < 1e-4)) return value.toExponential(3);
    return value.toLocaleString("en", { maximumFractionDigits: size < 100 ? 4 : 1 });
  };
  const short = (value) =>
    Math.abs(value) >= 1e4
      ? value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 })
      : number(value);
  const whole = (value) => (Number.isInteger(value) ? short(value) : "");
  const wordings = {
    number,
    date: (value) => day(value).slice(0, 10),
    timestamp: (value) => day(value).slice(0, 19).replace("T", " "),
    time: (value) => day(value).slice(11, 19),
  };
  const worded = (kind, value) => {
    try {
      return wordings[kind](value);
    } catch {
      return number(value);
    }
  };

  const axis = (more) => ({
    stroke: color("--muted"),
    grid: { stroke: color("--line"), width: 1 },
    ticks: { stroke: color("--line"), width: 1, size: 4 },
    font: "11px system-ui, sans-serif",
    ...more,
  });
  const widest = (self, values) => {
    const longest = (values || []).reduce((most, each) => Math.max(most, String(each).length), 1);
    return longest * 7 + 14;
  };
  // Largest unit first: how far ticks are apart, then how they read, then what a new year, month or
  // day adds, as uPlot's `axis.values` takes them.
  const YEAR = "\n{YYYY}";
  const DATE = "\n{D} {MMM}";
  const within = (unit, text) => [unit, text, `${DATE} {YYYY}`, null, DATE, null, null, null, 1];
  const moments = [
    [31536000, "{YYYY}", null, null, null, null, null, null, 1],
    [2419200, "{MMM}", YEAR, null, null, null, null, null, 1],
    [86400, "{D} {MMM}", YEAR, null, null, null, null, null, 1],
    within(60, "{HH}:{mm}"),
    within(1, "{HH}:{mm}:{ss}"),
    within(0.001, "{mm}:{ss}.{fff}"),
  ];
  const utc = (seconds) => uPlot.tzDate(new Date(seconds * 1e3), "Etc/UTC");

  // A legend has values also while nothing is pointed at: those of one place in the chart.
  const resting = (at) => {
    const rest = (self) => {
      if (self.cursor.idx == null) self.setLegend({ idx: at });
    };
    return { ready: [rest], setCursor: [rest] };
  };

  const distribution = (box) => {
    const { kind, from, to, margin, rows } = JSON.parse(box.dataset.distribution);
    const edges = Array.from({ length: rows.length + 1 }, (_, at) => from + ((to - from) * at) / rows.length);
    const middles = rows.map((_, at) => (edges[at] + edges[at + 1]) / 2);
    const isTime = kind !== "number";
    const clocks = (self, ticks) => ticks.map((tick) => worded("time", tick));
    const span = (at) => {
      const ends = [edges[at] + margin, edges[at + 1] - margin].map((end) => worded(kind, end));
      return ends[0] === ends[1] ? ends[0] : ends.join(" to ");
    };
    return new uPlot(
      {
        width: box.clientWidth,
        height: HEIGHT,
        tzDate: utc,
        hooks: resting(rows.indexOf(Math.max(...rows))),
        cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
        scales: {
          x: { time: isTime, range: () => [edges[0], edges[edges.length - 1]] },
          y: { range: (self, low, high) => [0, high > 0 ? high * 1.05 : 1] },
        },
        axes: [
          isTime
            ? axis({ space: 70, size: 40, values: kind === "time" ? clocks : moments })
            : axis({ space: 60, size: 26, values: (self, ticks) => ticks.map(short) }),
          axis({ values: (self, ticks) => ticks.map(whole), size: widest, space: 30 }),
        ],
        series: [
          { label: "values", value: (self, raw, series, at) => (at == null ? "" : span(at)) },
          {
            label: "rows",
            stroke: color("--bar"),
            fill: color("--bar"),
            width: 0,
            points: { show: false },
            paths: uPlot.paths.bars({ size: [0.94, Infinity], align: 0 }),
            value: (self, raw) => (raw == null ? "" : number(raw)),
          },
        ],
      },
      [middles, rows],
      box,
    );
  };

  const history = (box) => {
    const { times, fragments, scanned, versions } = JSON.parse(box.dataset.history);
    const wholes = (self, ticks) => ticks.map(whole);
    const text = (self, raw) => (raw == null ? "" : number(raw));
    return new uPlot(
      {
        width: box.clientWidth,
        height: TALL,
        tzDate: utc,
        hooks: resting(times.length - 1),
        cursor: { drag: { x: false, y: false } },
        scales: {
          x: { time: true, range: (self, low, high) => [low - (high - low) / 40, high + (high - low) / 40] },
          y: { range: (self, low, high) => [0, Math.max(1, high * 1.05)] },
          version: { range: (self, low, high) => [Math.max(0, low - 1), high + 1] },
        },
        axes: [
          axis({ space: 80, size: 40, values: moments }),
          axis({ label: "fragments", labelSize: 16, labelFont: "11px system-ui, sans-serif", values: wholes, size: widest }),
          axis({ label: "version", labelSize: 16, labelFont: "11px system-ui, sans-serif", scale: "version", side: 1, values: wholes, size: widest, grid: { show: false } }),
        ],
        series: [
          { label: "run", value: (self, raw) => (raw == null ? "" : worded("timestamp", raw)) },
          { label: "fragments", stroke: color("--muted"), width: 1.5, paths: uPlot.paths.stepped({ align: 1 }), value: text },
          {
            label: "scanned",
            stroke: color("--bar"),
            fill: color("--bar"),
            width: 0,
            paths: uPlot.paths.bars({ size: [0.5, 14], align: 0 }),
            points: { show: false },
            value: text,
          },
          { label: "version", scale: "version", stroke: color("--second"), width: 1.5, dash: [4, 3], value: text },
        ],
      },
      [times, fragments, scanned, versions],
      box,
    );
  };

  const bytes = (count) => {
    const power = count < 1 ? 0 : Math.min(4, Math.floor(Math.log10(count) / 3));
    return `${number(Number((count / 1000 ** power).toPrecision(3)))} ${["B", "kB", "MB", "GB", "TB"][power]}`;
  };
  const span = (seconds) => {
    const [length, unit] = seconds < 60 ? [1, "s"] : seconds < 3600 ? [60, "min"] : [3600, "h"];
    return `${number(Number((seconds / length).toPrecision(3)))} ${unit}`;
  };
  // How far ticks of seconds are apart, so that minutes and hours are round.
  const SECONDS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 18000, 36000, 86400];
  const around = (low, high, room) => [low - room, high + room];
  const figures = {
    number: {
      text: number,
      tick: number,
      // So near to a number, others are too few for ticks.
      range: (low, high) => around(low, high, Math.max((high - low) / 10 || 1, Math.max(-low, high) * 2 ** -49)),
    },
    size: { text: bytes, tick: bytes, range: (low, high) => [0, Math.max(1, high * 1.1)] },
    count: { text: number, tick: whole, range: (low, high) => [0, Math.max(1, high * 1.1)] },
    seconds: { steps: SECONDS, text: span, tick: span, range: (low, high) => [0, high > 0 ? high * 1.1 : 1] },
    share: {
      text: number,
      tick: number,
      range: (low) => [Math.max(0, low - Math.max(0.01, (1 - low) / 5)), 1 + Math.max(0.002, (1 - low) / 10)],
    },
  };

  const line = (box) => {
    const { kind, label, times, values, bound } = JSON.parse(box.dataset.line);
    const { text, tick, range, steps } = figures[kind];
    const valued = (self, raw) => (raw == null ? "" : text(raw));
    const bounds = bound == null ? [] : [times.map(() => bound)];
    return new uPlot(
      {
        width: box.clientWidth,
        height: HEIGHT,
        tzDate: utc,
        hooks: resting(times.length - 1),
        cursor: { y: false, drag: { x: false, y: false } },
        scales: {
          x: { time: true, range: (self, low, high) => [low - (high - low) / 40, high + (high - low) / 40] },
          y: { range: (self, low, high) => range(low, high) },
        },
        axes: [
          axis({ space: 70, size: 40, values: moments }),
          axis({ values: (self, ticks) => ticks.map(tick), size: widest, space: 30, ...(steps && { incrs: steps }) }),
        ],
        series: [
          { label: "run", value: (self, raw) => (raw == null ? "" : worded("timestamp", raw)) },
          { label, stroke: color("--bar"), width: 2, points: { show: true, size: 6 }, value: valued },
          ...bounds.map(() => ({ label: "asked", stroke: color("--second"), width: 1.5, dash: [4, 3], points: { show: false }, value: valued })),
        ],
      },
      [times, values, ...bounds],
      box,
    );
  };

  const draw = (box) => {
    drawn.get(box)?.destroy();
    box.replaceChildren();
    const { history: runs, line: figure } = box.dataset;
    drawn.set(box, runs ? history(box) : figure ? line(box) : distribution(box));
  };

  const watch = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting && !drawn.has(entry.target)) draw(entry.target);
      }
    },
    { rootMargin: "200px" },
  );
  for (const box of document.querySelectorAll(".plot")) watch.observe(box);

  document.addEventListener("lancestat-theme", () => [...drawn.keys()].forEach(draw));
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    for (const [box, chart] of drawn) {
      chart.setSize({ width: box.clientWidth, height: box.dataset.history ? TALL : HEIGHT });
    }
  });
})();
