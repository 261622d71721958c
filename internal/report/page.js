document.querySelectorAll("a.save").forEach(function (a) {
  var b = document.createElement("button");
  b.type = "button";
  b.textContent = "PNG";
  b.onclick = function () {
    var img = new Image();
    img.onload = function () {
      var c = document.createElement("canvas");
      c.width = img.width * 2;
      c.height = img.height * 2;
      c.getContext("2d").drawImage(img, 0, 0, c.width, c.height);
      var l = document.createElement("a");
      l.href = c.toDataURL("image/png");
      l.download = a.download.replace(".svg", ".png");
      l.click();
    };
    img.src = a.href;
  };
  a.after(b);
});
(function () {
  var source = document.getElementById("metrics-data");
  if (!source) {
    return;
  }
  var data = JSON.parse(source.textContent), empty = document.getElementById("metrics-empty").content;

  function put(parent, tag, text, css) {
    var e = document.createElement(tag);
    e.textContent = text;
    e.className = css;
    parent.append(e);
    return e;
  }

  function addRow(body, cell, r) {
    var row = body.insertRow(), name = data.Names[r[0]], missing = r.length === 2;
    var first = put(row, "th", name[0], "");
    first.scope = "row";
    first.title = name[3];
    put(first, "span", name[1], "sub");
    ["median", "low", "high"].forEach(function (stat, k) {
      var at = 3 + 2 * k;
      if (at >= r.length) {
        put(row, "td", !missing ? "–" : k ? "" : "n/a", "num tone-quiet");
        return;
      }
      var number = put(row, "td", r[at], "num");
      Object.assign(number.dataset, {cell: cell, metric: name[1], stat: stat, value: r[at + 1]});
    });
    put(row, "td", missing ? "" : r[2], "num");
    put(row, "td", data.Words[r[1]], missing ? "tone-quiet" : "");
    put(row, "td", name[2], "");
  }

  document.querySelectorAll("details.metrics").forEach(function (details, i) {
    details.addEventListener("toggle", function () {
      var part = empty.cloneNode(true), table = part.querySelector("table"), of = data.Tables[i];
      table.removeAttribute("id");
      table.setAttribute("aria-label", details.firstChild.textContent);
      of.Rows.forEach(function (r) { addRow(table.tBodies[0], of.Cell, r); });
      details.append(part);
    }, {once: true});
  });
})();
