"use strict";
// Shows the progress of testbeds as the server reports it, and loads the page again when anything else changed.
(() => {
  const shown = document.getElementById("content").dataset.live;
  const events = new EventSource("/events");
  events.onmessage = event => {
    const now = JSON.parse(event.data);
    for (const p of document.querySelectorAll("[data-progress]")) {
      const bed = now.beds.find(b => b.name === p.dataset.progress);
      if (!bed) continue;
      const bar = p.querySelector("progress");
      bar.hidden = !bed.total;
      bar.max = bed.total || 1;
      bar.value = bed.done;
      p.querySelector("span").textContent = bed.text;
    }
    const busy = document.activeElement && document.activeElement.form;
    if (now.state !== shown && !busy) {
      events.close();
      location.reload();
    }
  };
})();
