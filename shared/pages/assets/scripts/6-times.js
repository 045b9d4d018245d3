"use strict";
// Keeps "5 min ago" up to date on a page that stays open; the words are those of the server (`format_ago`).
(() => {
  const AGES = [["day", 86400], ["h", 3600], ["min", 60]]; // units with their seconds
  const LONG_AGO = 60 * 86400; // seconds from which on the day is shown

  const words = (instant) => {
    const seconds = (Date.now() - Date.parse(instant)) / 1000;
    const size = Math.abs(seconds);
    if (size >= LONG_AGO) return instant.slice(0, 10);
    if (size < 60) return "just now";
    const [unit, each] = AGES.find(([, length]) => size >= length);
    const count = Math.floor(size / each);
    const distance = `${count} ${unit}${unit === "day" && count > 1 ? "s" : ""}`;
    return seconds > 0 ? `${distance} ago` : `in ${distance}`;
  };

  setInterval(() => document.querySelectorAll("time[datetime]").forEach((time) => {
    time.textContent = words(time.dateTime);
  }), 30_000);
})();
