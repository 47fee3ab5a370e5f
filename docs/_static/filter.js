// A box above each table of class "filtered": rows that lack a typed word are hidden.
document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll(".filtered")) {
    const rows = [...box.querySelectorAll("tbody tr")];
    const input = document.createElement("input");
    const count = document.createElement("span");
    input.type = "search";
    input.placeholder = "Filter, for example: IID lossless";
    input.setAttribute("aria-label", "Filter the rows of this table");
    count.setAttribute("role", "status");
    const heads = [...box.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    for (const row of rows) [...row.cells].forEach((cell, i) => { cell.dataset.head = heads[i]; }); // on a phone a row is a card
    const lossless = heads.indexOf("lossless");
    const texts = rows.map((row) => {
      const word = lossless < 0 ? "" : row.cells[lossless].textContent.trim() === "yes" ? " lossless" : " lossy";
      return (row.textContent + word).toLowerCase();
    });
    const update = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, i) => {
        row.hidden = !words.every((word) => new RegExp(`(^|[^\\p{L}])${word.replace(/[^\p{L}\p{N}]/gu, "\\$&")}`, "u").test(texts[i]));
        shown += row.hidden ? 0 : 1;
      });
      count.textContent = `${shown} of ${rows.length}`;
    };
    input.addEventListener("input", update);
    const bar = document.createElement("p");
    bar.className = "filter";
    bar.append(input, count);
    box.prepend(bar);
    update();
  }
});
