// Dark or light: as the system has it, until somebody says otherwise. Loaded before anything is
// drawn, so that nothing flashes.
(() => {
  const THEMES = ["auto", "light", "dark"];
  const stored = localStorage.getItem("ballast-theme");
  const root = document.documentElement;
  root.dataset.theme = THEMES.includes(stored) ? stored : "auto";

  const turn = () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme) + 1) % THEMES.length];
    root.dataset.theme = next;
    localStorage.setItem("ballast-theme", next);
    name();
    document.dispatchEvent(new Event("theme"));
  };
  const name = () => {
    document.getElementById("theme").textContent = `theme: ${root.dataset.theme}`;
  };
  document.addEventListener("DOMContentLoaded", () => {
    name();
    document.getElementById("theme").addEventListener("click", turn);
  });
})();
