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
