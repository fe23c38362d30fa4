// Tables sort by a click on a heading: numbers by their value, words by the alphabet, what has no value last.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const rising = head.getAttribute("aria-sort") !== "ascending";
    for (const other of heads) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", rising ? "ascending" : "descending");
    const key = row => row.cells[column].dataset.v ?? row.cells[column].textContent.trim();
    const body = table.tBodies[0];
    const sorted = [...body.rows].sort((a, b) => {
      const x = key(a), y = key(b);
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
      return rising ? order : -order;
    });
    body.append(...sorted);
  }));
}
// Decoded futures: a picture is named by its source and its frame; choices change the names that panels refer to.
for (const view of document.querySelectorAll(".decoded")) {
  const { name, whole } = view.dataset, find = what => view.querySelector(what);
  const slider = find(".time"), play = find(".play"), contour = find(".contour"), output = find("output");
  const checked = group => find(`input[name="${name}-${group}"]:checked`);
  const all = find(`input[name="${name}-channel"][value=""]`);
  view.classList.add("live");
  const show = () => {
    const method = checked("method"), channel = checked("channel"), frame = slider ? slider.value : 0;
    const source = channel?.value || method?.value; // only the oracle was decoded: there is no method
    for (const use of view.querySelectorAll("use[data-of]")) {
      const of = use.dataset.of === "chosen" ? source : use.dataset.of;
      use.setAttribute("href", `#${name}-${of}-${frame}`);
    }
    const title = method?.dataset.title + (channel?.value ? `, ${channel.dataset.title}` : "");
    for (const place of view.querySelectorAll(".title")) place.textContent = title;
    for (const use of view.querySelectorAll("use[data-of=chosen]")) use.parentNode.setAttribute("aria-label", title);
    for (const part of view.querySelectorAll("[data-failures]")) part.hidden = part.dataset.failures !== method?.value;
    if (slider) {
      output.textContent = `${slider.dataset.seconds.split(" ")[frame]} s ahead`;
      slider.setAttribute("aria-valuetext", output.textContent);
    }
    view.classList.toggle("bare", contour ? !contour.checked : false);
  };
  view.addEventListener("input", event => {
    const { name: group, value } = event.target;
    if (group === `${name}-method` && value !== whole && all) all.checked = true;
    if (group === `${name}-channel`) find(`input[name="${name}-method"][value="${whole}"]`).checked = true;
    show();
  });
  let running = 0;
  play?.addEventListener("click", () => {
    clearInterval(running);
    running = running ? 0 : setInterval(() => {
      slider.value = slider.value === slider.max ? 0 : +slider.value + 1;
      show();
    }, 600);
    play.textContent = running ? "stop" : "play";
    play.setAttribute("aria-pressed", running ? "true" : "false");
  });
  show();
}
