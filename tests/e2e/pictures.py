#!/usr/bin/env python3
"""Checks an SVG picture: pictures.py PICTURE [LABEL...]

It has a title, a description and a style for dark pages. All letters are 13 pixels or larger at a width of at most 880.
Everything is inside the picture. Each LABEL is written at the end of a line. The colours of letters have a contrast of
4.5 or more with a light page and with a dark page. rsvg-convert renders it on both.
"""
import re
import subprocess
import sys
import xml.etree.ElementTree as tree

path, *labels = sys.argv[1:]
text = open(path).read()
svg = tree.fromstring(text)
inside = "{http://www.w3.org/2000/svg}"


def check(holds, complaint):
    if not holds:
        sys.exit(f"{path}: {complaint}")


for name in ("title", "desc"):
    check((svg.findtext(inside + name) or "").strip(), f"no <{name}>")
check(svg[0].tag == inside + "title", "<title> is not first")
dark = re.search(r"@media \(prefers-color-scheme: dark\) \{\n(.*?)\n\}\n", text, re.S)
check(dark, "no style for dark pages")
check(text.count("fill: #") > 0 and not re.search(r'(fill|stroke)="#', text), "colours belong into the style")
check("nan" not in text and "inf" not in text, "a coordinate is not a number")
width, height = (float(n) for n in svg.get("viewBox").split()[2:])
check(width <= 880, "wider than a README")
check(all(int(size) >= 13 for size in re.findall(r"font(?:-size)?: (\d+)px", text)), "letters smaller than 13 px")
for element in svg.iter():
    if element.get("x") and element.tag == inside + "text":
        check(0 <= float(element.get("x")) <= width and 0 <= float(element.get("y")) <= height,
                "text outside of the picture")
    for x, y in re.findall(r"([-\d.]+),([-\d.]+)", element.get("points", "")):
        check(0 <= float(x) <= width and 0 <= float(y) <= height, "a line leaves the picture")
written = ["".join(element.itertext()) for element in svg.iter(inside + "text") if "label" in element.get("class", "")]
for label in labels:
    check(label in written, f"no label {label!r}; there are {written}")
heights = {}
for element in svg.iter(inside + "text"):
    if "label" in element.get("class", ""):
        for x, y in heights.items():
            close = abs(float(element.get("x")) - x[0]) < 60 and abs(float(element.get("y")) - x[1]) < 13
            check(not close, f"labels {y!r} and {element.text!r} overlap")
        heights[float(element.get("x")), float(element.get("y"))] = element.text



def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


style = svg.findtext(inside + "style").split("@media")
pages = {
    "light": ("#ffffff", style[0], text.replace(dark.group(0), "")),
    "dark": ("#0d1117", style[1], text.replace(dark.group(0), dark.group(1))),
}
for page, (colour, rules, picture) in pages.items():
    letters = re.findall(r"(?:text|\.faint|\.small|\.label)[^{}]*\{[^}]*?fill: (#\w{6})", rules)
    check(len(letters) >= 2, f"no colours of letters for {page} pages")
    for ink in letters:
        check(contrast(ink, colour) >= 4.5, f"{ink} is too faint on a {page} page")
    image = subprocess.run(["rsvg-convert", "-b", colour], input=picture.encode(), capture_output=True)
    check(image.returncode == 0, f"does not render on a {page} page: {image.stderr.decode()}")
    check(len(image.stdout) > 3000, f"is empty on a {page} page")
