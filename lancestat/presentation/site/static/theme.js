// Before anything is drawn, so that a page does not flash in the other colours.
(() => {
  "use strict";
  let kept = null;
  try {
    kept = localStorage.getItem("lancestat-theme");
  } catch {
    // A browser may refuse storage to pages from a disk: then the system decides.
  }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
