"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const narrow = () => window.innerWidth < 700;

  const draw = (place) => {
    if (place.dataset.drawn) return;
    place.dataset.drawn = "1";
    const figure = figures[place.dataset.chart];
    const layout = { ...figure.layout, height: figure.height + (narrow() ? 60 : 0) };
    if (narrow()) layout.margin = { ...layout.margin, l: 40, r: 6 };
    Plotly.newPlot(place, figure.data, layout, {
      responsive: true,
      displaylogo: false,
      displayModeBar: false,
    }).then(() => {
      if (figure.decisions) place.on("plotly_click", (click) => show(figure.decisions, click.points[0].customdata));
      window.drawn = (window.drawn || 0) + 1;
    });
  };

  const show = (decisions, request) => {
    const log = document.getElementById("log");
    const rows = decisions[request] || [];
    log.replaceChildren();
    const title = document.createElement("h3");
    title.textContent = rows.length ? `Decisions for ${request}` : `No decisions recorded for ${request}`;
    log.append(title);
    const table = document.createElement("table");
    for (const row of rows) {
      const line = table.insertRow();
      line.insertCell().textContent = `${row.ms.toFixed(1)} ms`;
      for (const text of [row.event, row.actions]) {
        const code = document.createElement("code");
        code.textContent = text;
        line.insertCell().append(code);
      }
    }
    log.append(table);
    log.classList.add("open");
  };

  const places = document.querySelectorAll("[data-chart]");
  const all = () => places.forEach(draw);
  if ("IntersectionObserver" in window && !location.hash.includes("all")) {
    const watch = new IntersectionObserver(
      (entries) => entries.forEach((entry) => entry.isIntersecting && draw(entry.target)),
      { rootMargin: "600px" },
    );
    places.forEach((place) => watch.observe(place));
  } else {
    all();
  }
  window.addEventListener("beforeprint", all);
})();
