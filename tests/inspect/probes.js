// Texts whose contrast with what is behind them is below 4.5 (WCAG 2.2, 1.4.3).
function illegible() {
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const paint = canvas.getContext("2d", { willReadFrequently: true });
  const rgba = colour => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = colour;
    paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data];
  };
  const linear = part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const over = (top, under) => under.map((part, at) => at === 3 ? 255 : top[at] * top[3] / 255 + part * (1 - top[3] / 255));
  const behind = element => {
    if (!element) return [255, 255, 255, 255];
    const colour = rgba(getComputedStyle(element).backgroundColor);
    return colour[3] === 255 ? colour : over(colour, behind(element.parentElement));
  };
  const found = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.data.trim();
    if (!text || !element.checkVisibility() || element.closest("[disabled], .unseen, option")) continue;
    const back = behind(element);
    const [high, low] = [light(over(rgba(getComputedStyle(element).color), back)), light(back)].sort((a, b) => b - a);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < 4.5) found.add(`${contrast.toFixed(2)}: ${text.slice(0, 40)} (${element.className || element.tagName})`);
  }
  return [...found];
}

// What can be used and has no name for a screen reader.
function nameless() {
  return [...document.querySelectorAll("button, input, select, textarea, a, summary")]
    .filter(each => each.checkVisibility())
    .filter(each => !(each.labels?.length || each.getAttribute("aria-label") || each.textContent.trim()))
    .map(each => each.outerHTML.slice(0, 120));
}
