"use strict";
// Before the first paint: the theme that was chosen, or the system's.
try {
  const theme = localStorage.getItem("antiphon-theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch { /* storage is switched off */ }
