"use strict";
// Shows the progress of testbeds as the server reports it, and loads the page again when anything else changed.
(() => {
  const shown = document.getElementById("content").dataset.live;
  const events = new EventSource("/events");
  const bars = () => document.querySelectorAll("[data-progress]");
  const busy = () => document.activeElement && document.activeElement.form;
  events.onmessage = event => {
    const now = JSON.parse(event.data);
    for (const p of bars()) {
      const bed = now.beds.find(b => b.name === p.dataset.progress);
      if (!bed) continue;
      const bar = p.querySelector("progress");
      bar.hidden = !bed.total;
      bar.max = bed.total || 1;
      bar.value = bed.done;
      p.querySelector("span").textContent = bed.text;
    }
    if (now.state !== shown && !busy()) {
      events.close();
      location.reload();
    }
  };
  events.onerror = () => {
    if (events.readyState !== EventSource.CLOSED) return; // the browser connects again
    for (const p of bars()) p.querySelector("span").textContent += ", not live";
    setInterval(() => busy() || location.reload(), 60000);
  };
})();
