"""Programs that run in the page and measure what a person would see."""

from __future__ import annotations

# Every text with its colour on the colour that is painted below it, by the formula of WCAG 2.
CONTRASTS = """
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const paint = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = ([r, g, b]) => [r, g, b]
    .map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const grounds = (element) => {
    const found = [];
    for (let at = element; at; at = at.parentElement) {
      found.unshift(getComputedStyle(at).backgroundColor);
    }
    return ["#ffffff", ...found];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const measured = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node.nodeValue.trim();
    const element = node.parentElement;
    if (!text || !element || element.closest("noscript, script, style")) continue;
    if (!element.checkVisibility({ checkVisibilityCSS: true })) continue;
    const below = grounds(element);
    const ground = luminance(paint(below));
    const ink = luminance(paint([...below, getComputedStyle(element).color]));
    const ratio = (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
    measured.push({ text: text.slice(0, 60), ratio });
  }
  return measured;
}
"""

# Marks that carry a meaning, on the colour below them.
MARK_CONTRASTS = CONTRASTS.replace(
    "const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);",
    "const marks = [...document.querySelectorAll('svg.mark')].values();"
    " const walker = { nextNode: () => marks.next().value };",
).replace(
    "const text = node.nodeValue.trim();\n    const element = node.parentElement;",
    "const element = node; const text = node.innerHTML;",
)

# What has the focus, and whether one sees it.
FOCUSED = """
() => {
  const element = document.activeElement;
  if (!element || element === document.body) return null;
  const style = getComputedStyle(element);
  const box = element.getBoundingClientRect();
  return {
    what: element.tagName + " " + element.textContent.trim(),
    outline: style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth),
    inView: box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0,
  };
}
"""

# What a keyboard has to reach.
CONTROLS = """
() => [...document.querySelectorAll("a[href], button, summary, [tabindex='0']")]
  .filter((each) => each.checkVisibility({ checkVisibilityCSS: true })).length
"""

OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
