// Before the page is drawn: the theme that was chosen here, if any.
(function () {
  "use strict";
  try {
    var theme = localStorage.getItem("zabor-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch (e) { /* no storage: as the device has it */ }
})();
