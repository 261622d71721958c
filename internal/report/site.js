document.querySelectorAll("table.sorted").forEach(function (table) {
  var body = table.tBodies[0];
  function key(row, i) {
    var n = row.cells[i].querySelector("[data-value]");
    return n ? Number(n.dataset.value) : row.cells[i].textContent.trim();
  }
  table.querySelectorAll("thead th").forEach(function (head, i) {
    var down = true, button = document.createElement("button");
    button.type = "button";
    button.title = "sort";
    button.append.apply(button, head.childNodes);
    head.append(button);
    button.onclick = function () {
      var rows = Array.from(body.rows), sign = down ? -1 : 1;
      rows.sort(function (a, b) {
        var x = key(a, i), y = key(b, i), n = typeof x === "number", m = typeof y === "number";
        if (n !== m) { return n ? -1 : 1; }
        return n ? sign * (x - y) : -sign * x.localeCompare(y);
      });
      rows.forEach(function (r) { body.append(r); });
      table.querySelectorAll("thead th").forEach(function (h) { h.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      down = !down;
    };
  });
});
