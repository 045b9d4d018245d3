"use strict";
// A slider and the number beside it show the same value; without this script the form takes the one that was changed.
(() => {
  const STEPS = 200; // of the slider, so that it lands on round numbers

  const round = (slider) => {
    const step = 2 ** Math.max(0, Math.round(Math.log2(slider.max / STEPS)));
    return Math.round(slider.value / step) * step;
  };

  document.addEventListener("input", (event) => {
    const slider = event.target.closest("[data-number]");
    if (slider) document.getElementById(slider.dataset.number).value = round(slider);
    else if (event.target.id) {
      const beside = document.querySelector(`[data-number="${CSS.escape(event.target.id)}"]`);
      if (beside) beside.value = event.target.value;
    }
  });
})();
